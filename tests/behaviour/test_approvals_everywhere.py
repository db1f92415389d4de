"""A pause that began on one surface, seen and decided on every other one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from runstone.app import App
from runstone.runners.agent_context import AgentContext
from tests.behaviour.control import Control, Hermes

KSADK = {"runstone-dialect": "ksadk"}
OPENAI = {"runstone-dialect": "openai"}


async def asking(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Asks before it deletes."""
    answer = await context.approve("delete", {"path": "/tmp"})
    yield f"{'Deleted' if answer.approved else 'Kept'} {answer.arguments['path']}."


async def begin(client: Hermes, surface: str) -> str:
    """A run that waits, begun on a surface; its id."""
    match surface:
        case "runs":
            run_id = str((await client.begin("hi", session_id="s"))["run_id"])
        case "chat":
            answer = await client.say("hi")
            assert answer.json["status"] == "waiting_for_approval"
            run_id = answer.headers["runstone-run-id"]
        case "completions":
            completion = await client.chat("hi", session_id="s")
            assert completion.json["runstone"]["status"] == "waiting"
            run_id = completion.json["run_id"]
        case _:
            response = await client.respond("hi", conversation="s", headers=OPENAI)
            assert response.json["output"][-1]["type"] == "mcp_approval_request"
            run_id = response.json["run_id"]
    await client.until(run_id, "waiting_for_approval")
    return run_id


async def decide(client: Hermes, surface: str, run_id: str, approve: bool) -> Any:
    """An answer on a surface."""
    id = (await client.run(run_id))["approval"]["request_id"]
    match surface:
        case "runs":
            return await client.post(f"/v1/runs/{run_id}/approval", {"choice": "once" if approve else "deny"})
        case "conversations":
            answer = {"type": "mcp_approval_response", "approval_request_id": id, "approve": approve}
            return await client.respond([answer], conversation="s", headers=OPENAI)
        case _:
            answer = {"type": "mcp_approval_response", "approval_request_id": id, "approve": approve}
            return await client.respond([answer], previous_response_id=f"resp_{run_id}", headers=OPENAI)


@pytest.mark.parametrize("decided_on", ["runs", "conversations", "responses"])
@pytest.mark.parametrize("begun_on", ["runs", "chat", "completions", "responses"])
async def test_begun_here_decided_there(live: Control, begun_on: str, decided_on: str) -> None:
    """S11, o-hit-01: whatever began a run, every surface that decides can, another client too, and only once."""
    live.say = asking
    client, other = live.hermes(), live.hermes()
    await client.session()
    run_id = await begin(client, begun_on)
    pending = await other.run(run_id)
    assert [asked["tool_name"] for asked in pending["approvals"]] == ["delete"]
    assert (await other.history())["runs"][0]["approvals"][0]["name"] == "delete"
    answer = await decide(other, decided_on, run_id, approve=True)
    assert answer.status == 200, answer.body
    run = await client.until(run_id)
    assert (run["status"], run["output"], run["approvals"][0]["choice"]) == ("completed", "Deleted /tmp.", "once")
    id = run["approvals"][0]["request_id"]
    late = await other.post(f"/v1/runs/{run_id}/approval", {"choice": "deny", "request_id": id})
    assert (late.status, late.code) == (409, "approval_not_pending")
    assert live.calls == 1


async def test_a_reader_of_the_other_surface_sees_the_decision(control: Control) -> None:
    """A Chat stream and a session's subscription that wait both go on or end as their protocols say, with one outcome."""
    control.say = asking
    client = control.hermes()
    await client.session()
    follower = await client.open("GET", "/api/sessions/s/events?format=hermes&after=0")
    completion = await client.chat("hi", session_id="s")
    run_id = completion.json["run_id"]
    asked = (await follower.until("approval.request"))[-1].json
    body = {"choice": "once", "request_id": asked["request_id"], "arguments": {"path": "/var"}}
    assert (await client.post(f"/v1/runs/{run_id}/approval", body)).status == 200
    names = [frame.event for frame in await follower.until("run.completed")]
    assert names[:1] == ["approval.responded"] and names[-1] == "run.completed"
    again = await client.get(f"/v1/chat/completions/{run_id}")
    assert again.json["choices"][0]["message"]["content"] == "Deleted /var."
    await follower.close()


@tool
def remove(path: str) -> str:
    """Remove a file."""
    answer = interrupt({"tool_name": "remove", "tool_args": {"path": path}})
    # A client of Responses gives its item as it is, without arguments.
    arguments = answer.get("tool_args", {"path": path})
    return f"removed {arguments['path']}" if answer["approve"] else f"kept: {answer['reason']}"


def graph() -> Any:
    """A graph that asks before its tool runs."""

    async def model(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1]
        if last.type == "tool":
            return {"messages": [AIMessage(content=f"Done: {last.content}.")]}
        call = {"name": "remove", "args": {"path": "/tmp"}, "id": "c1", "type": "tool_call"}
        return {"messages": [AIMessage(content="", tool_calls=[call])]}

    built = StateGraph(MessagesState)
    built.add_node("model", model)
    built.add_node("tools", ToolNode([remove]))
    built.add_edge(START, "model")
    built.add_conditional_edges("model", tools_condition)
    built.add_edge("tools", "model")
    return built.compile()


@pytest.mark.parametrize("decided_on", ["runs", "responses"])
@pytest.mark.parametrize(("approve", "said"), [(True, "Done: removed /tmp."), (False, "Done: kept: no.")])
async def test_a_pause_survives_a_restart(tmp_path: Path, decided_on: str, approve: bool, said: str) -> None:
    """o-hit-02: a graph's pause is there after a restart, with its arguments; the decision goes on with exactly those."""
    url = str(tmp_path / "runs.db")
    app = App(graph(), storage=url, name="agent")
    await app.asgi.open()
    client = Hermes(app.asgi)
    await client.begin("hi", session_id="s", run_id="r1")
    before = await client.until("r1", "waiting_for_approval")
    await app.close()
    app = App(graph(), storage=url, name="agent")
    await app.asgi.open()
    client = Hermes(app.asgi)
    after = await client.run("r1")
    assert (after["status"], after["approvals"]) == ("waiting_for_approval", before["approvals"])
    assert after["approval"]["arguments"] == '{"path":"/tmp"}'
    id = after["approval"]["request_id"]
    if decided_on == "runs":
        answer = await client.post("/v1/runs/r1/approval", {"choice": "once" if approve else "deny", "reason": "no"})
    else:
        item = {"type": "mcp_approval_response", "approval_request_id": id, "approve": approve, "reason": "no"}
        answer = await client.respond([item], conversation="s", headers=KSADK)
    assert answer.status == 200, answer.body
    run = await client.until("r1")
    assert (run["status"], run["output"]) == ("completed", said)
    document = (await client.get("/v1/capabilities")).json
    assert document["features"]["durable_approvals"] is True
    await app.close()


async def test_a_graph_is_steered_over_http(tmp_path: Path) -> None:
    """S10: what is said while a graph's tool runs reaches its model and stands after the tool's row."""
    digging, release = asyncio.Event(), asyncio.Event()

    @tool
    async def dig(at: str) -> str:
        """Dig."""
        digging.set()
        await release.wait()
        return "dug"

    async def model(state: MessagesState) -> dict[str, Any]:
        if len(state["messages"]) > 1:
            return {"messages": [AIMessage(content=f"Heard {state['messages'][-1].content}.")]}
        call = {"name": "dig", "args": {"at": "here"}, "id": "c1", "type": "tool_call"}
        return {"messages": [AIMessage(content="", tool_calls=[call])]}

    built = StateGraph(MessagesState)
    built.add_node("model", model)
    built.add_node("tools", ToolNode([dig]))
    built.add_edge(START, "model")
    built.add_conditional_edges("model", tools_condition)
    built.add_edge("tools", "model")
    app = App(built.compile(), storage=str(tmp_path / "runs.db"), name="agent")
    await app.asgi.open()
    client = Hermes(app.asgi)
    await client.begin("hi", session_id="s", run_id="r1")
    await digging.wait()
    assert (await client.post("/v1/runs/r1/steer", {"input": "more"})).status == 200
    release.set()
    assert (await client.until("r1"))["output"] == "Heard more."
    rows = [(row["role"], row["content"], row["display_kind"]) for row in (await client.history())["data"]]
    assert rows[1:] == [
        ("assistant", "", None),
        ("tool", "dug", None),
        ("user", "more", "steer"),
        ("assistant", "Heard more.", None),
    ]
    await app.close()
