"""Servers and clients. Official clients run against a server that is told the dialect, and one that finds it out."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.interop import agents
from tests.interop.serving import NodeMissing, install_node_packages, running

#: So small that silent agents are heard of several times.
PING_AFTER = 0.2


@pytest.fixture(scope="session", params=["openai", "auto"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of all agents."""
    names = [agent.__name__ for agent in agents.ALL]
    settings = (f"responses.dialect={request.param}", f"server.ping_after={PING_AFTER}")
    with running(tmp_path_factory.mktemp("server"), names, *settings) as address:
        yield address


@pytest.fixture
def client(server: str) -> Iterator[OpenAI]:
    """The official Python client, as it comes."""
    with OpenAI(base_url=f"{server}/v1", api_key="none") as client:
        yield client


@pytest.fixture
async def async_client(server: str) -> AsyncIterator[AsyncOpenAI]:
    """The official Python client for async code."""
    async with AsyncOpenAI(base_url=f"{server}/v1", api_key="none") as client:
        yield client


@pytest.fixture(scope="session")
def node() -> None:
    """The packages are there; without them a laptop skips, and CI fails."""
    try:
        install_node_packages()
    except NodeMissing as e:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"the Node packages cannot be installed: {e}")
