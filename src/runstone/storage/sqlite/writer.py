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
from runstone.storage.sqlite.connection import Place, SameFile, is_full, is_passing, storage_error
from runstone.storage.sqlite.ledger import Ledger

Job = Callable[[Ledger], Any]
Waiting = tuple["asyncio.Future[Any]", Append | Job]
Settled = tuple["asyncio.Future[Any]", Any, BaseException | None]
_log: Final = logging.getLogger(__name__)


class Pace:
    """How long to wait before the next commit.

    A run has one job under way at a time, so a commit of many jobs is one of many runs. The more runs write at once, the
    further apart commits stay: a job that waits shares its commit, its wake-up and its write to the network with others, so the
    wait costs it some milliseconds and saves the machine most of its work. A few runs never wait.
    """

    PER_JOB: Final = 0.0002
    FEW: Final = 4.0

    def __init__(self, *, longest: float) -> None:
        self._longest = longest
        self._crowd = 0.0

    def wait(self, *, jobs: int, since_last: float) -> float:
        """Seconds to wait, after a commit of `jobs` that was sent `since_last` seconds ago."""
        # What the average job sees, not the average commit: bursts count for as much as they hold.
        self._crowd += (jobs - self._crowd) * min(jobs * 0.02, 1.0)
        if self._crowd < self.FEW:
            return 0.0
        return max(min(self._crowd * self.PER_JOB, self._longest) - since_last, 0.0)


class Writer:
    """Writes what it is given, in the order of the calls. Every job is done or refused alone.

    What comes in while a commit is under way waits on the loop's side and goes to the thread as one batch.
    """

    def __init__(self, place: Place, loop: asyncio.AbstractEventLoop, *, longest_wait: float) -> None:
        self._place = place
        self._loop = loop
        self._pace = Pace(longest=longest_wait)
        self._batches: SimpleQueue[list[Waiting] | None] = SimpleQueue()
        self._waiting: list[Waiting] = []
        self._is_busy = False
        self._sent_at = 0.0
        self._connection: sqlite3.Connection | None = None
        self._ledger: Ledger | None = None
        self.file = SameFile(place.path)
        self._is_closed = False
        #: Whether the last commit was refused by the disk or by other processes.
        self.is_failing = False
        self._thread = Thread(target=self._run, name="runstone-writer", daemon=True)
        self._thread.start()

    # On the event loop's thread --------------------------------------------------------------------------------------

    def submit(self, job: Append | Job) -> asyncio.Future[Any]:
        """Have the job done; the future has its result when it is durable."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._is_closed:
            future.set_exception(StorageUnavailable("The store is closed."))
            return future
        self._waiting.append((future, job))
        if not self._is_busy:
            self._is_busy = True
            # What else happens in this round of the loop comes along.
            self._loop.call_soon(self._send)
        return future

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        if batch:
            self._sent_at = time.monotonic()
            self._batches.put(batch)

    def _settled(self, settled: list[Settled]) -> None:
        """Tell the results, and send what came in meanwhile. Who does not wait any more is not told."""
        wait = self._pace.wait(jobs=len(settled), since_last=time.monotonic() - self._sent_at)
        for future, result, error in settled:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if self._is_closed:
            return
        if wait > 0:
            self._loop.call_later(wait, self._send_or_rest)
        else:
            # After the tasks that were just told had their turn: what they write next goes along.
            self._loop.call_soon(self._send_or_rest)

    def _send_or_rest(self) -> None:
        if self._waiting:
            self._send()
        else:
            self._is_busy = False

    async def close(self) -> None:
        """Do what waits, and stop."""
        if not self._is_closed:
            self._is_closed = True
            self._send()
            self._batches.put(None)
        await asyncio.to_thread(self._thread.join)

    # On the writer's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (jobs := self._batches.get()) is not None:
            self._tell(self._commit(jobs))
        self._disconnect()

    def _tell(self, settled: list[Settled]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settled, settled)
        except RuntimeError:  # the loop was closed before the store: nobody waits any more
            _log.warning("The event loop was closed while the store was still writing.")

    def _commit(self, jobs: list[Waiting]) -> list[Settled]:
        try:
            settled = self._together(jobs)
        except Exception as e:  # a job's mistake or the database's failure; either is told to those who wait
            self._roll_back()
            self.is_failing = is_passing(e) or isinstance(e, OSError | StorageUnavailable)
            if not is_full(e) and (self.is_failing or isinstance(e, RunstoneError)):
                return [(future, None, storage_error(e)) for future, _ in jobs]
            if len(jobs) == 1:
                return [(jobs[0][0], None, _told(e))]
        else:
            self.is_failing = False
            return settled
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
        self.file.check()
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


def _told(error: Exception) -> Exception:
    """What the one who asked is told: our word for the database's errors, his own mistakes as they are."""
    is_foreign = isinstance(error, sqlite3.Error | UnicodeEncodeError | OverflowError)
    return storage_error(error) if is_foreign else error
