"""Pages of a session's history, and the place from which a reader goes on."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from runstone.core.items import Item
from runstone.core.runs import Run
from runstone.core.transcript import ActiveRun, HistoryRow, Page
from runstone.engine.live import LiveRuns
from runstone.engine.recording import Recording
from runstone.errors import CursorUnknown, NotFound
from runstone.storage.base import Store

_PLACE: Final = re.compile(r"([0-9]{1,15})\.([0-9]{1,9})")
#: A page is read again when the session moved on meanwhile; no session moves on this often in a row.
_TRIES: Final = 5


class _Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A session's head, the run that goes on in its chain, and how far that was. `is_live`: this process owns the run."""

    head: str | None
    run: Run | None
    seq: int
    next_position: int
    open_items: list[Item] = []
    is_live: bool = False


class History:
    """Reads history. A page of a running session and the cursor given with it fit together exactly."""

    def __init__(self, store: Store, live: LiveRuns) -> None:
        self._store = store
        self._live = live

    async def page(self, owner: str, session_id: str, *, before: str | None, limit: int) -> Page:
        """See `Engine.history`."""
        place = None if before is None else _place(before)
        for _ in range(_TRIES):
            moment = await self._moment(owner, session_id)
            rows = await self._store.rows(owner, session_id, limit=limit + 1, before=place or (moment.next_position, 0))
            if await self._is_right(owner, session_id, moment):
                break
        has_more = len(rows) > limit
        rows = rows[-limit:]
        run = moment.run
        return Page(
            rows=rows,
            runs=await self._runs(owner, rows, run, with_run=before is None),
            before=f"{rows[0].position}.{rows[0].ordinal}" if has_more and rows else None,
            active=None
            if run is None or run.outcome is not None
            else ActiveRun(run_id=run.id, status=run.status, seq=moment.seq),
            open_items=moment.open_items if before is None else [],
        )

    async def _moment(self, owner: str, session_id: str) -> _Moment:
        """The session as it is in one moment that the store has reached: what comes later is not on the page."""
        session = await self._store.session(owner, session_id)
        if session is None:
            raise NotFound("session", session_id)
        live = self._live.sessions.get(owner, session_id)
        positions = await self._live.sessions.positions(owner, session_id, live)
        run = await self._going_on(await self._live.current(owner, session.head))
        seq = 0 if run is None else await self._store.last_seq(owner, run.id)
        recording = None if run is None else self._live.recordings.get((owner, run.id))
        if recording is None:
            return _Moment(head=session.head, run=run, seq=seq, next_position=positions.upcoming)
        moment = _Moment(
            head=session.head,
            run=recording.run,
            seq=recording.last_seq,
            next_position=positions.upcoming,
            open_items=_open_items(recording),
            is_live=True,
        )
        await recording.reached(moment.seq)
        return moment

    async def _going_on(self, head: Run | None) -> Run | None:
        """The head; when it is queued, the run that it waits for."""
        while head is not None and head.status == "queued":
            ahead = await self._live.ahead_of(await self._live.current(head.owner, head.continues))
            if ahead is None:
                return head
            head = ahead
        return head

    async def _is_right(self, owner: str, session_id: str, moment: _Moment) -> bool:
        """Whether rows that were read after `moment` are those of its head."""
        session = await self._store.session(owner, session_id)
        if session is None or session.head != moment.head:
            return False
        if moment.is_live or moment.run is None or moment.run.outcome is not None:
            return True
        return await self._store.last_seq(owner, moment.run.id) == moment.seq

    async def _runs(self, owner: str, rows: list[HistoryRow], active: Run | None, *, with_run: bool) -> list[Run]:
        ids = list(dict.fromkeys(row.run_id for row in rows if row.run_id is not None))
        if active is not None and with_run and active.id not in ids:
            ids.append(active.id)
        live = self._live.recordings
        newest = {run_id: live[(owner, run_id)].run for run_id in ids if (owner, run_id) in live}
        if active is not None:
            newest[active.id] = active
        return [newest.get(run.id, run) for run in await self._store.runs_by_id(owner, ids)]


def _open_items(recording: Recording) -> list[Item]:
    return [opened.item() for opened in recording.state.open_items.values()]


def _place(text: str) -> tuple[int, int]:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise CursorUnknown(text[:80], expected="the `cursor` of a page")
    return int(match[1]), int(match[2])
