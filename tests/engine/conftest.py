"""The engine's tests run on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.support import World


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A database of each kind."""
    return World(request.param, tmp_path)


@pytest.fixture
def memory(tmp_path: Path) -> World:
    """A database in memory only, for what does not depend on the store."""
    return World("memory", tmp_path)
