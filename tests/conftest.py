"""What every test gets: one async backend, and property tests that repeat themselves in CI."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# A shared machine is slow at times; the timeout of the test is limit enough.
settings.register_profile("laptop", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "laptop")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asyncio: the engine is written on it. `async def` tests and fixtures need no mark (anyio_mode = auto)."""
    return "asyncio"
