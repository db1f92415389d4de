"""Pages of a session's history, and the place from which a reader goes on."""

from __future__ import annotations

import re
from typing import Final

from runstone.core.items import Item
from runstone.core.runs import Run
from runstone.core.transcript import ActiveRun, HistoryRow, Page
from runstone.engine.live import LiveRuns
from runstone.engine.recording import Recording
from runstone.errors import CursorUnknown, NotFound
from runstone.storage.base import RunStore

_PLACE: Final = re.compile(r"([0-9]{1,15})\.([0-9]{1,9})")


class History:
    """Reads history. A page of a running session and the cursor given with it fit together exactly."""

    def __init__(self, store: RunStore, live: LiveRuns) -> None:
        self._store = store
        self._live = live

    async def page(self, owner: str, session_id: str, *, before: str | None, limit: int) -> Page:
        """See `Engine.history`."""
        session = await self._store.session(owner, session_id)
        if session is None:
            raise NotFound("session", session_id)
        place = None if before is None else _place(before)
        head = None if session.head is None else await self._store.run(owner, session.head)
        recording = self._live.recordings.get((owner, session.head or ""))
        seq, open_items = 0, list[Item]()
        if recording is not None:
            # The snapshot comes first; then we wait until the store has it all. What comes meanwhile is left out below.
            seq, open_items = recording.last_seq, _open_items(recording)
            await recording.reached(seq)
        rows = await self._store.rows(owner, session_id, limit=limit + 1, before=place)
        has_more = len(rows) > limit
        rows = rows[-limit:]
        if recording is not None:
            rows = [row for row in rows if row.run_id != recording.run.id or row.seq <= seq]
            head = recording.run
        runs = await self._runs(owner, rows, head if before is None else None)
        return Page(
            rows=rows,
            runs=runs,
            before=f"{rows[0].position}.{rows[0].ordinal}" if has_more and rows else None,
            active=await self._active(head, seq),
            open_items=open_items if before is None else [],
        )

    async def _runs(self, owner: str, rows: list[HistoryRow], head: Run | None) -> list[Run]:
        ids = list(dict.fromkeys(row.run_id for row in rows if row.run_id is not None))
        if head is not None and head.id not in ids:
            ids.append(head.id)
        runs = await self._store.runs_by_id(owner, ids)
        live = self._live.recordings
        return [live[(owner, run.id)].run if (owner, run.id) in live else run for run in runs]

    async def _active(self, head: Run | None, seq: int) -> ActiveRun | None:
        if head is None or head.outcome is not None:
            return None
        return ActiveRun(run_id=head.id, status=head.status, seq=seq or head.last_seq)


def _open_items(recording: Recording) -> list[Item]:
    return [opened.item() for opened in recording.state.open_items.values()]


def _place(text: str) -> tuple[int, int]:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise CursorUnknown(text[:80], expected="the `cursor` of a page")
    return int(match[1]), int(match[2])
