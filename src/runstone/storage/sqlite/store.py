"""Records and log in one SQLite file, for one server."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from runstone.core.events import Event
from runstone.core.runs import Run, Session
from runstone.core.transcript import HistoryRow
from runstone.errors import ConfigError, NotFound, StorageError, StorageUnavailable
from runstone.storage.base import Append, Created, FileRecord, NewRun, SessionEvent
from runstone.storage.sqlite import log, reads, records
from runstone.storage.sqlite.connection import Place, Synchronous, check_version, storage_error
from runstone.storage.sqlite.ledger import Ledger
from runstone.storage.sqlite.lock import ServerLock
from runstone.storage.sqlite.migrate import check_readable, migrate
from runstone.storage.sqlite.readers import Readers
from runstone.storage.sqlite.writer import Writer

T = TypeVar("T")
READER_THREADS: Final = 4


class SqliteStore:
    """One file, one writing server, any number of readers.

    `synchronous`: with "NORMAL" what was acknowledged survives the end of the process, with "FULL" also that of the machine.
    `read_only`: for commands beside a running server; takes no lock, writes nothing, refuses writes.
    `busy_timeout`: seconds that a commit waits for another process before it fails.
    `longest_wait`: seconds that commits stay apart at most, while many runs write at once.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous = "NORMAL",
        read_only: bool = False,
        busy_timeout: float = 2.0,
        longest_wait: float = 0.04,
    ) -> None:
        self._place = Place(path=path, synchronous=synchronous, busy_timeout=busy_timeout)
        self._is_read_only = read_only
        self._longest_wait = longest_wait
        self._lock = ServerLock(path)
        self._writer: Writer | None = None
        self._readers: Readers | None = None

    async def open(self) -> None:
        check_version()
        await asyncio.to_thread(self._check if self._is_read_only else self._prepare)
        self._readers = Readers(self._place, threads=READER_THREADS)
        if not self._is_read_only:
            loop = asyncio.get_running_loop()
            self._writer = Writer(self._place, loop, longest_wait=self._longest_wait)
            await self._purge()

    async def close(self) -> None:
        # The last connection to close takes the write-ahead log back, which one that only reads cannot.
        if self._readers is not None:
            await self._readers.close()
        if self._writer is not None:
            await self._writer.close()
        self._lock.release()

    async def check(self) -> None:
        if self._writer is None:
            raise StorageUnavailable("The store is not open for writing.")
        self._writer.file.check()
        if self._writer.is_failing:
            # The header again, as it is: the least that can be written.
            await self._write(lambda ledger: ledger.execute("PRAGMA user_version = 0").close())

    def _prepare(self) -> None:
        """Become the server of this database and bring it to this program's version."""
        try:
            self._place.path.absolute().parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StorageUnavailable("The folder of the database cannot be made.") from e
        self._lock.take()
        try:
            self._once("rwc", migrate)
        except BaseException:
            self._lock.release()
            raise

    def _check(self) -> None:
        if not self._place.path.exists():
            raise ConfigError("There is no database yet: start a server first.", option="database")
        self._once("ro", check_readable)

    def _once(self, mode: str, use: Callable[[sqlite3.Connection], None]) -> None:
        try:
            connection = self._place.connect("ro" if mode == "ro" else "rwc")
            try:
                use(connection)
            finally:
                connection.close()
        except sqlite3.Error as e:
            raise storage_error(e) from e

    # Writes ----------------------------------------------------------------------------------------------------------

    def append(self, batch: Append) -> asyncio.Future[None]:
        return self._submit(batch)

    def _submit(self, job: Append | Callable[[Ledger], T]) -> asyncio.Future[T]:
        if self._writer is None:
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            future.set_exception(StorageError("The store is open for reading only, or not open."))
            return future
        return self._writer.submit(job)

    async def _write(self, job: Callable[[Ledger], T]) -> T:
        return await self._submit(job)

    async def _purge(self) -> None:
        """Take away what deleted runs left, in slices between which others write."""
        while await self._write(records.purge):
            pass

    async def create_session(self, session: Session, rows: list[HistoryRow]) -> None:
        await self._write(lambda ledger: records.create_session(ledger, session, rows))

    async def save_session(self, session: Session) -> None:
        await self._write(lambda ledger: records.save_session(ledger, session))

    async def delete_session(self, owner: str, session_id: str) -> bool:
        deleted = await self._write(lambda ledger: records.delete_session(ledger, owner, session_id))
        await self._purge()
        return deleted

    async def create_run(self, new: NewRun) -> Created:
        return await self._write(lambda ledger: records.create_run(ledger, new))

    async def save_run(self, run: Run) -> None:
        if not await self._write(lambda ledger: ledger.set_record(run)):
            raise NotFound("run", run.id)

    async def delete_run(self, owner: str, run_id: str, *, keep_record: bool = False) -> bool:
        deleted = await self._write(lambda ledger: records.delete_run(ledger, owner, run_id, keep_record=keep_record))
        await self._purge()
        return deleted

    async def add_rows(self, owner: str, session_id: str, rows: list[HistoryRow]) -> None:
        await self._write(lambda ledger: records.add_rows(ledger, owner, session_id, rows))

    async def delete_row(self, owner: str, session_id: str, *, position: int, ordinal: int) -> bool:
        return await self._write(lambda ledger: records.delete_row(ledger, owner, session_id, position, ordinal))

    async def create_file(self, record: FileRecord) -> None:
        await self._write(lambda ledger: records.create_file(ledger, record))

    async def delete_file(self, owner: str, file_id: str) -> bool:
        return await self._write(lambda ledger: records.delete_file(ledger, owner, file_id))

    async def compact(self, owner: str, run_id: str) -> int:
        removed = after = 0
        while (done := await self._compact_slice(owner, run_id, after)) is not None:
            after, gone = done
            removed += gone
        return removed

    async def _compact_slice(self, owner: str, run_id: str, after: int) -> tuple[int, int] | None:
        """Compact the stretches that begin after a seq: where the next slice begins, and how many events went."""
        found = await self._read(lambda db: log.compacted_slice(db, owner, run_id, after))
        if found is None:
            return None
        run, ids, stay, gone = found
        if gone and not await self._write(lambda ledger: log.rewrite(ledger, run, ids, stay)):
            return None
        return ids[-1] & 0xFFFFFFFF, gone

    # Reads -----------------------------------------------------------------------------------------------------------

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        if self._readers is None:
            raise StorageUnavailable("The store is not open.")
        return await self._readers.read(query)

    async def session(self, owner: str, session_id: str) -> Session | None:
        return await self._read(lambda db: reads.session(db, owner, session_id))

    async def sessions(
        self, owner: str, *, limit: int, offset: int = 0, search: str | None = None, agent: str | None = None
    ) -> list[Session]:
        return await self._read(lambda db: reads.sessions(db, owner, limit, offset, search, agent))

    async def is_title_taken(self, owner: str, title: str) -> bool:
        return await self._read(lambda db: reads.is_title_taken(db, owner, title))

    async def existing(
        self, owner: str, fingerprint: str, *, run_id: str | None, key: str | None, now: float
    ) -> Run | None:
        return await self._read(
            lambda db: reads.existing(db.execute, owner, fingerprint, run_id=run_id, key=key, now=now)
        )

    async def run(self, owner: str, run_id: str) -> Run | None:
        return await self._read(lambda db: reads.run(db, owner, run_id))

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
        return await self._read(
            lambda db: reads.runs(
                db, owner, session_id=session_id, statuses=statuses, turn=turn, limit=limit, before=before
            )
        )

    async def runs_by_id(self, owner: str, run_ids: list[str]) -> list[Run]:
        return await self._read(lambda db: reads.runs_by_id(db, owner, run_ids))

    async def unfinished(self) -> list[Run]:
        return await self._read(reads.unfinished)

    async def ended(self, *, stored: bool, before: float, limit: int) -> list[Run]:
        return await self._read(lambda db: reads.ended(db, stored, before, limit))

    async def chain(self, owner: str, run_id: str) -> list[Run]:
        return await self._read(lambda db: reads.chain(db, owner, run_id))

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
        return await self._read(
            lambda db: reads.rows(
                db, owner, session_id, limit=limit, before=before, after=after, newest_first=newest_first
            )
        )

    async def chain_rows(self, owner: str, session_id: str, run_id: str | None) -> list[HistoryRow]:
        return await self._read(lambda db: reads.chain_rows(db, owner, session_id, run_id))

    async def run_rows(self, owner: str, run_id: str) -> list[HistoryRow]:
        return await self._read(lambda db: reads.run_rows(db, owner, run_id))

    async def row(self, owner: str, session_id: str, *, run_id: str | None, item_id: str) -> HistoryRow | None:
        return await self._read(lambda db: reads.row(db, owner, session_id, run_id, item_id))

    async def file(self, owner: str, file_id: str) -> FileRecord | None:
        return await self._read(lambda db: reads.file(db, owner, file_id))

    async def files(
        self, owner: str, *, limit: int, after: str | None = None, purpose: str | None = None, newest_first: bool = True
    ) -> list[FileRecord]:
        return await self._read(
            lambda db: reads.files(db, owner, limit=limit, after=after, purpose=purpose, newest_first=newest_first)
        )

    async def events(self, owner: str, run_id: str, *, after: int, limit: int) -> list[Event]:
        return await self._read(lambda db: log.events(db, owner, run_id, after, limit))

    async def session_events(self, owner: str, session_id: str, *, after: int, limit: int) -> list[SessionEvent]:
        return await self._read(lambda db: log.session_events(db, owner, session_id, after, limit))

    async def last_seq(self, owner: str, run_id: str) -> int:
        return await self._read(lambda db: log.last_seq(db, owner, run_id))

    async def first_seq(self, owner: str, run_id: str) -> int:
        return await self._read(lambda db: log.first_seq(db, owner, run_id))

    async def last_position(self, owner: str, session_id: str) -> int:
        return await self._read(lambda db: log.last_position(db, owner, session_id))
