"""What the server says that it can, against what it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from langgraph.graph import START, MessagesState, StateGraph

from runstone import __version__
from runstone.app import App
from runstone.config import AgentPolicies, Config, EngineConfig, config_from
from runstone.errors import ConfigError
from runstone.runners.base import Capabilities
from runstone.runners.function import agent
from runstone.testing import ScriptedRunner
from tests.behaviour.client import Answer
from tests.behaviour.control import Control, Hermes

PUBLIC = ["/health", "/v1/health", "/healthz", "/readyz"]


async def test_keys(live: Control) -> None:
    """S1: every route but health needs a key; without or with a wrong one it is 401 with a code, and `/health` says who it is."""
    await live.with_keys()
    nobody, wrong = live.hermes(), live.hermes(key="sk-no")
    asked = [
        ("GET", "/v1/capabilities"),
        ("GET", "/api/sessions"),
        ("POST", "/api/sessions"),
        ("PATCH", "/api/sessions/s"),
        ("DELETE", "/api/sessions/s"),
        ("POST", "/api/sessions/s/fork"),
        ("GET", "/api/sessions/s/messages"),
        ("POST", "/api/sessions/s/chat"),
        ("POST", "/api/sessions/s/chat/stream"),
        ("GET", "/api/sessions/s/events"),
        ("POST", "/v1/runs"),
        ("GET", "/v1/runs"),
        ("GET", "/v1/runs/r/events"),
        ("POST", "/v1/runs/r/stop"),
        ("POST", "/v1/runs/r/steer"),
        ("POST", "/v1/runs/r/approval"),
        ("POST", "/v1/runs/r/regenerate"),
        ("GET", "/v1/models"),
        ("GET", "/nowhere"),
    ]
    for client in (nobody, wrong):
        for method, path in asked:
            answer = await client.ask(method, path)
            assert (answer.status, bool(answer.code)) == (401, True), path
    assert (await nobody.get("/v1/capabilities")).code == "gateway_auth_failed"
    for path in PUBLIC:
        assert (await nobody.get(path)).status == 200
    health = (await nobody.get("/health")).json
    assert (health["status"], health["platform"], health["version"]) == ("ok", "hermes-agent", __version__)
    assert (await live.hermes(key="sk-ann").get("/v1/capabilities")).json["auth"] == {
        "type": "bearer",
        "required": True,
    }


def bare() -> dict[str, Any]:
    """Agents that cannot do much, and one that can everything."""

    async def plain(messages: list[dict[str, Any]]) -> str:
        return "ok"

    def blocking(messages: list[dict[str, Any]]) -> str:
        return "ok"

    graph = StateGraph(MessagesState)
    graph.add_node("only", lambda state: {"messages": [("ai", "ok")]})
    graph.add_edge(START, "only")
    return {
        "plain": plain,
        "blocking": blocking,
        "graph": graph.compile(),
        "able": agent(steers=True, approvals=True, client_tools=True, models=["big"])(plain_copy),
    }


async def plain_copy(messages: list[dict[str, Any]]) -> str:
    """Another plain agent."""
    return "ok"


async def probe(client: Hermes, name: str, capability: str) -> Answer:
    """One use of a capability of an agent."""
    run_id = f"{name}-{capability}"
    started = await client.post("/v1/runs", {"input": "hi", "model": name, "run_id": run_id})
    assert started.status == 202, started.body
    if capability not in ("stop", "steer"):
        await client.until(run_id)
    match capability:
        case "start":
            return started
        case "stop":
            return await client.post(f"/v1/runs/{run_id}/stop")
        case "steer":
            return await client.post(f"/v1/runs/{run_id}/steer", {"input": "more"})
        case "resume":
            return await client.get(f"/v1/runs/{run_id}/events", headers={"last-event-id": "1"})
        case "history":
            return await client.get(f"/api/sessions/{run_id}/messages")
        case "subscribe":
            return await client.touch("GET", f"/api/sessions/{run_id}/events?after=0")
        case "regenerate":
            return await client.post(f"/v1/runs/{run_id}/regenerate")
        case "checkpoints":
            return await client.post("/v1/runs", {"input": "hi", "model": name, "recovery": "resume"})
        case "client_tools":
            body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "tool_choice": "required"}
            tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}
            return await client.post("/v1/chat/completions", {**body, "tools": [tool]})
        case _:
            raise AssertionError(capability)


PROBED = ["start", "stop", "steer", "resume", "history", "subscribe", "regenerate", "checkpoints", "client_tools"]


async def test_every_word_of_the_document_is_true(tmp_path: Path) -> None:
    """S2: what an agent is said to have works when it is tried; what it is said not to have is refused, with a reason."""
    app = App(bare(), storage=str(tmp_path / "runs.db"))
    await app.asgi.open()
    client = Hermes(app.asgi)
    document = (await client.get("/v1/capabilities")).json
    levels = {
        name: {word: ability["level"] for word, ability in shown["capabilities"].items()}
        for name, shown in document["agents"].items()
    }
    assert levels["plain"]["steer"] == levels["plain"]["client_tools"] == "none"
    assert (levels["blocking"]["stop"], levels["graph"]["steer"], levels["able"]["steer"]) == (
        "emulated",
        "native",
        "native",
    )
    for name, shown in document["agents"].items():
        for capability in PROBED:
            ability = shown["capabilities"][capability]
            answer = await probe(client, name, capability)
            refused = answer.status in (400, 409) and (answer.code or "").startswith("unsupported")
            assert refused == (ability["level"] == "none"), (name, capability, answer.status, answer.body)
            assert answer.status < 500
            assert bool(ability.get("reason")) >= (ability["level"] == "none")
    await app.close()


async def test_features_and_endpoints(live: Control) -> None:
    """S2: every endpoint that is named answers, no feature is claimed whose endpoint is missing, keys replay."""
    client = live.hermes()
    await client.session()
    await client.say("hi", run_id="r1")
    document = (await client.get("/v1/capabilities")).json
    assert (document["object"], document["platform"]) == ("hermes.api_server.capabilities", "hermes-agent")
    for name, endpoint in document["endpoints"].items():
        path = endpoint["path"].replace("{session_id}", "s").replace("{run_id}", "r1")
        answer = await client.touch(endpoint["method"], path)
        assert answer.status not in (404, 405, 500), name
        if name == "session_delete":
            await client.session()
            await client.say("hi", run_id="r1")
    features = document["features"]
    assert features["run_steer"] and features["run_regenerate"] and features["session_events_websocket"]
    assert features["runs_idempotency"] == {"supported": True, "durable": True, "retention_seconds": 86400}
    assert not features["cors"] and not features["jobs_admin"]
    socket = await client.socket("/api/sessions/s/events")
    assert socket.status == 101
    await socket.close()
    assert document["formats"] == ["chat", "hermes", "native"]


@pytest.mark.parametrize("format", ["chat", "hermes", "native"])
async def test_formats_are_served(live: Control, format: str) -> None:
    """S2: every format of a session's stream that is named is served."""
    client = live.hermes()
    await client.session()
    stream = await client.open("GET", f"/api/sessions/s/events?format={format}")
    assert stream.status == 200
    await stream.close()


async def test_the_header_of_continuity(live: Control) -> None:
    """S2: `X-Hermes-Session-Id` names the session of a chat completion and of a run, and comes back."""
    client = live.hermes()
    name = (await client.get("/v1/capabilities")).json["features"]["session_continuity_header"]
    first = await client.chat("one", headers={name: "mine"})
    assert first.headers[name.lower()] == "mine"
    second = await client.post("/v1/runs", {"input": "two"}, headers={name: "mine"})
    await client.until(second.json["run_id"])
    assert [row["content"] for row in (await client.history("mine"))["data"] if row["role"] == "user"] == ["one", "two"]


async def test_policies_of_an_agent(tmp_path: Path) -> None:
    """An agent may have policies of its own; a request's word comes first; words for agents that are not there stop the start."""
    agents = {"patient": AgentPolicies(busy="queue", disconnect="stop")}
    config = Config(engine=EngineConfig(agents=agents))

    async def patient(messages: list[dict[str, Any]]) -> str:
        return "ok"

    app = App(patient, config=config, storage="memory", name="patient")
    await app.asgi.open()
    client = Hermes(app.asgi)
    policies = (await client.get("/v1/capabilities")).json["agents"]["patient"]["policies"]
    assert policies["busy"] == {"words": ["reject", "queue", "stop"], "default": "queue"}
    assert policies["recovery"]["words"] == ["interrupted", "retry"]
    answers = [await client.post("/v1/runs", {"input": str(n), "session_id": "s"}) for n in range(3)]
    assert [answer.status for answer in answers] == [202] * 3
    runs = [await client.until(answer.json["run_id"]) for answer in answers]
    assert [run["continues"] for run in runs[1:]] == [run["run_id"] for run in runs[:2]]
    assert (await app.engine.run("local", runs[0]["run_id"])).policies.disconnect == "stop"
    await app.close()
    with pytest.raises(ConfigError, match="'nobody'"):
        App(patient, config=Config(engine=EngineConfig(agents={"nobody": AgentPolicies()})), storage="memory", name="a")


async def test_an_agent_with_a_memory_of_its_own(tmp_path: Path) -> None:
    """Where the framework keeps the memory, answering a turn again and branching are refused with the reason."""
    refusing = msgspec.structs.replace(
        Capabilities(), regenerate=msgspec.structs.replace(Capabilities().steer, reason="it remembers itself")
    )

    async def script(request: Any, context: Any) -> None:
        """Says nothing."""

    app = App({"graph": ScriptedRunner(script, capabilities=refusing)}, storage="memory")
    await app.asgi.open()
    client = Hermes(app.asgi)
    for n in range(2):
        await client.begin("hi", session_id="s", run_id=f"r{n}")
        await client.until(f"r{n}")
    again = await client.post("/v1/runs/r1/regenerate")
    branch = await client.post("/v1/runs", {"input": "x", "session_id": "s", "continues": "r0"})
    for answer in (again, branch):
        assert (answer.status, answer.code) == (400, "unsupported_regenerate")
        assert "it remembers itself" in answer.json["error"]["message"]
    document = (await client.get("/v1/capabilities")).json
    assert (document["features"]["run_regenerate"], document["reasons"]["run_regenerate"]) == (
        False,
        "it remembers itself",
    )
    assert "run_regenerate" not in document["endpoints"]
    await app.close()


@pytest.mark.parametrize("policies", ['{"a": {"busy": "sometimes"}}', '{"a": {"policy": "queue"}}', '{"a": "queue"}'])
def test_unknown_policies_of_an_agent_stop_the_start(policies: str) -> None:
    """A word or a name that no policy has stops the start."""
    with pytest.raises(ConfigError, match=r"engine\.agents"):
        config_from(settings=[f"engine.agents={policies}"], environment={})
