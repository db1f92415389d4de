"""Connections to one file, and SQLite's errors in our words."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final, Literal

import msgspec

from runstone.errors import AppendConflict, ConfigError, NotStorable, StorageError, StorageUnavailable

Synchronous = Literal["NORMAL", "FULL"]
OLDEST_SQLITE: Final = (3, 35, 0)
#: Primary result codes that say nothing about the data: another try may work.
_PASSING: Final = {
    sqlite3.SQLITE_PERM: "no permission",
    sqlite3.SQLITE_BUSY: "locked by another process",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_INTERRUPT: "interrupted",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_PROTOCOL: "locked",
}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the database is and how it is opened. Times in seconds."""

    path: Path
    synchronous: Synchronous = "NORMAL"
    busy_timeout: float = 2.0

    def connect(self, mode: Literal["ro", "rw", "rwc"]) -> sqlite3.Connection:
        """A connection without implicit transactions, usable from any one thread at a time."""
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self.busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            if mode == "ro":
                connection.execute("PRAGMA query_only = 1")
            else:
                self._prepare_for_writing(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare_for_writing(self, connection: sqlite3.Connection) -> None:
        (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if journal != "wal":
            raise ConfigError(
                "The database's file system cannot share memory, which SQLite's WAL needs.", option="database"
            )
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        # A checkpoint syncs the disk inside a commit: rarer than SQLite's own 1,000 pages, at most 16 MB behind.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute(f"PRAGMA journal_size_limit = {64 << 20}")


class SameFile:
    """Sees that a path still leads to the file that it led to first: an open connection goes on writing to one that is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: tuple[int, int] | None = None

    def check(self) -> None:
        """Look.

        Raises:
            StorageUnavailable: the file was taken away, or another lies in its place.
        """
        try:
            found = self._path.stat()
        except OSError as e:
            raise StorageUnavailable("The database cannot be used now: its file is gone.") from e
        here = found.st_dev, found.st_ino
        if self._first is None:
            self._first = here
        elif here != self._first:
            raise StorageUnavailable("The database cannot be used: another file lies in its place.")


def check_version() -> None:
    """Refuse an SQLite that lacks what the queries use.

    Raises:
        ConfigError: it is older than `OLDEST_SQLITE`.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old; expected {oldest} or newer.", option="database")


def is_passing(error: Exception) -> bool:
    """Whether `error` speaks of the disk or of other processes, not of the data."""
    return isinstance(error, sqlite3.Error) and _primary_code(error) in _PASSING


def is_full(error: Exception) -> bool:
    """Whether there was no room, on the disk or in a quota: less to write may still fit."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return isinstance(error, sqlite3.Error) and code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)


def storage_error(error: Exception) -> StorageError:
    """What a caller is told instead of `error`; without paths, SQL or data."""
    match error:
        case StorageError():
            return error
        case UnicodeEncodeError() | OverflowError() | sqlite3.DataError() | sqlite3.InterfaceError():
            return NotStorable("A value cannot be stored in the database.")
        case sqlite3.IntegrityError():
            return AppendConflict("A place in the log or in the history is taken.")
        case sqlite3.ProgrammingError():
            return StorageUnavailable("The database is closed.")
        case sqlite3.Error() if (word := _PASSING.get(_primary_code(error))) is not None:
            return StorageUnavailable(f"The database cannot be used now: {word}.")
        case OSError():
            return StorageUnavailable("The database cannot be used now: the disk failed.")
        case _:
            return StorageError("The database failed.")


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
