"""A few threads that read, each on a read-only connection of its own.

Rule: what is asked in one call is read in one transaction, so it sees one state of the database; and it is short, so that the
write-ahead log can be taken back.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, local
from typing import TypeVar

from runstone.errors import RunstoneError, StorageUnavailable
from runstone.storage.sqlite.connection import Place, storage_error

T = TypeVar("T")


class Readers:
    """Runs functions that read."""

    def __init__(self, place: Place, *, threads: int) -> None:
        self._place = place
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="runstone-reader")
        self._own = local()
        self._lock = Lock()
        self._open: set[sqlite3.Connection] = set()
        self._is_closed = False

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """What `query` gives.

        Raises:
            StorageUnavailable, StorageError: the database failed.
        """
        if self._is_closed:
            raise StorageUnavailable("The store is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, query)

    async def close(self) -> None:
        """Let the reads that go on end, and close the connections."""
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._open:
            connection.close()
        self._open.clear()

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._connection()
            connection.execute("BEGIN")
            result = query(connection)
            connection.execute("COMMIT")
        except RunstoneError:
            self._end()
            raise
        except Exception as e:
            self._give_up()
            if isinstance(e, sqlite3.Error | OSError | UnicodeEncodeError | OverflowError):
                raise storage_error(e) from e
            raise
        return result

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            self._own.connection = connection = self._place.connect("ro")
            with self._lock:
                self._open.add(connection)
        return connection

    def _end(self) -> None:
        """End the transaction of a query that refused."""
        try:
            self._connection().execute("ROLLBACK")
        except sqlite3.Error:
            self._give_up()

    def _give_up(self) -> None:
        """Close this thread's connection; the next read opens another."""
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is not None:
            self._own.connection = None
            with self._lock:
                self._open.discard(connection)
            connection.close()
