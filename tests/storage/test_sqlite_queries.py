"""Schema, migrations and the cost of queries of the SQLite store; cost is counted in steps of its machine, not in time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runstone.core.transcript import RowChange
from runstone.errors import ConfigError
from runstone.storage.sql import migrations
from runstone.storage.sqlite import SqliteStore, log, reads
from runstone.storage.sqlite.migrate import statements
from tests.storage.builders import OWNER, a_row, a_session, an_append, answered, deltas, ended, message, start


@pytest.mark.parametrize("version", range(len(migrations("sqlite")) + 1))
async def test_every_version_is_brought_to_the_newest(tmp_path: Path, version: int) -> None:
    """A database of any earlier version opens and works, and opens again."""
    connection = sqlite3.connect(tmp_path / "runs.db")
    for step in migrations("sqlite")[:version]:
        for statement in statements(step.script):
            connection.execute(statement)
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        connection.execute("INSERT INTO migrations VALUES (?, ?)", (step.number, step.name))
    connection.commit()
    connection.close()
    for n in range(2):
        store = SqliteStore(tmp_path / "runs.db")
        await store.open()
        await start(store, f"r{n}", f"s{n}")
        await store.close()


def test_migrations_are_numbered_without_gaps() -> None:
    """1, 2, 3 ..., or one would be left out."""
    assert [step.number for step in migrations("sqlite")] == list(range(1, len(migrations("sqlite")) + 1))


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_newer_database_is_refused(tmp_path: Path, read_only: bool) -> None:
    """Nothing is done to it, and the lock is let go."""
    store = SqliteStore(tmp_path / "runs.db")
    await store.open()
    await store.close()
    connection = sqlite3.connect(tmp_path / "runs.db")
    connection.execute("INSERT INTO migrations VALUES (999, 'from the future')")
    connection.commit()
    connection.close()
    for _ in range(2):
        with pytest.raises(ConfigError, match="999"):
            await SqliteStore(tmp_path / "runs.db", read_only=read_only).open()


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    """Its tables are not touched."""
    connection = sqlite3.connect(tmp_path / "runs.db")
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(ConfigError, match="another program"):
        await SqliteStore(tmp_path / "runs.db").open()


def steps_of(path: Path, query: Callable[[sqlite3.Connection], Any]) -> int:
    """How many instructions of SQLite's machine the query takes."""
    connection = sqlite3.connect(path)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1)
    query(connection)
    connection.close()
    return steps


async def test_a_page_of_history_costs_the_same_in_a_long_session(sqlite: SqliteStore, tmp_path: Path) -> None:
    """The newest 50 rows, or 50 rows in the middle, of 100 and of 10,000, also when most of the rows are hidden."""
    for name, rows in (("short", 100), ("long", 10_000)):
        await sqlite.create_session(a_session(name), [])
        hidden = await answered(sqlite, f"{name}-hidden", first=1, head=None, text="x", session_id=name)
        run = await start(sqlite, name, name, position=4, head=hidden.id, continues=None)
        for first in range(2, rows + 2, 100):
            added = [a_row(seq + 3, message(f"i{seq}", "x"), run_id=name, seq=seq) for seq in range(first, first + 100)]
            await sqlite.append(an_append(run, deltas(first, 100, shift=3), changes=[RowChange(added=added)]))
    path = tmp_path / "runs.db"

    def page(name: str, before: tuple[int, int] | None) -> int:
        return steps_of(
            path,
            lambda db: reads.rows(db, OWNER, name, limit=50, before=before, after=None, newest_first=False),
        )

    assert page("long", None) == page("short", None)
    assert page("long", (80, 0)) == page("short", (80, 0))
    assert page("long", (5_000, 0)) == page("short", (80, 0))


async def test_a_page_of_events_costs_the_same_in_a_long_run(sqlite: SqliteStore, tmp_path: Path) -> None:
    """Ten events at the end of 1,000 and of 100,000, by seq; by position it costs a few steps of halving more."""
    for name, count in (("short", 1_000), ("long", 100_000)):
        run = await start(sqlite, name, name)
        for first in range(2, count, 100):
            await sqlite.append(an_append(run, deltas(first, 100)))
        await sqlite.append(ended(run, count + 2 - count % 100))
    path = tmp_path / "runs.db"

    def by_seq(name: str, after: int) -> int:
        return steps_of(path, lambda db: log.events(db, OWNER, name, after, 10))

    def by_position(name: str, after: int) -> int:
        return steps_of(path, lambda db: log.session_events(db, OWNER, name, after, 10))

    assert by_seq("long", 99_950) <= by_seq("short", 950)
    assert by_position("long", 99_950) <= 3 * by_position("short", 950)


async def test_pages_of_a_long_run_are_complete(sqlite: SqliteStore) -> None:
    """100,000 events, read in pages of 1,000, are each there once."""
    run = await start(sqlite)
    for first in range(2, 100_002, 250):
        await sqlite.append(an_append(run, deltas(first, 250)))
    seqs: list[int] = []
    while page := await sqlite.events(OWNER, "r1", after=seqs[-1] if seqs else 0, limit=1_000):
        seqs += [event.seq for event in page]
    assert seqs == list(range(1, 100_002))


QUERIES: dict[str, Callable[[Any], Any]] = {
    "session": lambda db: reads.session(db, OWNER, "s1"),
    "run": lambda db: reads.run(db, OWNER, "r1"),
    "runs": lambda db: reads.runs(db, OWNER, session_id=None, statuses=None, turn=None, limit=9, before="r1"),
    "runs of a session": lambda db: reads.runs(
        db, OWNER, session_id="s1", statuses=None, turn=None, limit=9, before=None
    ),
    "runs of a turn": lambda db: reads.runs(db, OWNER, session_id="s1", statuses=None, turn="t", limit=9, before=None),
    "active runs": lambda db: reads.runs(
        db, OWNER, session_id=None, statuses=["running"], turn=None, limit=9, before=None
    ),
    "runs by id": lambda db: reads.runs_by_id(db, OWNER, ["r1", "r2"]),
    "ended": lambda db: reads.ended(db, True, 9.0, 9),
    "run rows": lambda db: reads.run_rows(db, OWNER, "r1"),
    "row": lambda db: reads.row(db, OWNER, "s1", None, "c1"),
    "rows after": lambda db: reads.rows(db, OWNER, "s1", limit=9, before=None, after=(1, 0), newest_first=False),
    "title": lambda db: reads.is_title_taken(db, OWNER, "T"),
    "file": lambda db: reads.file(db, OWNER, "f1"),
    "files": lambda db: reads.files(db, OWNER, limit=9, after=None, purpose=None, newest_first=True),
    "existing": lambda db: reads.existing(db.execute, OWNER, "f", run_id="r1", key="k", now=1.0),
    "events": lambda db: log.events(db, OWNER, "ended", 0, 9),
}


class Explaining:
    """A connection that notes the plan of every statement."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path)
        self.plan: list[str] = []

    def execute(self, query: str, values: Any = ()) -> sqlite3.Cursor:
        """Note the plan and run the statement."""
        self.plan += [row[3] for row in self.connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
        return self.connection.execute(query, values)


@pytest.mark.parametrize("name", list(QUERIES))
async def test_a_query_finds_its_rows_by_an_index(sqlite: SqliteStore, tmp_path: Path, name: str) -> None:
    """No statement looks through a table or sorts what it found."""
    await start(sqlite)
    await answered(sqlite, "ended", first=1, head=None, text="x", session_id="s2")
    db = Explaining(tmp_path / "runs.db")
    QUERIES[name](db)
    db.connection.close()
    assert db.plan
    assert [step for step in db.plan if step.startswith(("SCAN", "USE TEMP B-TREE"))] == []


async def test_the_list_of_sessions_is_found_in_its_index(sqlite: SqliteStore, tmp_path: Path) -> None:
    """With a search too, only the sessions on the page are looked up."""
    await sqlite.create_session(a_session(title="T"), [])
    for search, agent in ((None, None), ("t", None), ("t", "bot")):
        db = Explaining(tmp_path / "runs.db")
        assert len(reads.sessions(db, OWNER, 9, 0, search, agent)) == 1  # type: ignore[arg-type]
        db.connection.close()
        assert any("COVERING INDEX sessions_listed (owner=? AND hidden=?)" in step for step in db.plan)
        assert not any(step.startswith("SCAN") for step in db.plan)
