"""The writing thread: pace, and jobs that go wrong."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runstone.errors import StorageUnavailable
from runstone.storage.sqlite import SqliteStore
from runstone.storage.sqlite.connection import Place
from runstone.storage.sqlite.ledger import OPEN_LOGS, TAIL_ROWS, Ledger
from runstone.storage.sqlite.writer import Pace, Writer
from tests.storage.builders import OWNER, a_run, an_append, deltas, start


def test_a_few_runs_never_wait_and_a_crowd_shares_commits() -> None:
    """Commits of few jobs are never held up; the more jobs they have, the further apart they stay, up to a limit."""
    pace = Pace(longest=0.04)
    assert [pace.wait(jobs=3, since_last=0.0) for _ in range(500)] == [0.0] * 500
    some = [pace.wait(jobs=50, since_last=0.001) for _ in range(50)]
    assert some[-1] == pytest.approx(0.009, rel=0.01)
    many = [pace.wait(jobs=900, since_last=0.001) for _ in range(50)]
    assert many[-1] == pytest.approx(0.039)
    assert pace.wait(jobs=900, since_last=0.1) == 0.0
    calm = [pace.wait(jobs=1, since_last=0.0) for _ in range(500)]
    assert calm[-1] == 0.0


async def test_a_long_tail_is_folded(sqlite: SqliteStore, tmp_path: Path) -> None:
    """However many runs say little for a long time, the tail that readers look through stays short, and no event is lost."""
    runs = [await start(sqlite, f"r{n}", f"s{n}") for n in range(60)]
    for first in range(2, 202, 10):
        appends = [sqlite.append(an_append(run, deltas(seq, 1))) for seq in range(first, first + 10) for run in runs]
        await asyncio.gather(*appends)
    connection = sqlite3.connect(tmp_path / "runs.db")
    (rows,) = connection.execute("SELECT count(*) FROM tail").fetchone()
    connection.close()
    assert rows <= TAIL_ROWS < 60 * 200
    for run in runs:
        assert [event.seq for event in await sqlite.events(OWNER, run.id, after=0, limit=999)] == list(range(1, 202))


@pytest.mark.slow
async def test_more_runs_than_the_writer_remembers(sqlite: SqliteStore) -> None:
    """Runs that were forgotten are looked up again, and their numbering goes on."""
    for first in range(0, OPEN_LOGS + 200, 200):
        await asyncio.gather(*(start(sqlite, f"r{n}", f"s{n}") for n in range(first, first + 200)))
    for seq in (2, 3):
        await asyncio.gather(*(sqlite.append(an_append(a_run(f"r{n}", f"s{n}"), deltas(seq, 1))) for n in range(300)))
    assert [await sqlite.last_seq(OWNER, f"r{n}") for n in (0, 299)] == [3, 3]


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[Writer]:
    """A writer on a database with the runs r0 to r4."""
    path = tmp_path / "other.db"
    store = SqliteStore(path)
    await store.open()
    for n in range(5):
        await start(store, f"r{n}", f"s{n}")
    await store.close()
    opened = Writer(Place(path=path), asyncio.get_running_loop(), longest_wait=0.0)
    yield opened
    await opened.close()


async def test_a_job_with_a_mistake_fails_alone(writer: Writer, tmp_path: Path) -> None:
    """What it had written is undone; appends before and behind it in the same commit are stored."""

    def mistaken(ledger: Ledger) -> None:
        ledger.execute("DELETE FROM stretches")
        ledger.execute("DELETE FROM tail")
        raise ZeroDivisionError

    runs = [a_run(f"r{n}", f"s{n}") for n in range(5)]
    before = [writer.submit(an_append(run, deltas(2, 2))) for run in runs]
    wrong = writer.submit(mistaken)
    behind = [writer.submit(an_append(run, deltas(4, 2))) for run in runs]
    with pytest.raises(ZeroDivisionError):
        await wrong
    await asyncio.gather(*before, *behind)
    store = SqliteStore(tmp_path / "other.db", read_only=True)
    await store.open()
    for run in runs:
        assert [event.seq for event in await store.events(OWNER, run.id, after=0, limit=9)] == [1, 2, 3, 4, 5]
    await store.close()


async def test_what_does_not_fit_takes_nothing_along(writer: Writer) -> None:
    """When there is no room for one run, others that write in the same moment go on, and so does it with less."""
    await writer.submit(lambda ledger: ledger.execute("PRAGMA max_page_count = 200").close())
    large = an_append(a_run("r1", "s1"), deltas(2, 1, text="x" * 2_000_000))
    others = [an_append(a_run(f"r{n}", f"s{n}"), deltas(2, 1)) for n in (0, 2)]
    appends = [writer.submit(job) for job in (others[0], large, others[1])]
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), StorageUnavailable, type(None)]
    assert not writer.is_failing
    await writer.submit(an_append(a_run("r1", "s1"), deltas(2, 1)))
