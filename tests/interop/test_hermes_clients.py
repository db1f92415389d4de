"""Clients that were written for the Hermes agent, as they come, against the server."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from hermes_control_mcp.api import HermesAPIClient
from hermes_control_mcp.config import BridgeConfig
from hermes_control_mcp.registry import StateRegistry
from hermes_control_mcp.service import BridgeService

from tests.interop.serving import running

KEY = "sk-hermes-0123456789"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with keys."""
    folder = tmp_path_factory.mktemp("hermes")
    with running(folder, ["worker"], f'server.keys={{"{KEY}":"ann"}}', file="hermes_agents.py") as address:
        yield address


@pytest.fixture
def service(address: str) -> Iterator[Any]:
    """hermes-control-mcp: the functions that its MCP tools call."""
    registry = StateRegistry(":memory:")
    client = HermesAPIClient(BridgeConfig(api_url=address, api_key=KEY, state_db=":memory:"))
    yield BridgeService(client, registry)
    for owner in (client, registry):
        with contextlib.suppress(AttributeError):
            owner.close()


def started(service: Any, prompt: str, key: str, session: str) -> Any:
    """A run that the client started."""
    run = service.start(lane=session, prompt=prompt, session_id=session, idempotency_key=key)
    assert run["ok"], run
    return run


def test_the_control_client_finds_a_healthy_server(service: Any) -> None:
    """S17: health, models and capabilities are what the client expects."""
    health = service.health()
    assert (health["ok"], health["status"]) == (True, "healthy")


def test_the_control_client_starts_steers_and_reads(service: Any) -> None:
    """S17: start, steer, wait, events and history of hermes-control-mcp work, and a key replays."""
    run = started(service, "dig", "k1", "one")
    assert (run["status"], run["replayed"]) == ("started", False)
    run_id = run["run_id"]
    assert service.steer(run_id=run_id, text="more")["status"] == "running"
    done = service.wait(run_id=run_id)
    assert (done["status"], done["answer"]) == ("completed", "Heard more.")
    names = [event["event"] for event in service.events(run_id=run_id)["events"]]
    assert names[-1] == "run.completed"
    assert {"run.steered", "tool.started", "input.delivered", "tool.completed"} <= set(names)
    history = service.history(session_id="one")
    assert history["ok"], history
    rows = history["messages"]
    assert [row["role"] for row in rows] == ["user", "assistant", "user", "tool", "assistant"]
    again = started(service, "dig", "k1", "one")
    assert (again["run_id"], again["replayed"]) == (run_id, True)


def test_the_control_client_stops(service: Any) -> None:
    """S17: a stop of hermes-control-mcp cancels the run."""
    run_id = started(service, "endless", "k2", "two")["run_id"]
    assert service.stop(run_id=run_id)["status"] in ("stopping", "cancelled")
    assert service.wait(run_id=run_id)["status"] == "cancelled"


def test_the_control_client_hears_of_failures(service: Any) -> None:
    """S17: a failed run is failed for hermes-control-mcp, with its reason."""
    run_id = started(service, "fail", "k3", "three")["run_id"]
    assert service.wait(run_id=run_id)["status"] == "failed"


@pytest.mark.skipif(
    importlib.util.find_spec("hermes_agent_api_client") is None, reason="hermes-agent-api-client needs Python 3.13"
)
async def test_the_typed_client_streams(address: str) -> None:
    """S2, S17: hermes-agent-api-client takes the capabilities and a stream as they are."""
    from hermes_agent_api_client import HermesAgentApiClient

    async with HermesAgentApiClient(address, KEY) as client:
        found = await client.probe_capabilities()
        assert found.auth_required is True
        body = {"model": "worker", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        events = [event async for event in client.stream_chat_events(body, session_id="typed", session_key="k")]
    text = "".join(event.text for event in events if hasattr(event, "text"))
    assert text == "You said: hello"
    assert str(events[-1].outcome).endswith("success")
