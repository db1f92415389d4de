"""Turns and runs as streams, in both vocabularies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runstone.errors import RunnerError
from runstone.runners.agent_context import AgentContext
from tests.behaviour.client import frames_of
from tests.behaviour.control import Control, names, said, spoken
from tests.behaviour.site import Steps


async def with_tool(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Says something, uses a tool, says something."""
    yield "Let me "
    yield "look."
    async with context.tool("weather", {"city": "Beijing"}) as call:
        call.result({"temp": 20})
    yield "20 "
    yield "degrees."


async def with_broken_tool(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Uses a tool that raises, and goes on."""
    with contextlib.suppress(RunnerError):
        async with context.tool("weather", {"city": "Beijing"}):
            raise RunnerError("no such city")
    yield "Sorry."


async def failing(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Fails after a word."""
    yield "Well"
    raise RunnerError("the model is away")


async def test_order_of_a_turn(control: Control) -> None:
    """S3: a turn of text, tool, text comes in the documented order, numbered from 1, under one run and one message id."""
    control.say = with_tool
    client = control.hermes()
    await client.session()
    stream = await client.saying("hi")
    frames = frames_of(await stream.rest())
    assert names(frames) == [
        "run.started",
        "message.started",
        "assistant.delta",
        "assistant.delta",
        "tool.started",
        "tool.completed",
        "assistant.delta",
        "assistant.delta",
        "assistant.completed",
        "run.completed",
        "done",
    ]
    assert [frame.json["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    assert len({frame.json["run_id"] for frame in frames}) == 1
    assert len({frame.json["message_id"] for frame in frames if "message_id" in frame.json}) == 1
    assert all(frame.text.count("data: ") == 1 for frame in frames)
    assert all(frame.id is not None for frame in frames[:-1]) and frames[-1].id is None
    assert dict(stream.headers)["content-type"] == "text/event-stream"
    assert dict(stream.headers)["x-hermes-session-id"] == "s"


async def test_text_of_a_turn(control: Control) -> None:
    """S4: the deltas joined are the visible text; `assistant.completed` has the content of the last row of history."""
    control.say = with_tool
    client = control.hermes()
    await client.session()
    frames = frames_of(await (await client.saying("hi")).rest())
    assert said(frames) == "Let me look.\n\n20 degrees."
    completed = next(frame.json for frame in frames if frame.event == "assistant.completed")
    assert completed["content"] == (await client.history())["data"][-1]["content"] == "20 degrees."


async def test_tools_of_a_turn(control: Control) -> None:
    """S5: tool events and history rows carry one call id; a tool that raises fails, and the run completes."""
    control.say = with_tool
    client = control.hermes()
    await client.session()
    frames = {frame.event: frame.json for frame in frames_of(await (await client.saying("hi")).rest())}
    rows = (await client.history())["data"]
    call = next(row for row in rows if row["tool_calls"])["tool_calls"][0]
    result = next(row for row in rows if row["role"] == "tool")
    ids = {frames["tool.started"]["tool_call_id"], frames["tool.completed"]["tool_call_id"]}
    assert ids == {call["id"], result["tool_call_id"]} and len(ids) == 1
    assert (json.loads(result["content"]), result["tool_name"]) == ({"temp": 20}, "weather")
    control.say = with_broken_tool
    broken = {frame.event: frame.json for frame in frames_of(await (await client.saying("again")).rest())}
    assert broken["tool.failed"]["error"] == {"message": "no such city"}
    assert broken["run.completed"]["completed"] is True


async def test_a_failed_turn(control: Control) -> None:
    """S6: a failure is `run.failed` with its error and never `run.completed`; a body is no success; the next turn works."""
    control.say = failing
    client = control.hermes()
    await client.session()
    frames = frames_of(await (await client.saying("hi")).rest())
    assert names(frames)[-4:] == ["assistant.completed", "error", "run.failed", "done"]
    assert frames[-2].json["error"] == {"message": "the model is away", "code": "agent_error"}
    answer = await client.say("again")
    assert (answer.status, answer.code) == (500, "agent_error")
    page = await client.history()
    assert [run["status"] for run in page["runs"]] == ["failed", "failed"]
    assert page["session"]["status"] == "error"
    control.say = with_tool
    assert (await client.say("third")).json["message"]["content"] == "20 degrees."
    assert (await client.history())["session"]["status"] == "idle"


async def test_a_dropped_turn_goes_on(control: Control) -> None:
    """S7, o-run-01: after a drop the run goes on; the rest comes exactly once by `Last-Event-ID`, history has it once."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.session()
    stream = await client.saying("hi")
    steps.word("one ", "two ", "three ")
    seen = await stream.until("three ")
    await stream.close()
    run_id = seen[0].json["run_id"]
    assert (await client.run(run_id))["status"] == "running"
    rest = await client.open("GET", "/api/sessions/s/chat/stream", headers={"last-event-id": str(seen[-1].id)})
    steps.word("four")
    steps.end()
    frames = frames_of(await rest.rest())
    assert said(seen) + said(frames) == "one two three four"
    assert names(frames)[-3:] == ["assistant.completed", "run.completed", "done"]
    numbers = [frame.json["seq"] for frame in [*seen, *frames]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert (await client.run(run_id))["status"] == "completed"
    assert spoken(await client.history()) == [("user", "hi"), ("assistant", "one two three four")]


async def test_every_cursor_of_a_turn(control: Control) -> None:
    """S7: by every id of the stream, also after the end, exactly what follows it comes again, byte for byte."""
    control.say = with_tool
    client = control.hermes()
    await client.session()
    stream = await client.saying("hi", run_id="r1")
    whole = frames_of(await stream.rest())
    for method in ("GET", "POST"):
        for n, frame in enumerate(whole[:-1]):
            again = await client.ask(
                method,
                "/api/sessions/s/chat/stream?run_id=r1",
                json={"message": "hi", "run_id": "r1"} if method == "POST" else None,
                headers={"last-event-id": str(frame.id)},
            )
            assert [f.text for f in again.frames] == [f.text for f in whole[n + 1 :]]
    assert control.calls == 1


@pytest.mark.parametrize("cursor", ["abc", "99999", "-1", "3.7", "0.0"])
async def test_unknown_cursors_are_refused(live: Control, cursor: str) -> None:
    """o-run-03: an id that no stream of the run gave is refused on both streams."""
    client = live.hermes()
    await client.session()
    await client.say("hi", run_id="r1")
    for target in ("/api/sessions/s/chat/stream?run_id=r1", "/v1/runs/r1/events"):
        answer = await client.get(target, headers={"last-event-id": cursor})
        assert (answer.status, answer.code) == (400, "cursor_unknown")


async def test_a_resuming_start_names_its_run(live: Control) -> None:
    """A start with `Last-Event-ID` that names no run, or one that is not there, starts nothing."""
    client = live.hermes()
    await client.session()
    for body, status in (({}, 400), ({"run_id": "nobody"}, 404)):
        stream = await client.saying("hi", headers={"last-event-id": "3"}, **body)
        assert stream.status == status
        await stream.close()
    assert live.calls == 0


async def test_subscribers_of_a_run(control: Control) -> None:
    """S8: two readers of a run get every frame; the first byte comes before the first event; `last_seq` is `Last-Event-ID`."""
    control.say = steps = Steps()
    client = control.hermes()
    receipt = await client.begin("hi", run_id="r1")
    assert receipt == {"run_id": "r1", "status": "started", "replayed": False, "session_id": "r1"}
    readers = [await client.open("GET", "/v1/runs/r1/events") for _ in range(2)]
    for reader in readers:
        assert (await reader.write()) == b": open\n\n"
    steps.word("one ", "two")
    steps.end()
    bodies = [await reader.rest() for reader in readers]
    assert bodies[0].replace(b": ping\n", b"") == bodies[1].replace(b": ping\n", b"")
    frames = [frame for frame in frames_of(bodies[0]) if frame.data]
    assert names(frames) == ["message.delta", "message.delta", "run.completed"]
    assert [frame.json["seq"] for frame in frames] == [0, 1, 2]
    assert bodies[0].endswith(b": stream closed\n\n")
    for frame in frames:
        by_id = await client.get("/v1/runs/r1/events", headers={"last-event-id": str(frame.id)})
        by_number = await client.get(f"/v1/runs/r1/events?last_seq={frame.json['seq']}")
        assert by_id.body == by_number.body
        shown = [f.text for f in by_id.frames if f.data]
        assert shown == [f.text for f in frames[frame.json["seq"] + 1 :]]
        assert by_id.body.endswith(b": stream closed\n\n")


async def test_a_run_as_the_log_has_it(control: Control) -> None:
    """A run's stream can be had in either vocabulary and as the log has it; another format is refused."""
    control.say = with_tool
    client = control.hermes()
    await client.session()
    whole = frames_of(await (await client.saying("hi", run_id="r1")).rest())
    again = await client.get("/v1/runs/r1/events?format=hermes")
    assert [frame.text for frame in again.frames] == [frame.text for frame in whole]
    native = (await client.get("/v1/runs/r1/events?format=native")).frames
    assert [native[0].event, native[-2].event, native[-1].event] == ["run_created", "run_ended", "done"]
    assert [frame.id for frame in native[:-1]] == [str(n) for n in range(1, len(native))]
    assert (await client.get("/v1/runs/r1/events?format=xml")).status == 400
