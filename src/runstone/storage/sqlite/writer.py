"""One thread that writes: it takes all that waits, commits it at once, and tells the event loop once.

When it is idle it commits at once, so the first token is not held up; when much happens it waits a few milliseconds between
commits, so that many runs share one.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

from runstone.errors import RunstoneError, StorageUnavailable
from runstone.storage.base import Append
from runstone.storage.sqlite.connection import Place, is_passing, storage_error
from runstone.storage.sqlite.ledger import Ledger

Job = Callable[[Ledger], Any]
Waiting = tuple["asyncio.Future[Any]", Append | Job]
Settled = tuple["asyncio.Future[Any]", Any, BaseException | None]
_log: Final = logging.getLogger(__name__)


class Pace:
    """How often something may happen: `burst` times at once, and `per_second` in the long run."""

    def __init__(self, *, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._left = float(burst)
        self._seen = clock()

    def take(self) -> float:
        """Seconds to wait before the next time."""
        now = self._clock()
        self._left = min(self._left + (now - self._seen) * self._per_second, self._burst) - 1
        self._seen = now
        return max(-self._left / self._per_second, 0.0)


class Writer:
    """Writes what it is given, in the order of the calls. Every job is done or refused alone."""

    def __init__(self, place: Place, loop: asyncio.AbstractEventLoop, *, commits_per_second: float, burst: int) -> None:
        self._place = place
        self._loop = loop
        self._pace = Pace(per_second=commits_per_second, burst=burst)
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._ledger: Ledger | None = None
        self._is_closed = False
        self._thread = Thread(target=self._run, name="runstone-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Append | Job) -> asyncio.Future[Any]:
        """Have the job done; the future has its result when it is durable. For the event loop's thread only."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._is_closed:
            future.set_exception(StorageUnavailable("The store is closed."))
        else:
            self._queue.put((future, job))
        return future

    async def close(self) -> None:
        """Do what waits, and stop."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # On the writer's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_open = True
        while is_open:
            jobs = [self._queue.get()]
            if (wait := self._pace.take()) > 0 and jobs[0] is not None:
                time.sleep(wait)
            jobs += [self._queue.get_nowait() for _ in range(self._queue.qsize())]
            is_open = jobs[-1] is not None
            waiting = [job for job in jobs if job is not None]
            if waiting:
                self._tell(self._commit(waiting))
        self._disconnect()

    def _tell(self, settled: list[Settled]) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:  # the loop was closed before the store: nobody waits any more
            _log.warning("The event loop was closed while the store was still writing.")

    def _commit(self, jobs: list[Waiting]) -> list[Settled]:
        try:
            return self._together(jobs)
        except Exception as e:  # a job's mistake or the database's failure; either is told to those who wait
            self._roll_back()
            if is_passing(e) or isinstance(e, OSError | RunstoneError):
                return [(future, None, storage_error(e)) for future, _ in jobs]
            if len(jobs) == 1:
                return [(jobs[0][0], None, _told(e))]
        return [settled for job in jobs for settled in self._commit([job])]

    def _together(self, jobs: list[Waiting]) -> list[Settled]:
        """All jobs in one transaction; those that are refused leave no trace."""
        ledger = self._connected()
        settled: list[Settled] = []
        for future, job in jobs:
            try:
                if isinstance(job, Append):
                    ledger.append(job)
                    settled.append((future, None, None))
                else:
                    ledger.begin()
                    ledger.flush()
                    settled.append((future, job(ledger), None))
            except RunstoneError as e:
                settled.append((future, None, e))
        ledger.commit()
        return settled

    def _connected(self) -> Ledger:
        if self._ledger is None:
            self._connection = self._place.connect("rw")
            self._ledger = Ledger(self._connection)
        if not self._ledger.is_fresh:
            self._ledger.begin()
        return self._ledger

    def _roll_back(self) -> None:
        """Undo the transaction. A connection on which that fails is given up: the next commit opens another."""
        if self._ledger is not None:
            self._ledger.forget()
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as e:
            _log.warning("The database connection is given up: %s", e)
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection, self._ledger = self._connection, None, None
        if connection is not None:
            connection.close()


def _settle(settled: list[Settled]) -> None:
    """Tell the results, on the event loop's thread. Who does not wait any more is not told."""
    for future, result, error in settled:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _told(error: Exception) -> Exception:
    """What the one who asked is told: our word for the database's errors, his own mistakes as they are."""
    is_foreign = isinstance(error, sqlite3.Error | UnicodeEncodeError | OverflowError)
    return storage_error(error) if is_foreign else error
