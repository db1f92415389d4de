"""Everything in this process's memory: the reference of the storage contract, and the fake for tests.

Rule: every write waits its turn in one queue and takes effect there; callers meet the asynchrony of a database.
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import pairwise
from typing import TypeVar

import msgspec

from runstone.core.events import DELTAS, Event, ToolProgress
from runstone.core.items import Item
from runstone.core.lifecycle import RunState
from runstone.core.runs import Run, Session
from runstone.core.serde import events_to_json, to_json
from runstone.core.transcript import HistoryRow, RowChange, row_change
from runstone.errors import AppendConflict, Conflict, IdempotencyConflict, NotFound, NotStorable
from runstone.storage.base import Append, Created, FileRecord, Idempotency, NewRun, SessionEvent

T = TypeVar("T")
_UNENCODABLE = (TypeError, ValueError, RecursionError)


class _Row(msgspec.Struct):
    """A history row, and the run to whose chain it belongs (None: before any run)."""

    row: HistoryRow
    anchor: str | None

    @property
    def place(self) -> tuple[int, int]:
        return self.row.position, self.row.ordinal

    @property
    def of_run(self) -> str | None:
        """The run that made it; None for rows that a client or a fork put there."""
        return self.row.run_id if self.row.origin == "run" else None


class _Session(msgspec.Struct):
    """A session with its rows by place, and the newest position that was ever used by what is deleted now."""

    record: Session
    rows: list[_Row] = []
    floor: int = 0


class _Run(msgspec.Struct):
    """A run with its log. `continues` is the record's, but for links that were mended after a deletion."""

    record: Run
    fingerprint: str
    continues: str | None
    events: list[Event] = []


class MemoryStore:
    """Records and log of all owners in plain dicts. Lost when the process ends."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._runs: dict[tuple[str, str], _Run] = {}
        self._keys: dict[tuple[str, str], tuple[Idempotency, str]] = {}
        self._files: dict[tuple[str, str], FileRecord] = {}

    async def open(self) -> None: ...

    async def close(self) -> None:
        await self._write(lambda: None)

    async def check(self) -> None: ...

    # Writes ----------------------------------------------------------------------------------------------------------

    def _write(self, job: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_soon(_settle, future, job)
        return future

    async def create_session(self, session: Session, rows: list[HistoryRow]) -> None:
        def job() -> None:
            _check_storable([session, rows])
            key = session.owner, session.id
            if key in self._sessions:
                raise Conflict(f"A session with the id {session.id!r} exists.", code="session_exists")
            state = _Session(msgspec.structs.replace(session, head=None))
            _insert(state, [_Row(row, None) for row in rows])
            self._sessions[key] = state

        await self._write(job)

    async def save_session(self, session: Session) -> None:
        def job() -> None:
            _check_storable(session)
            state = self._sessions.get((session.owner, session.id))
            if state is None:
                raise NotFound("session", session.id)
            state.record = msgspec.structs.replace(session, head=state.record.head)

        await self._write(job)

    async def delete_session(self, owner: str, session_id: str) -> bool:
        def job() -> bool:
            if self._sessions.pop((owner, session_id), None) is None:
                return False
            for run in self._runs_of(owner, session_id):
                del self._runs[owner, run.record.id]
                self._forget_keys(owner, run.record.id)
            return True

        return await self._write(job)

    async def create_run(self, new: NewRun) -> Created:
        return await self._write(lambda: self._create_run(new))

    def _create_run(self, new: NewRun) -> Created:
        run, owner = new.run, new.run.owner
        change = row_change(run.id, new.event, RunState())
        _check_storable([run, new.session, change])
        _check_events([new.event])
        if (known := self._attached(new)) is not None:
            return Created(run=known, is_new=False)
        session = self._sessions.get((owner, run.session_id))
        if (session.record.head if session else None) != new.expected_head:
            raise Conflict("Another run of the session was first.", code="head_moved")
        if new.event.seq != 1:
            raise AppendConflict(f"The first event of a run has seq 1, not {new.event.seq}.")
        session = session or _Session(new.session)
        if change is not None:
            _insert(session, [_Row(row, run.id) for row in change.added])
        session.record = msgspec.structs.replace(session.record, head=run.id, updated_at=new.event.at)
        self._sessions[owner, run.session_id] = session
        self._runs[owner, run.id] = _Run(run, new.fingerprint, run.continues, [new.event])
        if new.idempotency is not None:
            self._keys[owner, new.idempotency.key] = new.idempotency, run.id
        return Created(run=run, is_new=True)

    def _attached(self, new: NewRun) -> Run | None:
        """The run that exists for the same key or id."""
        key = new.idempotency.key if new.idempotency is not None else None
        return self._existing(new.run.owner, new.fingerprint, new.run.id, key, new.run.created_at)

    def _existing(self, owner: str, fingerprint: str, run_id: str | None, key: str | None, now: float) -> Run | None:
        stored = self._keys.get((owner, key)) if key is not None else None
        if stored is not None and stored[0].expires_at > now:
            if stored[0].fingerprint != fingerprint:
                raise IdempotencyConflict("The idempotency key was used with another request.", run_id=stored[1])
            return self._runs[owner, stored[1]].record
        run = self._runs.get((owner, run_id)) if run_id is not None else None
        if run is None:
            return None
        if run.fingerprint != fingerprint:
            raise IdempotencyConflict(f"The run id {run_id!r} was used with another request.", run_id=run_id)
        return run.record

    async def save_run(self, run: Run) -> None:
        def job() -> None:
            _check_storable(run)
            state = self._runs.get((run.owner, run.id))
            if state is None:
                raise NotFound("run", run.id)
            state.record = run

        await self._write(job)

    async def delete_run(self, owner: str, run_id: str, *, keep_record: bool = False) -> bool:
        return await self._write(lambda: self._delete_run(owner, run_id, keep_record))

    def _delete_run(self, owner: str, run_id: str, keep_record: bool) -> bool:
        run = self._runs.get((owner, run_id))
        if run is None:
            return False
        session = self._sessions[owner, run.record.session_id]
        session.floor = self._last_position(owner, session)
        session.rows = [row for row in session.rows if row.of_run != run_id]
        run.events = []
        if keep_record:
            return True
        del self._runs[owner, run_id]
        self._forget_keys(owner, run_id)
        self._mend_chain(owner, session, run_id, run.continues)
        return True

    def _mend_chain(self, owner: str, session: _Session, run_id: str, continues: str | None) -> None:
        """Let everything that pointed to a run point past it."""
        shown = self._chain(owner, session.record.head)
        children = [child for (other, _), child in self._runs.items() if other == owner and child.continues == run_id]
        children.sort(key=lambda child: child.record.id not in shown)
        # A client's rows stay on the chain they are on: at the head that of the run before, else that of a run that follows.
        is_head = session.record.head == run_id
        heir = continues if is_head or not children else children[0].record.id
        if not children and not is_head:
            session.rows = [row for row in session.rows if row.anchor != run_id]
        session.rows = [_Row(row.row, heir) if row.anchor == run_id else row for row in session.rows]
        for child in children:
            child.continues = continues
            child.record = msgspec.structs.replace(child.record, continues=continues)
        if is_head:
            session.record = msgspec.structs.replace(session.record, head=continues)

    async def add_rows(self, owner: str, session_id: str, rows: list[HistoryRow]) -> None:
        def job() -> None:
            _check_storable(rows)
            session = self._sessions.get((owner, session_id))
            if session is None:
                raise NotFound("session", session_id)
            _insert(session, [_Row(row, session.record.head) for row in rows])

        await self._write(job)

    async def delete_row(self, owner: str, session_id: str, *, position: int, ordinal: int) -> bool:
        def job() -> bool:
            session = self._sessions.get((owner, session_id))
            if session is None:
                return False
            left = [row for row in session.rows if row.place != (position, ordinal)]
            if len(left) == len(session.rows):
                return False
            session.floor, session.rows = self._last_position(owner, session), left
            return True

        return await self._write(job)

    async def create_file(self, record: FileRecord) -> None:
        def job() -> None:
            _check_storable(record)
            if (record.owner, record.id) in self._files:
                raise Conflict(f"A file with the id {record.id!r} exists.", code="file_exists")
            self._files[record.owner, record.id] = record

        await self._write(job)

    async def delete_file(self, owner: str, file_id: str) -> bool:
        return await self._write(lambda: self._files.pop((owner, file_id), None) is not None)

    def append(self, batch: Append) -> asyncio.Future[None]:
        return self._write(lambda: self._append(batch))

    def _append(self, batch: Append) -> None:
        _check_storable([batch.changes, batch.run])
        _check_events(batch.events)
        run = self._runs.get((batch.owner, batch.run_id))
        if run is None or run.record.session_id != batch.session_id:
            raise AppendConflict(f"The run {batch.run_id!r} is gone.")
        if batch.events and run.record.outcome is not None:
            raise AppendConflict(f"The log of run {batch.run_id!r} has ended.")
        next_seq = run.events[-1].seq + 1 if run.events else 1
        for expected, event in enumerate(batch.events, start=next_seq):
            if event.seq != expected:
                raise AppendConflict(f"The log of run {batch.run_id!r} goes on with {expected}, not {event.seq}.")
        session = self._sessions[batch.owner, batch.session_id]
        changed = msgspec.structs.replace(session)
        for change in batch.changes:
            _apply(changed, batch.run_id, change)
        session.rows = changed.rows
        run.events.extend(batch.events)
        run.record = batch.run or run.record
        if batch.changes or batch.run is not None:
            session.record = msgspec.structs.replace(session.record, updated_at=batch.at)

    async def compact(self, owner: str, run_id: str) -> int:
        def job() -> int:
            run = self._runs.get((owner, run_id))
            if run is None or run.record.outcome is None:
                return 0
            before = len(run.events)
            run.events = [event for event in run.events if not isinstance(event.body, (*DELTAS, ToolProgress))]
            return before - len(run.events)

        return await self._write(job)

    # Reads -----------------------------------------------------------------------------------------------------------

    async def session(self, owner: str, session_id: str) -> Session | None:
        state = self._sessions.get((owner, session_id))
        return state.record if state else None

    async def sessions(
        self, owner: str, *, limit: int, offset: int = 0, search: str | None = None, agent: str | None = None
    ) -> list[Session]:
        wanted = search.casefold() if search else None
        found = [
            state.record
            for (other, _), state in self._sessions.items()
            if other == owner
            and not state.record.hidden
            and (wanted is None or wanted in (state.record.title or "").casefold())
            and (agent is None or state.record.agent == agent)
        ]
        found.sort(key=lambda session: (-session.updated_at, session.id))
        return found[offset : offset + limit]

    async def is_title_taken(self, owner: str, title: str) -> bool:
        return any(
            other == owner and state.record.title == title and not state.record.hidden
            for (other, _), state in self._sessions.items()
        )

    async def existing(
        self, owner: str, fingerprint: str, *, run_id: str | None, key: str | None, now: float
    ) -> Run | None:
        return self._existing(owner, fingerprint, run_id, key, now)

    async def run(self, owner: str, run_id: str) -> Run | None:
        state = self._runs.get((owner, run_id))
        return state.record if state else None

    async def runs(
        self,
        owner: str,
        *,
        session_id: str | None = None,
        statuses: list[str] | None = None,
        turn: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[Run]:
        order = [run.record for (other, _), run in self._runs.items() if other == owner]
        if before is not None:
            place = next((n for n, run in enumerate(order) if run.id == before), None)
            if place is None:
                raise NotFound("run", before, param="before")
            order = order[:place]
        found = (
            run
            for run in reversed(order)
            if (session_id is None or run.session_id == session_id)
            and (statuses is None or run.status in statuses)
            and (turn is None or run.turn == turn)
        )
        return [run for run, _ in zip(found, range(limit), strict=False)]

    async def runs_by_id(self, owner: str, run_ids: list[str]) -> list[Run]:
        return [self._runs[owner, run_id].record for run_id in run_ids if (owner, run_id) in self._runs]

    async def unfinished(self) -> list[Run]:
        return [run.record for run in self._runs.values() if run.record.outcome is None]

    async def ended(self, *, stored: bool, before: float, limit: int) -> list[Run]:
        found = [
            run.record
            for run in self._runs.values()
            if run.record.ended_at is not None
            and run.record.ended_at < before
            and run.record.store == stored
            and not run.record.compacted
        ]
        return sorted(found, key=lambda run: run.ended_at or 0.0)[:limit]

    async def chain(self, owner: str, run_id: str) -> list[Run]:
        return [self._runs[owner, link].record for link in self._chain(owner, run_id)]

    async def rows(
        self,
        owner: str,
        session_id: str,
        *,
        limit: int,
        before: tuple[int, int] | None = None,
        after: tuple[int, int] | None = None,
        newest_first: bool = False,
    ) -> list[HistoryRow]:
        session = self._sessions.get((owner, session_id))
        if session is None:
            return []
        found = [
            row
            for row in self._chain_rows(owner, session, session.record.head)
            if (before is None or (row.position, row.ordinal) < before)
            and (after is None or (row.position, row.ordinal) > after)
        ]
        found = found[:limit] if after is not None else found[max(len(found) - limit, 0) :]
        return found[::-1] if newest_first else found

    async def chain_rows(self, owner: str, session_id: str, run_id: str | None) -> list[HistoryRow]:
        session = self._sessions.get((owner, session_id))
        return self._chain_rows(owner, session, run_id) if session else []

    async def run_rows(self, owner: str, run_id: str) -> list[HistoryRow]:
        run = self._runs.get((owner, run_id))
        if run is None:
            return []
        return [row.row for row in self._sessions[owner, run.record.session_id].rows if row.of_run == run_id]

    async def row(self, owner: str, session_id: str, *, run_id: str | None, item_id: str) -> HistoryRow | None:
        session = self._sessions.get((owner, session_id))
        rows = session.rows if session else []
        return next((r.row for r in rows if r.row.run_id == run_id and r.row.item.item_id == item_id), None)

    async def file(self, owner: str, file_id: str) -> FileRecord | None:
        return self._files.get((owner, file_id))

    async def files(
        self, owner: str, *, limit: int, after: str | None = None, purpose: str | None = None, newest_first: bool = True
    ) -> list[FileRecord]:
        order = sorted(
            (file for (other, _), file in self._files.items() if other == owner),
            key=lambda file: (file.created_at, file.id),
            reverse=newest_first,
        )
        if after is not None:
            place = next((n for n, file in enumerate(order) if file.id == after), None)
            if place is None:
                raise NotFound("file", after, param="after")
            order = order[place + 1 :]
        return [file for file in order if purpose is None or file.purpose == purpose][:limit]

    async def events(self, owner: str, run_id: str, *, after: int, limit: int) -> list[Event]:
        run = self._runs.get((owner, run_id))
        if run is None:
            return []
        start = bisect.bisect_right(run.events, after, key=lambda event: event.seq)
        return run.events[start : start + limit]

    async def session_events(self, owner: str, session_id: str, *, after: int, limit: int) -> list[SessionEvent]:
        found = (
            SessionEvent(run_id=run.record.id, event=event)
            for run in self._runs_of(owner, session_id)
            for event in run.events
            if event.position > after
        )
        return nsmallest(limit, found, key=lambda found: found.event.position)

    async def last_seq(self, owner: str, run_id: str) -> int:
        run = self._runs.get((owner, run_id))
        return run.events[-1].seq if run and run.events else 0

    async def first_seq(self, owner: str, run_id: str) -> int:
        run = self._runs.get((owner, run_id))
        return run.events[0].seq if run and run.events else 0

    async def last_position(self, owner: str, session_id: str) -> int:
        session = self._sessions.get((owner, session_id))
        return self._last_position(owner, session) if session else 0

    # Shared ----------------------------------------------------------------------------------------------------------

    def _runs_of(self, owner: str, session_id: str) -> list[_Run]:
        return [run for (other, _), run in self._runs.items() if other == owner and run.record.session_id == session_id]

    def _forget_keys(self, owner: str, run_id: str) -> None:
        self._keys = {key: kept for key, kept in self._keys.items() if key[0] != owner or kept[1] != run_id}

    def _chain(self, owner: str, run_id: str | None) -> list[str]:
        """Ids of the runs that `run_id` continues, oldest first, itself last."""
        links: list[str] = []
        while run_id is not None and run_id not in links and (run := self._runs.get((owner, run_id))) is not None:
            links.append(run_id)
            run_id = run.continues
        return links[::-1]

    def _chain_rows(self, owner: str, session: _Session, run_id: str | None) -> list[HistoryRow]:
        shown = {None, *self._chain(owner, run_id)}
        return [row.row for row in session.rows if row.anchor in shown]

    def _last_position(self, owner: str, session: _Session) -> int:
        runs = self._runs_of(owner, session.record.id)
        return max(
            session.floor,
            max((row.row.position for row in session.rows), default=0),
            max((run.events[-1].position for run in runs if run.events), default=0),
        )


class MemoryFiles:
    """Bytes in memory."""

    def __init__(self) -> None:
        self._contents: dict[tuple[str, str], bytes] = {}

    async def put(self, owner: str, content: bytes) -> str:
        reference = f"sha256-{hashlib.sha256(content).hexdigest()}"
        self._contents[owner, reference] = bytes(content)
        return reference

    async def get(self, owner: str, reference: str) -> bytes | None:
        return self._contents.get((owner, reference))

    async def delete(self, owner: str, reference: str) -> bool:
        return self._contents.pop((owner, reference), None) is not None


def _settle(future: asyncio.Future[T], job: Callable[[], T]) -> None:
    """Do the job, also when nobody waits for it any more, and tell."""
    try:
        result = job()
    except Exception as e:  # whatever it is belongs to the one who asked
        if not future.done():
            future.set_exception(e)
    else:
        if not future.done():
            future.set_result(result)


def _check_storable(value: object) -> None:
    try:
        to_json(value)
    except _UNENCODABLE as e:
        raise NotStorable("A record holds a value that cannot be stored.") from e


def _check_events(events: list[Event]) -> None:
    try:
        events_to_json(events)
    except _UNENCODABLE as e:
        raise NotStorable("An event holds a value that cannot be stored.") from e


def _insert(session: _Session, rows: Iterable[_Row]) -> None:
    """Put rows in their places, all or none."""
    new = sorted([*session.rows, *rows], key=lambda row: row.place)
    if any(one.place == next_one.place for one, next_one in pairwise(new)):
        raise AppendConflict(f"A place in the history of session {session.record.id!r} is taken.")
    session.rows = new


def _apply(session: _Session, run_id: str, change: RowChange) -> None:
    if (kept := change.discard_after_seq) is not None:
        session.rows = [row for row in session.rows if row.of_run != run_id or row.row.seq <= kept]
    if (item := change.replaced) is not None:
        session.rows = [
            _Row(msgspec.structs.replace(row.row, item=item), row.anchor) if _is_replaced(row, run_id, item) else row
            for row in session.rows
        ]
    _insert(session, [_Row(row, run_id) for row in change.added])


def _is_replaced(row: _Row, run_id: str, item: Item) -> bool:
    old = row.row.item
    return row.of_run == run_id and type(old) is type(item) and old.item_id == item.item_id
