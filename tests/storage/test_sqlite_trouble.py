"""What can go wrong around one SQLite file, and that nothing acknowledged is lost by it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runstone.errors import ConfigError, StorageError, StorageUnavailable
from runstone.storage.sqlite import SqliteStore
from tests.storage.builders import OWNER, a_row, a_run, a_session, an_append, deltas, ended, message, start

CHILDREN = Path(__file__).parent / "children"


@contextmanager
def child(name: str, database: Path) -> Iterator[subprocess.Popen[str]]:
    """One of the programs in `children`, at work on the database; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, str(CHILDREN / f"{name}.py"), str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that the child says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    """Let the child go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def files_in(folder: Path) -> list[Path]:
    """Everything in a folder."""
    return list(folder.iterdir())


async def test_a_second_server_is_refused(sqlite: SqliteStore, tmp_path: Path) -> None:
    """It does not start, and names the process that holds the database; when that one is gone it starts."""
    second = SqliteStore(tmp_path / "runs.db")
    with pytest.raises(ConfigError, match=str(os.getpid())):
        await second.open()
    await sqlite.close()
    await second.open()
    await start(second)
    await second.close()


async def test_another_name_of_the_file_is_the_same_database(sqlite: SqliteStore, tmp_path: Path) -> None:
    """A second server that is led to the file by a link does not start either."""
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "runs.db")
    with pytest.raises(ConfigError, match=str(os.getpid())):
        await SqliteStore(link).open()


async def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    """After `kill -9` every event that was acknowledged is there, none is there twice, and the numbering goes on."""
    with child("appender", tmp_path / "runs.db") as process:
        for _ in range(300):
            acknowledged = int(line(process))
        process.kill()
        assert process.stdout is not None
        rest = process.stdout.read().split("\n")[:-1]
    acknowledged = max([acknowledged, *map(int, rest)])
    store = SqliteStore(tmp_path / "runs.db")
    await store.open()
    seqs = [event.seq for event in await store.events(OWNER, "r1", after=0, limit=1_000_000)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert seqs[-1] >= acknowledged
    assert await store.last_position(OWNER, "s1") == seqs[-1]
    await store.append(an_append(a_run(), deltas(seqs[-1] + 1, 1)))
    assert [run.id for run in await store.unfinished()] == ["r1"]
    await store.close()


async def test_a_short_lock_by_another_process_is_waited_for(sqlite: SqliteStore, tmp_path: Path) -> None:
    """o-sto-02: fifty runs append while another process writes; all of it is stored when that one is ready."""
    runs = [await start(sqlite, f"r{n}", f"s{n}") for n in range(50)]
    with child("locker", tmp_path / "runs.db") as process:
        assert line(process) == "locked"
        appends = [sqlite.append(an_append(run, deltas(seq, 1))) for seq in (2, 3) for run in runs]
        reads = await asyncio.gather(*(sqlite.last_seq(OWNER, run.id) for run in runs))
        assert reads == [1] * 50
        assert not any(append.done() for append in appends)
        tell(process)
        await asyncio.gather(*appends)
    assert [await sqlite.last_seq(OWNER, run.id) for run in runs] == [3] * 50


async def test_a_long_lock_fails_what_waits_and_nothing_else(tmp_path: Path) -> None:
    """What could not be written in time is told to be unavailable, is not there, and may be tried again."""
    store = SqliteStore(tmp_path / "runs.db", busy_timeout=0.05)
    await store.open()
    runs = [await start(store, f"r{n}", f"s{n}") for n in range(50)]
    await asyncio.gather(*(store.append(an_append(run, deltas(2, 2))) for run in runs))
    with child("locker", tmp_path / "runs.db") as process:
        assert line(process) == "locked"
        batches = [an_append(run, deltas(4, 2)) for run in runs]
        results = await asyncio.gather(*map(store.append, batches), return_exceptions=True)
        assert {type(result) for result in results} == {StorageUnavailable}
        with pytest.raises(StorageUnavailable):
            await start(store, "new", "new")
        with pytest.raises(StorageUnavailable):
            await store.check()
        assert await store.last_seq(OWNER, "r0") == 3
        tell(process)
        assert line(process) == "free"
    await store.check()
    await asyncio.gather(*map(store.append, batches))
    assert [len(await store.events(OWNER, run.id, after=0, limit=99)) for run in runs] == [5] * 50
    await store.close()


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    """What does not fit is unavailable; once there is room the same append works, and the log has no gap."""
    with child("filler", tmp_path / "runs.db") as process:
        assert line(process) == "full: The database cannot be used now: the disk failed."
        assert line(process) == "ok"


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_file_that_was_taken_away_takes_no_writes(
    sqlite: SqliteStore, tmp_path: Path, is_replaced: bool
) -> None:
    """Nothing is acknowledged that lies in a file which nobody will find; when it is back the store works again."""
    run = await start(sqlite)
    path, aside = tmp_path / "runs.db", tmp_path / "aside"
    path.rename(aside)
    if is_replaced:
        path.write_bytes(b"")
    with pytest.raises(StorageUnavailable):
        await sqlite.check()
    with pytest.raises(StorageUnavailable):
        await sqlite.append(an_append(run, deltas(2, 1)))
    aside.replace(path)
    await sqlite.append(an_append(run, deltas(2, 1)))
    await sqlite.check()


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """Opening fails as unavailable, names no path, and works when the folder can be made."""
    folder = tmp_path / "folder"
    folder.write_text("in the way")
    store = SqliteStore(folder / "runs.db")
    with pytest.raises(StorageUnavailable) as refused:
        await store.open()
    assert str(tmp_path) not in refused.value.message
    folder.unlink()
    await store.open()
    await start(store)
    await store.close()


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    """Opening it fails in our words and lets the lock go."""
    path = tmp_path / "runs.db"
    path.write_bytes(b"not a database, but long enough to be taken for one " * 100)
    for _ in range(2):
        with pytest.raises(StorageError) as refused:
            await SqliteStore(path).open()
        assert not isinstance(refused.value, StorageUnavailable)
        assert str(tmp_path) not in refused.value.message


async def test_a_database_that_vanished_is_unavailable(sqlite: SqliteStore, tmp_path: Path) -> None:
    """A reader that cannot open the file says so, instead of finding nothing."""
    for path in files_in(tmp_path):
        path.unlink()
    with pytest.raises(StorageUnavailable):
        await sqlite.run(OWNER, "r1")


async def test_a_closed_store_does_what_waits_and_then_nothing(sqlite: SqliteStore) -> None:
    """Closing waits for what was handed over; later calls are unavailable, and closing again does no harm."""
    run = await start(sqlite)
    appends = [sqlite.append(an_append(run, deltas(seq, 1))) for seq in range(2, 100)]
    await sqlite.close()
    await asyncio.gather(*appends)
    with pytest.raises(StorageUnavailable):
        await sqlite.append(an_append(run, deltas(100, 1)))
    with pytest.raises(StorageUnavailable):
        await sqlite.run(OWNER, "r1")
    await sqlite.close()


async def test_a_closed_store_is_one_file(sqlite: SqliteStore, tmp_path: Path) -> None:
    """Nothing but the database and the empty hull of its lock is left, so it can be copied."""
    await start(sqlite)
    await sqlite.run(OWNER, "r1")
    await sqlite.close()
    assert sorted(path.name for path in files_in(tmp_path)) == ["runs.db", "runs.db.lock"]


async def test_a_command_line_reader_reads_beside_the_server(sqlite: SqliteStore, tmp_path: Path) -> None:
    """Without a lock, while the server writes, also what is not folded yet; and it writes nothing."""
    run = await start(sqlite)
    await sqlite.append(an_append(run, deltas(2, 1)))
    reader = SqliteStore(tmp_path / "runs.db", read_only=True)
    await reader.open()
    assert await reader.last_seq(OWNER, "r1") == 2
    await sqlite.append(an_append(run, deltas(3, 1)))
    assert [event.seq for event in await reader.events(OWNER, "r1", after=0, limit=9)] == [1, 2, 3]
    with pytest.raises(StorageError):
        await reader.append(an_append(run, deltas(4, 1)))
    with pytest.raises(StorageError):
        await reader.create_session(a_session("new"), [])
    await reader.close()


async def test_a_reader_needs_a_database(tmp_path: Path) -> None:
    """Reading makes no file."""
    with pytest.raises(ConfigError):
        await SqliteStore(tmp_path / "runs.db", read_only=True).open()
    assert files_in(tmp_path) == []


async def test_deleted_runs_leave_no_bytes_in_the_tables(sqlite: SqliteStore, tmp_path: Path) -> None:
    """After a deletion has returned, no table holds anything of the run or the session."""
    for n in range(3):
        run = await start(sqlite, f"r{n}", f"s{n}")
        await asyncio.gather(*(sqlite.append(an_append(run, deltas(seq, 1))) for seq in range(2, 1000)))
        await sqlite.add_rows(OWNER, f"s{n}", [a_row(2000, message("c", "x"))])
        if n:
            await sqlite.append(ended(run, 1000))
    await sqlite.delete_session(OWNER, "s0")
    await sqlite.delete_session(OWNER, "s1")
    await sqlite.delete_run(OWNER, "r2", keep_record=True)
    connection = sqlite3.connect(tmp_path / "runs.db")
    counts = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("sessions", "runs", "tail", "stretches", "discarded", "history", "idempotency")
    }
    connection.close()
    # The record of r2, its session, and the row that a client put there.
    assert {table: count for table, count in counts.items() if count} == {"sessions": 1, "runs": 1, "history": 1}
