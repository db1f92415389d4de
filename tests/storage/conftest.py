"""Every backend that must keep the contract; one line each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runstone.storage.base import Store
from runstone.storage.memory import MemoryStore
from runstone.storage.sqlite import SqliteStore

BACKENDS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "runs.db", longest_wait=0.0),
}


@pytest.fixture(params=list(BACKENDS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An open, empty store of each backend."""
    opened = BACKENDS[request.param](tmp_path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open, empty SQLite store, at `tmp_path / "runs.db"`."""
    opened = SqliteStore(tmp_path / "runs.db", longest_wait=0.0)
    await opened.open()
    yield opened
    await opened.close()
