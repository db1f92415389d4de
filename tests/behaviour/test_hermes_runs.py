"""Runs over Hermes' API: every verb, and what is said of a run afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from runstone.config import EngineConfig
from runstone.errors import RunnerError
from runstone.runners.agent_context import AgentContext
from tests.behaviour.client import frames_of
from tests.behaviour.control import OVER, Control, names, said, spoken
from tests.behaviour.site import Steps, echo, prompt_of


async def test_start(control: Control) -> None:
    """A start is 202 with the run's id, the client's or ours; without a session the run gets one with its own id."""
    client = control.hermes()
    answer = await client.post("/v1/runs", {"input": "hi", "run_id": "mine"})
    assert answer.status == 202
    assert answer.json == {"run_id": "mine", "status": "started", "replayed": False, "session_id": "mine"}
    assert (answer.headers["runstone-run-id"], answer.headers["X-Hermes-Session-Id".lower()]) == ("mine", "mine")
    assert "idempotency-replayed" not in answer.headers
    run = await client.until("mine")
    assert (run["object"], run["status"], run["output"]) == ("hermes.run", "completed", "You said: hi")
    assert (run["completed"], run["partial"], run["interrupted"], run["last_event"]) == (
        True,
        False,
        False,
        "run.completed",
    )
    ours = (await client.post("/v1/runs", {"input": "hi"})).json
    assert ours["run_id"] == ours["session_id"]
    assert [s["id"] for s in (await client.get("/api/sessions")).json["data"]] == [ours["run_id"], "mine"]
    for body in ({}, {"input": ""}, {"input": "x", "run_id": "a b"}, {"input": "x", "previous_response_id": "r"}):
        assert (await client.post("/v1/runs", body)).status == 400


async def test_runs_remember(control: Control) -> None:
    """A run of a session is told what was said before; earlier messages are history where there is none yet."""
    seen: list[list[str]] = []

    async def say(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        seen.append([str(message["content"]) for message in messages])
        yield "ok"

    control.say = say
    client = control.hermes()
    earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    for text in ("c", "d"):
        run = await client.begin(text, session_id="s", conversation_history=earlier)
        await client.until(run["run_id"])
    run = await client.begin("x", conversation_history=earlier)
    await client.until(run["run_id"])
    assert seen == [["a", "b", "c"], ["a", "b", "c", "ok", "d"], ["a", "b", "x"]]


async def test_stop(control: Control) -> None:
    """S9: a stop is answered at once; the run is cancelled within two seconds; again, and after the end, it is 200."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.begin("hi", run_id="r1")
    reader = await client.open("GET", "/v1/runs/r1/events")
    steps.word("some ")
    await reader.until("some ")
    began = time.monotonic()
    answer = await client.post("/v1/runs/r1/stop", {"reason": "enough"})
    assert (answer.status, answer.json) == (200, {"run_id": "r1", "status": "stopping"})
    again = await client.post("/v1/runs/r1/stop")
    assert again.status == 200 and again.json["status"] in ("stopping", "cancelled")
    run = await client.until("r1")
    assert time.monotonic() - began < 2
    assert (run["status"], run["output"], run["turn_exit_reason"]) == ("cancelled", "some ", "enough")
    frames = [frame for frame in frames_of(await reader.rest()) if frame.data]
    assert names(frames) == ["run.cancelled"]
    after = await client.post("/v1/runs/r1/stop")
    assert (after.status, after.json) == (200, run)
    assert await client.run("r1") == run
    unknown = await client.post("/v1/runs/nobody/stop")
    assert (unknown.status, unknown.code) == (404, "run_not_found")


async def test_stop_in_a_tool(control: Control) -> None:
    """S9, o-run-07: a tool that is stopped gets a result, a stubborn one too, and the next turn works."""
    release = asyncio.Event()

    async def say(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        if prompt_of(messages) == "next":
            yield "fine"
            return
        async with context.tool("dig", {}):
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    if prompt_of(messages) == "soft":
                        raise

    control.say = say
    client = control.hermes()
    for text in ("soft", "stubborn"):
        run_id = (await client.begin(text, session_id=text))["run_id"]
        reader = await client.open("GET", f"/v1/runs/{run_id}/events")
        await reader.until("tool.started")
        began = time.monotonic()
        await client.post(f"/v1/runs/{run_id}/stop")
        assert (await client.until(run_id))["status"] == "cancelled"
        assert time.monotonic() - began < 2
        await reader.close()
        rows = (await client.history(text))["data"]
        assert [row["role"] for row in rows] == ["user", "assistant", "tool"]
        assert rows[2]["is_error"] is True
        assert (await client.say("next", text)).status == 200
    release.set()


async def test_stop_reaches_every_reader(control: Control) -> None:
    """o-run-06: the starter, another reader and a follower of the session all get the one end."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.session()
    starter = await client.saying("hi", run_id="r1")
    reader = await client.open("GET", "/v1/runs/r1/events")
    follower = await client.open("GET", "/api/sessions/s/events?after=0")
    await steps.started.wait()
    await client.post("/v1/runs/r1/stop")
    assert names(frames_of(await starter.rest()))[-2:] == ["run.cancelled", "done"]
    assert names([f for f in frames_of(await reader.rest()) if f.data]) == ["run.cancelled"]
    assert (await follower.until("run_ended"))[-1].json["outcome"] == "cancelled"
    await follower.close()


class Digging:
    """An agent that uses a tool, takes what came meanwhile, and answers. The tool ends when it is let go."""

    def __init__(self) -> None:
        self.digs = asyncio.Event()
        self.release = asyncio.Event()
        self.says = asyncio.Event()
        self.end = asyncio.Event()

    async def __call__(self, messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        """The agent."""
        async with context.tool("dig", {}) as call:
            self.digs.set()
            await self.release.wait()
            call.result("dug")
        heard = [str(message["content"]) for message in await context.inbox.take()]
        yield f"Heard {', '.join(heard) or 'nothing'}."
        self.says.set()
        await self.end.wait()


async def test_steer(control: Control) -> None:
    """S10: steering in a tool is delivered before the agent goes on, after the tool's row, in order, and every stream says so."""
    control.say = digging = Digging()
    client = control.hermes()
    await client.begin("hi", session_id="s", run_id="r1")
    reader = await client.open("GET", "/v1/runs/r1/events")
    await digging.digs.wait()
    receipts = [await client.post("/v1/runs/r1/steer", {key: f"more {key}"}) for key in ("input", "text")]
    ids = [receipt.json["input_id"] for receipt in receipts]
    assert [receipt.status for receipt in receipts] == [200, 200]
    expected = {"object": "hermes.run.steer", "run_id": "r1", "accepted": True, "input_id": ids[0]}
    assert receipts[0].json == expected
    digging.release.set()
    digging.end.set()
    frames = [frame for frame in frames_of(await reader.rest()) if frame.data]
    order = [
        name for name in names(frames) if name in ("run.steered", "input.delivered", "tool.completed", "message.delta")
    ]
    assert order == ["run.steered"] * 2 + ["tool.completed"] + ["input.delivered"] * 2 + ["message.delta"]
    assert [frame.json["input_id"] for frame in frames if frame.json["event"] == "input.delivered"] == ids
    assert frames[1].json["by"] == "local"
    page = await client.history()
    rows = [(row["role"], row["content"], row["display_kind"]) for row in page["data"]]
    assert rows == [
        ("user", "hi", None),
        ("assistant", "", None),
        ("tool", "dug", None),
        ("user", "more input", "steer"),
        ("user", "more text", "steer"),
        ("assistant", "Heard more input, more text.", None),
    ]
    assert "pending_steer" not in await client.run("r1")
    control.say = echo
    assert (await client.say("next")).json["message"]["content"] == "You said: next"


async def test_steer_that_nobody_took(control: Control) -> None:
    """S10, o-hit-05: steering in the last text is returned on the terminal event and in the run, and starts nothing."""
    control.say = digging = Digging()
    client = control.hermes()
    await client.session()
    stream = await client.saying("hi", run_id="r1")
    digging.release.set()
    await digging.says.wait()
    for text in ("belated", "too"):
        assert (await client.post("/v1/runs/r1/steer", {"message": text})).status == 200
    digging.end.set()
    frames = frames_of(await stream.rest())
    assert names(frames)[-5:] == ["input.returned", "input.returned", "assistant.completed", "run.completed", "done"]
    assert frames[-2].json["pending_steer"] == frames[-3].json["pending_steer"] == "belated\ntoo"
    assert (await client.run("r1"))["pending_steer"] == "belated\ntoo"
    assert "belated" not in str(await client.history())
    assert control.calls == 1


async def test_steer_at_the_wrong_time(control: Control) -> None:
    """S10, o-hit-04: steering of a run that has ended, stops, waits or is unknown is refused; blank steering is none."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.begin("hi", run_id="r1", session_id="s")
    await steps.started.wait()
    blank: list[dict[str, Any]] = [{}, {"input": " "}, {"input": []}]
    for body in blank:
        answer = await client.post("/v1/runs/r1/steer", body)
        assert (answer.status, answer.code) == (400, "invalid_steer_input")
    await client.post("/v1/runs/r1/stop")
    codes = [await client.post("/v1/runs/r1/steer", {"input": "x"})]
    await client.until("r1")
    codes.append(await client.post("/v1/runs/r1/steer", {"input": "x"}))
    control.say = asking
    await client.begin("hi", run_id="r2")
    await client.until("r2", "waiting_for_approval")
    codes.append(await client.post("/v1/runs/r2/steer", {"input": "x"}))
    assert [(answer.status, answer.code) for answer in codes] == [(409, "run_not_accepting_steer")] * 3
    assert (await client.post("/v1/runs/nobody/steer", {"input": "x"})).code == "run_not_found"
    assert "x" not in [row["content"] for row in (await client.history())["data"]]


async def asking(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Asks before it deletes."""
    answer = await context.approve("delete", {"path": "/tmp"}, prompt="Delete it?")
    async with context.tool("delete", answer.arguments, answer.call_id) as call:
        if answer.approved:
            call.result(f"deleted {answer.arguments['path']}")
        else:
            call.fail(answer.reason or "not allowed")
    yield "Done."


async def test_approve(control: Control) -> None:
    """S11: a waiting run shows what it asks; once lets the tool run, deny blocks it, and both runs complete."""
    control.say = asking
    client = control.hermes()
    for choice, content in (("once", "deleted /tmp"), ("deny", '{"error":"not allowed"}')):
        await client.session(choice)
        stream = await client.saying("hi", choice, run_id=choice)
        request = (await stream.until("approval.request"))[-1].json
        assert (request["choices"], request["tool_name"], request["description"]) == (
            ["once", "deny"],
            "delete",
            "Delete it?",
        )
        run = await client.until(choice, "waiting_for_approval")
        assert run["approval"]["request_id"] == request["request_id"]
        page = await client.history(choice)
        assert page["session"]["metadata"]["backendStatus"] == "waiting"
        assert page["runs"][0]["approvals"][0]["approval_id"] == request["request_id"]
        answer = await client.post(
            f"/v1/runs/{choice}/approval", {"choice": choice, "request_id": request["request_id"]}
        )
        assert (answer.status, answer.json["choice"], answer.json["resolved"]) == (200, choice, 1)
        frames = frames_of(await stream.rest())
        assert names(frames)[0] == "approval.responded"
        assert names(frames)[-2:] == ["run.completed", "done"]
        rows = (await client.history(choice))["data"]
        assert [row["content"] for row in rows if row["role"] == "tool"] == [content]
        run = await client.run(choice)
        assert (run["approvals"][0]["choice"], "approval" in run) == (choice, False)


async def test_a_second_answer(control: Control) -> None:
    """S11, o-hit-01: the second answer is 409, before and after the end, and changes nothing; an unknown request is 404."""
    control.say = steps = AskThenWait()
    client = control.hermes()
    await client.begin("hi", run_id="r1")
    run = await client.until("r1", "waiting_for_approval")
    id = run["approval"]["request_id"]
    wrong = await client.post("/v1/runs/r1/approval", {"choice": "maybe"})
    assert (wrong.status, wrong.code) == (400, "invalid_approval_choice")
    unknown = await client.post("/v1/runs/r1/approval", {"choice": "once", "request_id": "other"})
    assert (unknown.status, unknown.code) == (404, "approval_not_found")
    answers = await asyncio.gather(
        *(client.post("/v1/runs/r1/approval", {"choice": word, "request_id": id}) for word in ("once", "once", "deny"))
    )
    assert sorted(answer.status for answer in answers) == [200, 409, 409]
    assert {answer.code for answer in answers if answer.status == 409} == {"approval_not_pending"}
    again = await client.post("/v1/runs/r1/approval", {"choice": "deny"})
    assert (again.status, again.code) == (409, "approval_not_pending")
    steps.end.set()
    await client.until("r1")
    late = await client.post("/v1/runs/r1/approval", {"choice": "deny", "request_id": id})
    assert (late.status, late.code) == (409, "approval_not_pending")
    over = await client.post("/v1/runs/r1/approval", {"choice": "deny"})
    assert (over.status, over.code) == (409, "approval_not_active")
    assert steps.ran == 1


class AskThenWait:
    """An agent that asks, does it once, and waits."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.ran = 0

    async def __call__(self, messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        """The agent."""
        await context.approve("delete", {})
        self.ran += 1
        yield "Done."
        await self.end.wait()


async def test_several_requests(control: Control) -> None:
    """S11: two requests that are pending at once are answered by id and do not cross; without an id that is ambiguous."""

    async def say(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        answers = await asyncio.gather(*(context.approve(name, {"n": name}) for name in ("a", "b")))
        yield " ".join(f"{answer.arguments['n']}:{answer.approved}" for answer in answers)

    control.say = say
    client = control.hermes()
    for decide in ("by id", "all"):
        run_id = (await client.begin("hi"))["run_id"]
        run = await client.until(run_id, "waiting_for_approval")
        ids = {asked["tool_name"]: asked["request_id"] for asked in run["approvals"]}
        vague = await client.post(f"/v1/runs/{run_id}/approval", {"choice": "once"})
        assert (vague.status, vague.code) == (400, "approval_ambiguous")
        if decide == "all":
            answer = await client.post(f"/v1/runs/{run_id}/approval", {"choice": "once", "all": True})
            assert answer.json["resolved"] == 2
            assert (await client.until(run_id))["output"] == "a:True b:True"
            continue
        body = {"choice": "deny", "request_id": ids["b"]}
        assert (await client.post(f"/v1/runs/{run_id}/approval", body)).status == 200
        run = await client.run(run_id)
        assert [asked["choice"] for asked in run["approvals"]] == [None, "deny"]
        assert (run["status"], run["approval"]["request_id"]) == ("waiting_for_approval", ids["a"])
        await client.post(f"/v1/runs/{run_id}/approval", {"choice": "once", "request_id": ids["a"]})
        assert (await client.until(run_id))["output"] == "a:True b:False"


async def test_decided_arguments_are_what_runs(control: Control) -> None:
    """o-hit-02: arguments given with the decision replace those that were asked about, in the run and in what is shown."""
    control.say = asking
    client = control.hermes()
    await client.begin("hi", run_id="r1")
    await client.until("r1", "waiting_for_approval")
    await client.post("/v1/runs/r1/approval", {"choice": "once", "arguments": {"path": "/var"}})
    run = await client.until("r1")
    assert run["approvals"][0]["arguments"] == '{"path":"/var"}'
    rows = (await client.history("r1"))["data"]
    assert rows[-2]["content"] == "deleted /var"
    assert rows[-3]["tool_calls"][0]["function"]["arguments"] == '{"path":"/var"}'


async def test_stop_while_waiting(control: Control) -> None:
    """S9, o-hit-03: stopping a run that waits cancels it at once; the approval is withdrawn, a late answer refused."""
    control.say = asking
    client = control.hermes()
    await client.begin("hi", run_id="r1")
    id = (await client.until("r1", "waiting_for_approval"))["approval"]["request_id"]
    assert (await client.post("/v1/runs/r1/stop")).json["status"] == "stopping"
    run = await client.until("r1")
    assert (run["status"], run["approvals"][0]["choice"]) == ("cancelled", "withdrawn")
    late = await client.post("/v1/runs/r1/approval", {"choice": "once", "request_id": id})
    assert (late.status, late.code) == (409, "approval_not_pending")


async def test_a_new_start_withdraws_what_waits(control: Control) -> None:
    """A start in a session whose run waits ends that run as superseded; a queued start waits for the decision."""
    control.say = asking
    client = control.hermes()
    await client.begin("hi", run_id="r1", session_id="s")
    await client.until("r1", "waiting_for_approval")
    assert (await client.history())["session"]["status"] == "idle"
    await client.begin("again", run_id="r2", session_id="s")
    run = await client.run("r1")
    assert (run["status"], run["turn_exit_reason"]) == ("cancelled", "superseded")
    await client.until("r2", "waiting_for_approval")
    await client.begin("third", run_id="r3", session_id="s", busy="queue")
    assert (await client.run("r3"))["status"] == "queued"
    await client.post("/v1/runs/r2/approval", {"choice": "deny"})
    assert (await client.until("r2"))["status"] == "completed"
    await client.until("r3", "waiting_for_approval")


async def test_tool_outputs(control: Control) -> None:
    """What the client's tools gave starts the next run of the chain, or answers a run that waits for it."""

    async def say(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        if messages[-1]["role"] == "tool":
            yield f"It is {messages[-1]['content']}."
            return
        context.call_tool_of_client("where", {}, "c1")

    control.say = say
    client = control.hermes()
    await client.begin("hi", session_id="s", run_id="r1")
    first = await client.until("r1")
    assert (first["status"], first["turn_exit_reason"]) == ("completed", "client_tools")
    outputs = {"tool_outputs": [{"tool_call_id": "c1", "output": {"city": "Beijing"}}]}
    receipt = await client.post("/v1/runs/r1/tool_outputs", outputs)
    assert receipt.status == 202
    run = await client.until(receipt.json["run_id"])
    assert (run["output"], run["continues"]) == ('It is {"city":"Beijing"}.', "r1")
    unknown = {"tool_outputs": [{"tool_call_id": "c9", "output": "x"}]}
    refused = await client.post(f"/v1/runs/{run['run_id']}/tool_outputs", unknown)
    assert (refused.status, refused.code) == (400, "call_not_found")
    assert (await client.post("/v1/runs/r1/tool_outputs", {})).code == "missing_tool_outputs"


async def test_regenerate(control: Control) -> None:
    """o-run-12: a turn is answered again by a new run, edited or not, also an earlier one; the old ones stay readable."""
    client = control.hermes()
    await client.begin("one", session_id="s", run_id="r1")
    await client.until("r1")
    await client.begin("two", session_id="s", run_id="r2")
    await client.until("r2")
    answer = await client.post("/v1/runs/r2/regenerate", {"run_id": "r2b"})
    assert (answer.status, answer.json["run_id"]) == (202, "r2b")
    assert (await client.until("r2b"))["turn"] == (await client.run("r2"))["turn"]
    assert spoken(await client.history())[2:] == [("user", "two"), ("assistant", "You said: two")]
    edited = await client.post("/v1/runs/r1/regenerate", {"input": "uno", "run_id": "r1b", "accepted_only": False})
    assert names(edited.frames)[0] == "run.started" and names(edited.frames)[-1] == "done"
    assert spoken(await client.history()) == [("user", "uno"), ("assistant", "You said: uno")]
    for run_id, current in (("r1", "r1b"), ("r2", None)):
        found = (await client.get(f"/v1/runs/{run_id}/alternatives")).json["data"]
        assert [run["run_id"] for run in found] == [run_id, f"{run_id}b"]
        assert [run["run_id"] for run in found if run["is_current"]] == ([current] if current else [])
    assert (await client.run("r2"))["output"] == "You said: two"
    old = await client.get("/v1/runs/r2/events")
    assert said([frame for frame in old.frames if frame.data]) == "You said: two"


async def test_regenerate_while_active(control: Control) -> None:
    """o-run-12: a turn whose run is active is not answered again, nor is another turn of its session."""
    client = control.hermes()
    await client.begin("one", session_id="s", run_id="r1")
    await client.until("r1")
    control.say = steps = Steps()
    await client.begin("two", session_id="s", run_id="r2")
    for run_id in ("r1", "r2"):
        refused = await client.post(f"/v1/runs/{run_id}/regenerate")
        assert (refused.status, refused.code) == (409, "run_already_active")
        assert refused.json["error"]["run_id"] == "r2"
    assert (await client.post("/v1/runs/nobody/regenerate")).code == "run_not_found"
    steps.end()
    await client.until("r2")
    assert len((await client.get("/v1/runs?session_id=s")).json["data"]) == 2


async def test_list(control: Control) -> None:
    """Runs are listed newest first, of one session, of some statuses, in pages."""
    client = control.hermes()
    for n in range(4):
        await client.begin("hi", run_id=f"r{n}", session_id=f"s{n % 2}")
        await client.until(f"r{n}")
    control.say = steps = Steps()
    await client.begin("hi", run_id="r4", session_id="s0")
    await steps.started.wait()

    async def ids(query: str) -> list[str]:
        return [run["run_id"] for run in (await client.get(f"/v1/runs{query}")).json["data"]]

    assert await ids("") == ["r4", "r3", "r2", "r1", "r0"]
    assert await ids("?session_id=s1") == ["r3", "r1"]
    assert await ids("?status=running") == ["r4"]
    assert await ids("?status=completed,failed&session_id=s0") == ["r2", "r0"]
    first = (await client.get("/v1/runs?limit=2")).json
    assert (first["has_more"], first["cursor"]) == (True, "r3")
    second = (await client.get(f"/v1/runs?limit=5&before={first['cursor']}")).json
    assert ([run["run_id"] for run in second["data"]], second["has_more"]) == (["r2", "r1", "r0"], False)
    for query in ("?status=odd", "?limit=0", "?limit=999", "?before=nobody"):
        assert (await client.get(f"/v1/runs{query}")).status in (400, 404)
    steps.end()


STARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "runs": ("/v1/runs", {"input": "hi", "session_id": "s"}),
    "chat": ("/api/sessions/s/chat", {"message": "hi"}),
    "chat/stream": ("/api/sessions/s/chat/stream", {"message": "hi"}),
    "responses": ("/v1/responses", {"model": "agent", "input": "hi", "conversation": "s"}),
    "completions": ("/v1/chat/completions", {"model": "agent", "messages": [{"role": "user", "content": "hi"}]}),
    "regenerate": ("/v1/runs/r0/regenerate", {}),
}


@pytest.mark.parametrize("start", STARTS)
async def test_idempotency(control: Control, start: str) -> None:
    """S12, o-run-08: on every start the same key and body give the same run, also after a restart; another body is 409."""
    path, body = STARTS[start]
    client = control.hermes()
    await client.session()
    await client.begin("first", session_id="s", run_id="r0")
    await client.until("r0")
    before, key = control.calls, {"idempotency-key": "k-1"}
    first = await client.post(path, body, headers=key)
    run_id = first.headers["runstone-run-id"]
    assert "idempotency-replayed" not in first.headers
    await client.until(run_id)
    if control.kind == "sqlite":
        await control.restart()
        client = control.hermes()
    again = await client.post(path, body, headers=key)
    assert (again.status, again.headers["runstone-run-id"]) == (first.status, run_id)
    assert control.calls == before + 1
    field = "message" if "chat" in start else "input"
    other = await client.post(
        path, {**body, **({"metadata": {"k": "v"}} if "completions" in start else {field: "other"})}, headers=key
    )
    assert other.status == (400 if start in ("responses", "completions") else 409)
    if start in ("runs", "chat", "chat/stream", "regenerate"):
        assert again.headers["idempotency-replayed"] == "true"
        assert other.code == "idempotency_key_conflict"
        spaced = await client.post(path, body, headers={"idempotency-key": "a b"})
        assert (spaced.status, spaced.code) == (400, "invalid_idempotency_key")
    if start == "runs":
        assert again.json == {"run_id": run_id, "status": "completed", "replayed": True, "session_id": "s"}


async def test_parallel_starts_with_one_key(control: Control) -> None:
    """S12, o-run-08: starts with one key and body at once are one run, in a session of its own too."""
    client = control.hermes()
    answers = await asyncio.gather(
        *(client.post("/v1/runs", {"input": "hi"}, headers={"idempotency-key": "k"}) for _ in range(8))
    )
    assert len({answer.json["run_id"] for answer in answers}) == 1
    assert sorted(answer.json["replayed"] for answer in answers) == [False] + [True] * 7
    assert len((await client.get("/api/sessions")).json["data"]) == 1


@pytest.mark.parametrize("policy", ["reject", "queue", "steer", "stop"])
async def test_busy_policies(control: Control, policy: str) -> None:
    """o-run-09: each policy does what it says with a second start: refused, after it, into it, instead of it."""
    control.say = digging = Digging()
    client = control.hermes()
    await client.begin("one", session_id="s", run_id="r1")
    await digging.digs.wait()
    native = await client.open("GET", "/v1/runs/r1/events?format=native")
    second = asyncio.create_task(client.post("/v1/runs", {"input": "two", "session_id": "s", "busy": policy}))
    if policy == "steer":
        await native.until("input_received")
    else:
        await second
    await native.close()
    digging.release.set()
    digging.end.set()
    answer = await second
    first = await client.until("r1")
    match policy:
        case "reject":
            assert (answer.status, answer.code) == (409, "run_already_active")
            assert control.calls == 1
        case "queue":
            assert (await client.until(answer.json["run_id"]))["continues"] == "r1"
            assert first["status"] == "completed"
        case "steer":
            assert (answer.json["run_id"], answer.json["steered"], answer.json["replayed"]) == ("r1", True, False)
            assert first["output"] == "Heard two."
            assert control.calls == 1
        case _:
            assert (first["status"], first["turn_exit_reason"]) == ("cancelled", "replaced")
            assert (await client.until(answer.json["run_id"]))["status"] == "completed"


@pytest.mark.parametrize("field", ["busy", "disconnect", "recovery", "history"])
async def test_unknown_policies(live: Control, field: str) -> None:
    """A word that no policy has is refused, in the body and in the header; nothing starts."""
    client = live.hermes()
    body = await client.post("/v1/runs", {"input": "x", "session_id": "s", field: "sometimes"})
    assert (body.status, body.json["error"]["param"]) == (400, field)
    if field != "history":
        header = await client.post("/v1/runs", {"input": "x"}, headers={f"runstone-{field}": "sometimes"})
        assert header.status == 400
    assert live.calls == 0


async def test_disconnect_stop(control: Control) -> None:
    """With `disconnect: stop` the run of a dropped stream or body is cancelled; a receipt's connection is none."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.session()
    stream = await client.saying("hi", run_id="r1", disconnect="stop")
    await steps.started.wait()
    await stream.close()
    assert (await client.until("r1"))["turn_exit_reason"] == "disconnected"
    steps.started.clear()
    body = client.send("POST", "/api/sessions/s/chat", json={"message": "hi", "run_id": "r2", "disconnect": "stop"})
    await steps.started.wait()
    await body.close()
    assert (await client.until("r2"))["status"] == "cancelled"
    await client.begin("hi", run_id="r3", session_id="s", disconnect="stop")
    assert (await client.run("r3"))["status"] in ("running", "queued")
    steps.end()
    assert (await client.until("r3"))["status"] == "completed"


async def test_a_trimmed_backlog(control: Control) -> None:
    """S8: of a compacted run a reader without cursor hears that it is trimmed and how it ended; one with a cursor gets 410."""
    control.config = msgspec.structs.replace(control.config, engine=EngineConfig(events_ttl=0.0, sweep_every=3600.0))
    await control.restart()
    client = control.hermes()
    await client.session()
    await client.say("hi", run_id="r1")
    await control.app.engine._upkeep.sweep()
    answer = await client.get("/v1/runs/r1/events")
    frames = [frame for frame in answer.frames if frame.data]
    assert names(frames) == ["replay.truncated", "run.completed"]
    assert frames[1].json["output"] == "You said: hi"
    assert answer.body.startswith(b": open\n\n") and answer.body.endswith(b": stream closed\n\n")
    for target in ("/v1/runs/r1/events", "/api/sessions/s/chat/stream"):
        gone = await client.get(target, headers={"last-event-id": "3"})
        assert (gone.status, gone.code) == (410, "cursor_expired")
    assert spoken(await client.history()) == [("user", "hi"), ("assistant", "You said: hi")]
    assert (await client.run("r1"))["output"] == "You said: hi"


async def test_a_killed_server(tmp_path: Any) -> None:
    """S13: after a crash every run is interrupted, its stream ends so, history has the partial text, and the next turn works."""
    site = Control("sqlite", tmp_path)
    await site.open()
    site.say = steps = Steps()
    client = site.hermes()
    await client.session()
    stream = await client.saying("hi", run_id="r1")
    steps.word("half ")
    seen = await stream.until("half ")
    await site.crash()
    client = site.hermes()
    run = await client.run("r1")
    assert (run["status"], run["turn_exit_reason"], run["output"]) == ("interrupted", "worker_lost", "half ")
    assert run["error"]
    rest = await client.get("/api/sessions/s/chat/stream?run_id=r1", headers={"last-event-id": str(seen[-1].id)})
    assert names(rest.frames) == ["assistant.completed", "run.interrupted", "done"]
    events = [frame for frame in (await client.get("/v1/runs/r1/events")).frames if frame.data]
    assert names(events) == ["message.delta", "run.interrupted"]
    page = await client.history()
    assert spoken(page) == [("user", "hi"), ("assistant", "half ")]
    assert (page["runs"][0]["status"], page["session"]["status"]) == ("interrupted", "error")
    assert page["data"][1]["finish_reason"] is None
    site.say = echo
    assert (await client.say("next")).json["message"]["content"] == "You said: next"
    await site.close()


async def test_a_lost_pause(tmp_path: Any) -> None:
    """A run that waited for a decision in a process that died is interrupted(pause_lost), never a success."""
    site = Control("sqlite", tmp_path)
    await site.open()
    site.say = asking
    client = site.hermes()
    await client.begin("hi", run_id="r1")
    id = (await client.until("r1", "waiting_for_approval"))["approval"]["request_id"]
    await site.crash()
    client = site.hermes()
    run = await client.run("r1")
    assert (run["status"], run["turn_exit_reason"]) == ("interrupted", "pause_lost")
    late = await client.post("/v1/runs/r1/approval", {"choice": "once", "request_id": id})
    assert (late.status, late.code) == (409, "approval_not_pending")
    await site.close()


async def test_an_expired_request(control: Control) -> None:
    """A request that nobody answers in time expires: the agent is told so, and a late answer is refused."""
    engine = EngineConfig(approval_timeout=0.0, sweep_every=3600.0)
    control.config = msgspec.structs.replace(control.config, engine=engine)
    await control.restart()
    control.say = asking
    client = control.hermes()
    await client.begin("hi", run_id="r1")
    id = (await client.until("r1", "waiting_for_approval"))["approval"]["request_id"]
    await control.app.engine._upkeep.sweep()
    run = await client.until("r1")
    assert (run["status"], run["approvals"][0]["choice"]) == ("completed", "expired")
    late = await client.post("/v1/runs/r1/approval", {"choice": "once", "request_id": id})
    assert (late.status, late.code) == (409, "approval_not_pending")


async def test_draining(control: Control) -> None:
    """S18: a server that ends refuses new turns with 503 and `Retry-After`, reads work, and a running turn gets its end."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.session()
    stream = await client.saying("hi", run_id="r1")
    await steps.started.wait()
    ending = asyncio.create_task(control.app.engine.end_runs(drain_timeout=5.0))
    await asyncio.wait({ending}, timeout=0.01)
    for answer in (await client.say("x"), await client.post("/v1/runs", {"input": "x"})):
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "gateway_draining", "1")
    assert (await client.history())["session"]["status"] == "running"
    steps.word("last words")
    steps.end()
    assert names(frames_of(await stream.rest()))[-2:] == ["run.completed", "done"]
    await ending


async def test_an_interrupted_turn(control: Control) -> None:
    """S18: a turn that outlives its drain time ends with `run.interrupted` before the stream does."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.session()
    stream = await client.saying("hi", run_id="r1")
    await steps.started.wait()
    await control.app.engine.end_runs(drain_timeout=0.0)
    frames = frames_of(await stream.rest())
    assert names(frames)[-2:] == ["run.interrupted", "done"]
    assert frames[-2].json["turn_exit_reason"] == "shutdown"


async def test_agent_errors_are_not_shown(live: Control) -> None:
    """A failure that the agent did not mean for callers is told in general words, everywhere."""

    async def say(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        if prompt_of(messages) == "secret":
            raise ValueError("password=hunter2")
        raise RunnerError("Say please.")
        yield ""

    live.say = say
    client = live.hermes()
    for text, message in (("secret", "The agent failed."), ("plain", "Say please.")):
        await client.session(text)
        answer = await client.say(text, text, run_id=text)
        run = await client.run(text)
        assert (answer.json["error"]["message"], run["error"], run["status"]) == (message, message, "failed")
        assert "hunter2" not in str(await client.history(text))
    assert {"failed"} <= OVER


async def test_a_stream_of_a_steered_turn(control: Control) -> None:
    """A streamed turn that was steered into a running one is that run's stream from where its input was delivered."""
    control.say = digging = Digging()
    client = control.hermes()
    await client.begin("one", session_id="s", run_id="r1")
    await digging.digs.wait()
    native = await client.open("GET", "/v1/runs/r1/events?format=native")
    second = client.send("POST", "/api/sessions/s/chat/stream", json={"message": "two", "busy": "steer"})
    await native.until("input_received")
    await native.close()
    digging.release.set()
    digging.end.set()
    await second.started()
    frames = frames_of(await second.rest())
    assert names(frames) == ["assistant.delta", "assistant.completed", "run.completed", "done"]
    assert frames[0].json["run_id"] == "r1" and said(frames) == "Heard two."
    assert "idempotency-replayed" not in dict(second.headers)
    assert spoken(await client.history())[-2:] == [("user", "two"), ("assistant", "Heard two.")]


async def test_a_run_that_waits_for_people_does_not_hold_up_the_end(control: Control) -> None:
    """S18: a server that ends gives its drain time to agents that work, not to one that waits for a decision."""
    control.say = asking
    client = control.hermes()
    await client.begin("hi", run_id="r1")
    await client.until("r1", "waiting_for_approval")
    began = time.monotonic()
    await control.app.engine.end_runs(drain_timeout=30.0)
    assert time.monotonic() - began < 5
    assert (await client.run("r1"))["status"] == "interrupted"
