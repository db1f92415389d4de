"""What the process keeps of a session in use: who may admit a start, the next position, and what its readers follow.

Events of several runs of one session are committed apart, so a higher position may be visible before a lower one. A session's
reader is given a position only when every lower one is visible: `safe_position`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol
from weakref import WeakValueDictionary

from runstone.core.events import Event
from runstone.storage.base import EventLog, SessionEvent, Store

_RING_EVENTS: Final = 2_000
_PAGE_RUNS: Final = 100


class Positions:
    """Hands out the positions of one session: rising, without repeats. `upcoming` is the one that comes next."""

    __slots__ = ("__weakref__", "upcoming")

    def __init__(self, upcoming: int) -> None:
        self.upcoming = upcoming

    def next(self) -> int:
        """The next position; it counts as used."""
        value = self.upcoming
        self.upcoming = value + 1
        return value


class Writing(Protocol):
    """A recording, as its session sees it."""

    @property
    def first_invisible(self) -> int | None:
        """The lowest position that it gave to an event which is not visible yet; None when there is none."""
        ...


class _Creating:
    """A run that is being created."""

    def __init__(self, first_invisible: int) -> None:
        self._first_invisible = first_invisible

    @property
    def first_invisible(self) -> int:
        return self._first_invisible


class LiveSession:
    """One session in use in this process. `lock` is held while a start is admitted or the session's rows are changed."""

    __slots__ = (
        "__weakref__",
        "_held",
        "_ring",
        "_ring_after",
        "_waiters",
        "is_closing",
        "life",
        "lock",
        "positions",
        "readers",
        "writing",
    )

    def __init__(self, *, is_closing: bool = False) -> None:
        self.lock = asyncio.Lock()
        #: Counts the sessions that had this id, one after another.
        self.life = 0
        self.is_closing = is_closing
        self.positions: Positions | None = None
        self.readers = 0
        self.writing: dict[str, Writing] = {}
        self._held: list[SessionEvent] = []
        self._ring: list[SessionEvent] = []
        self._ring_after = 0
        self._waiters: list[asyncio.Future[None]] = []

    @contextmanager
    def creating(self, run_id: str, position: int) -> Iterator[None]:
        """While inside, `position` belongs to the first event of a run that is not visible yet."""
        key = f"new {run_id}"
        self.writing[key] = _Creating(position)
        try:
            yield
        finally:
            del self.writing[key]

    @property
    def safe_position(self) -> int:
        """The highest position such that everything up to it is visible."""
        assert self.positions is not None
        pending = [first for writing in self.writing.values() if (first := writing.first_invisible) is not None]
        return min(pending) - 1 if pending else self.positions.upcoming - 1

    def deleted(self) -> None:
        """The session is gone; its readers end. Another one may get its id, and then counts from the beginning."""
        self.life += 1
        self.positions = None
        self._ring.clear()
        self._held.clear()
        self._ring_after = 0
        self._wake()

    def end(self) -> None:
        """Nothing comes any more in this process: readers end when they have read what is there."""
        self.is_closing = True
        self._wake()

    def add_reader(self) -> None:
        """A reader follows the session from here on."""
        if self.readers == 0:
            self._ring_after = self.safe_position
        self.readers += 1

    def drop_reader(self) -> None:
        """It does not any more."""
        self.readers -= 1
        if self.readers == 0:
            self._ring.clear()
            self._held.clear()

    def became_visible(self, run_id: str, events: list[Event]) -> None:
        """A run of the session has more events for everybody to see."""
        if self.readers == 0:
            return
        self._held += [
            SessionEvent(run_id=run_id, event=event) for event in events if event.position > self._ring_after
        ]
        safe = self.safe_position
        ready = [held for held in self._held if held.event.position <= safe]
        if not ready:
            return
        if len(ready) == len(self._held):
            self._held = []
        else:
            self._held = [held for held in self._held if held.event.position > safe]
        ready.sort(key=_position)
        self._ring += ready
        if len(self._ring) > 2 * _RING_EVENTS:
            self._ring_after = self._ring[-_RING_EVENTS - 1].event.position
            del self._ring[:-_RING_EVENTS]
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def read(self, after: int) -> list[SessionEvent] | None:
        """Events above `after` that are safe to show; None when memory does not reach back so far."""
        if after < self._ring_after:
            return None
        return self._ring[bisect_right(self._ring, after, key=_position) :]

    def changed(self) -> asyncio.Future[None]:
        """Done when there is more to read."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Keep a waiter of `changed` no longer."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)


def _position(event: SessionEvent) -> int:
    return event.event.position


class LiveSessions:
    """The sessions in use; one is forgotten when nobody holds it any more."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._live: WeakValueDictionary[tuple[str, str], LiveSession] = WeakValueDictionary()
        self._is_closing = False

    def end(self) -> None:
        """Nothing comes any more in any session: their readers end."""
        self._is_closing = True
        for live in list(self._live.values()):
            live.end()

    def get(self, owner: str, session_id: str) -> LiveSession:
        """The session's place in this process. Hold the object as long as it is used."""
        live = self._live.get((owner, session_id))
        if live is None:
            live = self._live[(owner, session_id)] = LiveSession(is_closing=self._is_closing)
        return live

    async def positions(self, owner: str, session_id: str, live: LiveSession) -> Positions:
        """The counter, set from the store on first use."""
        if live.positions is None:
            last = await self._log.last_position(owner, session_id)
            if live.positions is None:
                live.positions = Positions(last + 1)
        return live.positions


class SessionReader:
    """Follows all runs of a session from a position, each event once, in order. Close it."""

    def __init__(
        self,
        log: EventLog,
        live: LiveSession,
        *,
        owner: str,
        session_id: str,
        after: int,
        page_events: int,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.cursor = after
        self._log = log
        self._live = live
        self._owner = owner
        self._session_id = session_id
        self._page_events = page_events
        self._on_close = on_close
        self._woken: asyncio.Future[None] | None = None
        self._is_woken = False
        self._is_open = True
        self._life = live.life
        live.add_reader()

    @property
    def is_deleted(self) -> bool:
        """Whether the session is gone."""
        return self._live.life != self._life

    async def read(self) -> list[SessionEvent] | None:
        """The next events; empty when the session is deleted or the server ends, None when `wake` was called.

        Raises:
            StorageError: the log cannot be read.
        """
        live = self._live
        while not self.is_deleted:
            events = live.read(self.cursor)
            if events is None:
                safe = live.safe_position
                page = await self._log.session_events(
                    self._owner, self._session_id, after=self.cursor, limit=self._page_events
                )
                events = [found for found in page if found.event.position <= safe]
                if not events:
                    # Nothing is stored between here and what memory has.
                    self.cursor = max(self.cursor, safe)
                    continue
            if events:
                self.cursor = events[-1].event.position
                return events
            if live.is_closing:
                return []
            if self._is_woken:
                self._is_woken = False
                return None
            self._woken = live.changed()
            await self._woken
            if self._is_woken:
                live.forget(self._woken)
            self._woken = None
        return []

    def wake(self) -> None:
        """Let `read` return None instead of waiting, now or the next time."""
        self._is_woken = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def close(self) -> None:
        """Stop following."""
        if self._is_open:
            self._is_open = False
            if self._woken is not None:
                self._live.forget(self._woken)
            self._live.drop_reader()
            self._on_close()


async def oldest_cursor(store: Store, owner: str, session_id: str, after: int) -> int:
    """The oldest position from which on all events of the session are kept, as far as it is above `after`.

    A compacted run keeps its last event; what is complete begins after the newest of those.
    """
    oldest, before = after, None
    while True:
        runs = await store.runs(owner, session_id=session_id, limit=_PAGE_RUNS, before=before)
        for run in runs:
            if run.compacted:
                last = await store.events(owner, run.id, after=run.last_seq - 1, limit=1)
                oldest = max([oldest, *(event.position for event in last)])
        # Runs of a session follow each other, but for those of parallel branches.
        if len(runs) < _PAGE_RUNS or any(run.compacted and run.first_position <= after for run in runs):
            return oldest
        before = runs[-1].id
