"""A server of one scripted agent, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.behaviour.control import Control
from tests.behaviour.site import Site


@pytest.fixture(params=["memory", "sqlite"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    """A server on a database of each kind."""
    site = Site(request.param, tmp_path)
    await site.open()
    yield site
    await site.close()


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Site]:
    """A server in memory only, for what does not depend on the store."""
    site = Site("memory", tmp_path)
    await site.open()
    yield site
    await site.close()


@pytest.fixture(params=["memory", "sqlite"])
async def control(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Control]:
    """A server with an agent that can everything, on a database of each kind."""
    site = Control(request.param, tmp_path)
    await site.open()
    yield site
    await site.close()


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Control]:
    """The same in memory only, for what does not depend on the store."""
    site = Control("memory", tmp_path)
    await site.open()
    yield site
    await site.close()
