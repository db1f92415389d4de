"""One live run's log: bodies in, numbered durable events out, readers woken.

Order of things: lifecycle check, number, commit, then visible. Nothing that is not committed is ever shown to a reader.
One batch of a run is on its way to the store at a time; what comes meanwhile makes the next batch, so the slower the store
is, the larger the batches are.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from runstone.config import EngineConfig
from runstone.core.events import ArgumentsDelta, Body, Event, ReasoningDelta, TextDelta
from runstone.core.lifecycle import RunState
from runstone.core.runs import Run
from runstone.core.transcript import RowChange, row_change
from runstone.engine.scrub import clean_delta, scrubbed
from runstone.engine.sessions import LiveSession
from runstone.errors import AppendConflict, StorageError, StorageUnavailable
from runstone.storage.base import Append, EventLog

_log = logging.getLogger("runstone.engine")
_EVENT_OVERHEAD_BYTES: Final = 100
_DELTA_OF: Final[dict[type, str]] = {TextDelta: "message", ReasoningDelta: "reasoning", ArgumentsDelta: "tool_call"}


class _Stretch:
    """Events that were committed together."""

    __slots__ = ("events", "first", "size_bytes")

    def __init__(self, events: list[Event], size_bytes: int) -> None:
        self.events = events
        self.first = events[0].seq
        self.size_bytes = size_bytes


class Recording:
    """The log of one run while this process owns it."""

    def __init__(
        self,
        run: Run,
        *,
        log: EventLog,
        session: LiveSession,
        clock: Callable[[], float],
        config: EngineConfig,
        state: RunState,
        last_seq: int,
        last_at: float = 0.0,
        newest: list[Event] | None = None,
        soon: Callable[[Callable[[], None]], object],
        on_broken: Callable[[Recording], None] = lambda recording: None,
    ) -> None:
        self.run = run
        self.state = state
        self.committed = last_seq
        self.readers = 0
        self.broken: StorageError | None = None
        self.is_sealed = False
        #: This process does nothing more with the run: who follows it has to come again.
        self.is_left = False
        self.dropped = 0
        self.must_wait = False
        self._log = log
        assert session.positions is not None
        self.session = session
        self._positions = session.positions
        self._clock = clock
        self._at = max(run.created_at, last_at)
        self._on_broken = on_broken
        self._soon = soon
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._waited = 0.0
        self._paused_at = self._loop.time()
        self._next_seq = last_seq + 1
        self._pending: list[Event] = []
        self._pending_bytes = 0
        self._changes: list[RowChange] = []
        self._run_changed = False
        self._in_flight: Append | None = None
        self._in_flight_bytes = 0
        self._scheduled = False
        self._trouble_since: float | None = None
        self._ring: deque[_Stretch] = deque()
        self._ring_events = 0
        self._ring_bytes = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._slice = 0
        self._slice_limit = 1
        session.writing[run.id] = self
        if newest:
            self._keep(_Stretch(newest, _EVENT_OVERHEAD_BYTES * len(newest)))

    # -- writing

    def emit(self, body: Body) -> int:
        """Give `body` the next number; its seq. It becomes durable soon, then visible.

        After the run ended, or this process lost it, the body is counted and dropped, and 0 comes back.

        Raises:
            LocalProtocolError: it may not come here, or cannot be stored.
        """
        if self.is_sealed:
            self.dropped += 1
            self.must_wait = True
            return 0
        kind = type(body)
        delta_of = _DELTA_OF.get(kind)
        pending = self._pending
        if not pending:
            self.now()
        if delta_of is not None:
            size = _EVENT_OVERHEAD_BYTES + len(body.text)  # type: ignore[union-attr]
            if not body.text.isascii():  # type: ignore[union-attr]
                body = clean_delta(body)
            self.state.advance_delta(body.item_id, body.text, delta_of)  # type: ignore[union-attr]
        else:
            body, size = scrubbed(body)
            change = self._change_of(body)
            if change is not None:
                self._changes.append(change)
        seq = self._next_seq
        self._next_seq = seq + 1
        positions = self._positions
        position = positions.upcoming
        positions.upcoming = position + 1
        # The time is that of the batch: a look at the clock costs as much as all else that a delta needs here.
        pending.append(Event(seq, position, self._at, self.run.attempt, body))
        self._pending_bytes += size
        if not self._scheduled:
            self._schedule()
        self._slice += 1
        if self._slice >= self._slice_limit or self._pending_bytes > self._config.backlog_bytes:
            self.must_wait = True
        return seq

    def _change_of(self, body: Body) -> RowChange | None:
        draft = Event(self._next_seq, self._positions.upcoming, self.now(), self.run.attempt, body)
        change = row_change(self.run.id, draft, self.state)
        self.state.advance(body)
        return change

    @property
    def is_paused(self) -> bool:
        """Whether the run waits for people."""
        return self.state.phase == "paused"

    @property
    def active_time(self) -> float:
        """Seconds, from some moment on, in which the run did not wait for people."""
        now = self._loop.time()
        return now - self._waited - (now - self._paused_at if self.is_paused else 0.0)

    def note_pause(self) -> None:
        """The run begins to wait for people."""
        self._paused_at = self._loop.time()

    def note_continuation(self) -> None:
        """The run waited for people until now."""
        self._waited += self._loop.time() - self._paused_at

    def update(self, **fields: Any) -> Run:
        """Change the run's record; it is written with the next batch."""
        self.run = msgspec.structs.replace(self.run, **fields)
        self._run_changed = True
        if not self._scheduled:
            self._schedule()
        return self.run

    def now(self) -> float:
        """The time, as events are stamped with it: it never goes back within a run, whatever the machine's clock does."""
        at = self._clock()
        if at > self._at:
            self._at = at
        return self._at

    async def wait(self) -> None:
        """Let others run; return when the store is not far behind."""
        self.must_wait = False
        self._slice = 0
        self.now()
        # Small slices first, so that the first tokens of an answer leave at once; then larger ones, for throughput.
        self._slice_limit = min(self._slice_limit * 2, self._config.slice_events)
        await asyncio.sleep(0)
        while self._is_far_ahead and not self.is_sealed:
            await self.changed()

    @property
    def _is_far_ahead(self) -> bool:
        backlog = self._next_seq - 1 - self.committed
        return (
            backlog > self._config.backlog_events
            or self._pending_bytes + self._in_flight_bytes > self._config.backlog_bytes
        )

    def _schedule(self) -> None:
        self._scheduled = True
        self._soon(self._flush)

    def _flush(self) -> None:
        """Send what is pending. While a batch is on its way nothing is scheduled: its arrival sends the next."""
        self._scheduled = False
        if self._in_flight is not None or self.broken is not None or not (self._pending or self._run_changed):
            return
        events = self._pending
        self._in_flight_bytes, self._pending_bytes = self._pending_bytes, 0
        self._pending = []
        changes, self._changes = self._changes, []
        run = None
        if self._run_changed:
            self._run_changed = False
            self.run = run = msgspec.structs.replace(self.run, last_seq=self._next_seq - 1)
        owner = self.run
        self._in_flight = Append(
            owner=owner.owner,
            session_id=owner.session_id,
            run_id=owner.id,
            at=self.now(),
            events=events,
            changes=changes,
            run=run,
        )
        self._scheduled = True
        self._send()

    def _send(self) -> None:
        batch = self._in_flight
        if batch is None or self.broken is not None:
            return
        self._log.append(batch).add_done_callback(self._written)

    def _written(self, done: asyncio.Future[None]) -> None:
        error = done.exception() if not done.cancelled() else StorageUnavailable("The store was closed.")
        if error is not None:
            self._not_written(error)
            return
        batch = self._in_flight
        assert batch is not None
        self._in_flight = None
        self._scheduled = False
        self._trouble_since = None
        if batch.events:
            self._keep(_Stretch(batch.events, self._in_flight_bytes))
            self.committed = batch.events[-1].seq
            self.session.became_visible(self.run.id, batch.events)
        self._in_flight_bytes = 0
        self._wake()
        if (self._pending or self._run_changed) and not self._scheduled:
            self._flush()

    def _not_written(self, error: BaseException) -> None:
        now = self._loop.time()
        if self._trouble_since is None:
            self._trouble_since = now
            _log.warning("run %s: the store did not take a batch; trying again", self.run.id)
        if isinstance(error, StorageUnavailable) and now - self._trouble_since < self._config.storage_patience:
            self._loop.call_later(self._config.storage_retry_after, self._send)
            return
        _log.error("run %s: given up by the store: %s", self.run.id, error)
        self.broken = error if isinstance(error, StorageError) else StorageError("The store failed.")
        if not isinstance(error, (StorageUnavailable, AppendConflict)):
            _log.error("run %s: unexpected failure of the store", self.run.id, exc_info=error)
        self.is_sealed = True
        self._wake()
        self._on_broken(self)

    def seal(self) -> None:
        """Take nothing more: what comes later is counted and dropped."""
        self.is_sealed = True

    def leave(self) -> None:
        """The process ends; unless the run has ended, too, its readers are told so when they have read what is there."""
        self.is_left = self.state.ended is None
        self._wake()

    # -- reading

    @property
    def is_over(self) -> bool:
        """The run has its outcome and all its events are visible."""
        return self.state.ended is not None and self.committed == self._next_seq - 1

    @property
    def is_settled(self) -> bool:
        """Events and record are in the store, or never will be."""
        is_pending = self._run_changed or self._in_flight is not None or self.committed < self._next_seq - 1
        return self.broken is not None or not is_pending

    @property
    def last_seq(self) -> int:
        """The newest number given, visible or not."""
        return self._next_seq - 1

    @property
    def first_invisible(self) -> int | None:
        """The lowest position given to an event that is not visible yet; None when there is none."""
        if self.broken is not None:
            return None
        if self._in_flight is not None and self._in_flight.events:
            return self._in_flight.events[0].position
        return self._pending[0].position if self._pending else None

    def read(self, after: int) -> list[Event] | None:
        """Visible events with a seq above `after`; None when memory does not reach back so far."""
        if after >= self.committed:
            return []
        ring = self._ring
        if not ring or ring[0].first > after + 1:
            return None
        newest = ring[-1]
        if newest.first <= after + 1:
            return newest.events if newest.first == after + 1 else newest.events[after + 1 - newest.first :]
        # Backwards: a reader is mostly a few stretches behind, and the ring may hold thousands of short ones.
        newer: list[_Stretch] = []
        for stretch in reversed(ring):
            newer.append(stretch)
            if stretch.first <= after + 1:
                break
        oldest = newer.pop()
        found = oldest.events[after + 1 - oldest.first :]
        while newer and len(found) < self._config.page_events:
            found += newer.pop().events
        return found

    def changed(self) -> asyncio.Future[None]:
        """Done when more became visible, the record changed, or the recording broke. Await it without doing so in between."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Keep a waiter of `changed` no longer; an idle run would gather those that gave up."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    async def reached(self, seq: int) -> None:
        """Return when everything up to `seq` is visible.

        Raises:
            StorageError: the store gave up.
        """
        while self.committed < seq:
            if self.broken is not None:
                raise self.broken
            await self.changed()

    async def flushed(self) -> None:
        """Return when everything emitted so far, and the record, is durable.

        Raises:
            StorageError: the store gave up.
        """
        target = self._next_seq - 1
        while self.committed < target or self._run_changed or self._in_flight is not None:
            if self.broken is not None:
                raise self.broken
            await self.changed()
        if self.broken is not None:
            raise self.broken

    def _keep(self, stretch: _Stretch) -> None:
        ring = self._ring
        ring.append(stretch)
        self._ring_events += len(stretch.events)
        self._ring_bytes += stretch.size_bytes
        while len(ring) > 1 and (
            self._ring_events > self._config.ring_events or self._ring_bytes > self._config.ring_bytes
        ):
            gone = ring.popleft()
            self._ring_events -= len(gone.events)
            self._ring_bytes -= gone.size_bytes

    def _wake(self) -> None:
        waiters = self._waiters
        if waiters:
            self._waiters = []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
