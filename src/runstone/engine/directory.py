"""The sessions of an owner: make, list, change, delete, fork; and the items that clients put into them.

Rule: whatever changes a session's rows holds its lock and takes positions from its counter, so that rows and events keep one
order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from runstone.core.items import Item
from runstone.core.runs import Run, Session
from runstone.core.transcript import HistoryRow, Origin
from runstone.engine.blobs import Blobs
from runstone.engine.ids import IdSource
from runstone.engine.live import LiveRuns
from runstone.engine.titles import free_title, title_of
from runstone.errors import Conflict, InvalidRequest, NotFound, RunActive
from runstone.storage.base import Store

MAX_TITLE_CHARS = 300


class Stop(Protocol):
    """Ends a run (Engine.stop)."""

    async def __call__(self, owner: str, run_id: str, *, reason: str | None = None) -> Run:
        """The run after."""
        ...


class Directory:
    """Sessions by owner. Ids that a client chooses were checked at the door (core.ids)."""

    def __init__(
        self,
        store: Store,
        live: LiveRuns,
        *,
        blobs: Blobs,
        clock: Callable[[], float],
        ids: IdSource,
        default_agent: str,
        stop: Stop,
    ) -> None:
        self._store = store
        self._live = live
        self._blobs = blobs
        self._clock = clock
        self._ids = ids
        self._default_agent = default_agent
        self._stop = stop

    async def create(
        self,
        owner: str,
        *,
        session_id: str | None = None,
        agent: str | None = None,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        items: list[Item] | None = None,
        parent: str | None = None,
        prefix: str = "ses",
    ) -> Session:
        """A new session, with items that the client puts there.

        Raises:
            Conflict: the owner has a session of that id (`session_exists`), or of that title (`invalid_title`).
            InvalidRequest: the title is empty or too long, or an item names a file that is not there.
        """
        if title is not None:
            await self._check_title(owner, title)
        now = self._clock()
        stored = await self._blobs.stored(owner, items or [])
        session = Session(
            id=session_id or self._ids.new(prefix),
            owner=owner,
            agent=agent or self._default_agent,
            created_at=now,
            updated_at=now,
            title=title if title is not None else await title_of(self._store, owner, stored),
            metadata=metadata or {},
            parent=parent,
        )
        rows = [
            HistoryRow(position=n, ordinal=0, at=now, item=item, origin="client") for n, item in enumerate(stored, 1)
        ]
        live = self._live.sessions.get(owner, session.id)
        async with live.lock:
            await self._store.create_session(session, rows)
        return session

    async def get(self, owner: str, session_id: str) -> Session:
        """The session.

        Raises:
            NotFound: the owner has none of that id.
        """
        session = await self._store.session(owner, session_id)
        if session is None:
            raise NotFound("session", session_id)
        return session

    async def page(
        self, owner: str, *, limit: int, offset: int = 0, search: str | None = None, agent: str | None = None
    ) -> tuple[list[Session], bool]:
        """Sessions with the newest activity first, and whether more follow."""
        found = await self._store.sessions(owner, limit=limit + 1, offset=offset, search=search, agent=agent)
        return found[:limit], len(found) > limit

    async def change(self, owner: str, session_id: str, change: Callable[[Session], Session]) -> Session:
        """The session after `change`, which gets it as it is and may give it another title, other metadata.

        Raises:
            NotFound, InvalidRequest, Conflict: see `create`.
        """
        live = self._live.sessions.get(owner, session_id)
        async with live.lock:
            before = await self.get(owner, session_id)
            after = change(before)
            if after.title is not None and after.title != before.title:
                await self._check_title(owner, after.title)
            after = msgspec.structs.replace(
                after, updated_at=self._clock(), hidden=after.hidden and after.title is None
            )
            await self._store.save_session(after)
        return after

    async def delete(self, owner: str, session_id: str, *, stop: bool = False) -> None:
        """Delete the session with its runs and history. With `stop`, a run that is going on is stopped first.

        Raises:
            NotFound: the owner has no such session.
            RunActive: a run of it has no outcome, and `stop` is False (`session_active_turn`).
        """
        live = self._live.sessions.get(owner, session_id)
        async with live.lock:
            await self.get(owner, session_id)
            unfinished = await self._store.runs(owner, session_id=session_id, statuses=["queued", "running", "waiting"])
            for run in unfinished:
                if not stop and run.status != "waiting":
                    raise RunActive(
                        f"The run {run.id!r} of this session is {run.status}; stop it first.",
                        run_id=run.id,
                        code="session_active_turn",
                    )
            for run in unfinished:
                await self._stop(owner, run.id, reason="session_deleted")
            await self._store.delete_session(owner, session_id)
            live.deleted()

    async def fork(
        self,
        owner: str,
        session_id: str,
        *,
        until: tuple[int, int] | None = None,
        new_id: str | None = None,
        title: str | None = None,
    ) -> Session:
        """A new session that begins as a copy of this one's history, up to and with the row `until` (position, ordinal).

        Raises:
            NotFound: the owner has no such session, or it has no such row.
            Conflict, InvalidRequest: see `create`.
        """
        source = await self.get(owner, session_id)
        rows = await self._store.chain_rows(owner, session_id, source.head)
        if until is not None:
            rows = [row for row in rows if (row.position, row.ordinal) <= until]
            if not rows or (rows[-1].position, rows[-1].ordinal) != until:
                raise NotFound("message", f"{until[0]}.{until[1]}")
        if title is not None:
            await self._check_title(owner, title)
        elif source.title is not None:
            title = await free_title(self._store, owner, source.title)
        now = self._clock()
        copy = Session(
            id=new_id or self._ids.new("ses"),
            owner=owner,
            agent=source.agent,
            created_at=now,
            updated_at=now,
            title=title,
            metadata=source.metadata,
            parent=source.id,
        )
        copied = [_copied(row, n, origin="fork") for n, row in enumerate(rows, 1)]
        live = self._live.sessions.get(owner, copy.id)
        async with live.lock:
            await self._store.create_session(copy, copied)
        return copy

    async def add_items(self, owner: str, session_id: str, items: list[Item]) -> list[HistoryRow]:
        """Put items at the end of the session's history, as a client's own; the rows that they became.

        Raises:
            NotFound: the owner has no such session.
            RunActive: a run of it is going on; its items and these would mix.
            Conflict: an item's id is there already (`item_exists`).
        """
        live = self._live.sessions.get(owner, session_id)
        async with live.lock:
            session = await self.get(owner, session_id)
            head = None if session.head is None else await self._store.run(owner, session.head)
            recording = self._live.recordings.get((owner, session.head or ""))
            current = recording.run if recording is not None else head
            if current is not None and current.outcome is None:
                raise RunActive(
                    f"The run {current.id!r} of this session is {current.status}; add items when it has ended.",
                    run_id=current.id,
                )
            for item in items:
                if await self._store.row(owner, session_id, run_id=None, item_id=item.item_id) is not None:
                    raise Conflict(f"The session has an item {item.item_id!r} already.", code="item_exists")
            stored = await self._blobs.stored(owner, items)
            positions = await self._live.sessions.positions(owner, session_id, live)
            now = self._clock()
            rows = [
                HistoryRow(position=positions.next(), ordinal=0, at=now, item=item, origin="client") for item in stored
            ]
            await self._store.add_rows(owner, session_id, rows)
        return rows

    async def delete_item(self, owner: str, session_id: str, row: HistoryRow) -> None:
        """Take one row away, from everybody, the model included.

        Raises:
            NotFound: it is not there any more.
        """
        live = self._live.sessions.get(owner, session_id)
        async with live.lock:
            if not await self._store.delete_row(owner, session_id, position=row.position, ordinal=row.ordinal):
                raise NotFound("item", row.item.item_id)

    async def _check_title(self, owner: str, title: str) -> None:
        if not title.strip() or len(title) > MAX_TITLE_CHARS:
            raise InvalidRequest(f"A title has 1 to {MAX_TITLE_CHARS} characters.", param="title", code="invalid_title")
        if await self._store.is_title_taken(owner, title):
            raise Conflict(f"A session has the title {title!r} already.", code="invalid_title")


def _copied(row: HistoryRow, position: int, *, origin: Origin) -> HistoryRow:
    # Runs count their steps for themselves; copies belong to no run.
    step = f"{row.run_id}.{row.item.step}" if row.item.step is not None and row.run_id is not None else row.item.step
    item = msgspec.structs.replace(row.item, item_id=f"copy{position}", step=step)
    return HistoryRow(position=position, ordinal=0, at=row.at, item=item, is_input=row.is_input, origin=origin)
