"""A reader of one run's log: from a cursor, then live, each event once, in order.

Rule: a reader has a cursor and nothing else. It reads from memory or, if that no longer reaches back, in pages from the
store; then it looks once more and registers for wake-up without awaiting in between. Nothing is queued for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runstone.core.events import Event
from runstone.engine.recording import Recording
from runstone.errors import CursorExpired, StorageUnavailable
from runstone.storage.base import EventLog


class Reader:
    """Reads one run. Close it, or the run's events stay in memory.

    `cursor` may be set back before the first `read`. `newest` is the newest event there was when the reader was made.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        owner: str,
        run_id: str,
        after: int,
        newest: int,
        recording: Recording | None,
        page_events: int,
        on_close: Callable[[Recording], None],
    ) -> None:
        self.cursor = after
        self.newest = newest
        self._log = log
        self._owner = owner
        self._run_id = run_id
        self._recording = recording
        self._page_events = page_events
        self._on_close = on_close
        self._woken: asyncio.Future[None] | None = None
        self._is_woken = False
        if recording is not None:
            recording.readers += 1

    async def read(self) -> list[Event] | None:
        """The next events; an empty list when the run is over and all was read; None when `wake` was called first.

        Raises:
            CursorExpired: what follows is no longer kept.
            StorageError: the log cannot be read, or the run was given up for the store's sake, or goes on only in the next
                process: the stream must be cut.
        """
        recording = self._recording
        while True:
            events = None if recording is None else recording.read(self.cursor)
            if events is None:
                events = await self._log.events(self._owner, self._run_id, after=self.cursor, limit=self._page_events)
                if not events and recording is None and self.cursor >= self.newest:
                    return []
                if not events or events[0].seq != self.cursor + 1:
                    # Deleted or compacted since the reader was made.
                    raise CursorExpired(str(self.cursor), oldest=None)
            if events:
                self.cursor = events[-1].seq
                return events
            assert recording is not None
            if recording.is_over:
                return []
            if recording.broken is not None:
                raise recording.broken
            if recording.is_left:
                raise StorageUnavailable("The server is shutting down.", code="draining")
            if self._is_woken:
                self._is_woken = False
                return None
            self._woken = recording.changed()
            await self._woken
            if self._is_woken:
                recording.forget(self._woken)
            self._woken = None

    def wake(self) -> None:
        """Let `read` return None instead of waiting, now or the next time."""
        self._is_woken = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def close(self) -> None:
        """Stop reading."""
        recording, self._recording = self._recording, None
        if recording is not None:
            if self._woken is not None:
                recording.forget(self._woken)
            recording.readers -= 1
            self._on_close(recording)
