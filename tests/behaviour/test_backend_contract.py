"""The backend contract, rule by rule: run ids, event ids, resuming, history, status of sessions, receiving apart.

Each docstring says the rule in our words; OpenAI's and Hermes' sections are here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runstone.errors import RunnerError
from runstone.runners.agent_context import AgentContext
from tests.behaviour.client import Frame, frames_of, text_of
from tests.behaviour.control import Control, Hermes, names, said
from tests.behaviour.site import Steps

STATUSES = {"idle", "running", "error", "unknown"}


async def two_calls(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Thinks, asks a model, uses a tool, asks a model again."""
    async with context.step(model="model-a"):
        context.reasoning("the weather is needed")
        yield "Let me look."
        async with context.tool("weather", {"city": "Beijing"}) as call:
            call.result({"temp": 20})
    async with context.step(model="model-a") as step:
        yield "20 degrees."
        step.usage(input_tokens=20, output_tokens=10)


async def broken_tool(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Uses a tool that fails, and goes on."""
    async with context.tool("weather", {}) as call:
        call.fail("no such city")
    yield "Sorry."


async def failing(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Fails after a word."""
    yield "Well"
    raise RunnerError("the model is away")


async def asking(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Waits for leave."""
    await context.approve("delete", {})
    yield "Done."


async def chat_page(client: Hermes, session: str = "s", query: str = "") -> dict[str, Any]:
    """History in Chat's shape."""
    return dict((await client.get(f"/v1/chat/sessions/{session}/messages{query}")).json)


async def chat_frames(client: Hermes, text: str = "hi", **fields: Any) -> list[Frame]:
    """A whole streamed turn over Chat."""
    return frames_of(await (await client.stream(text, session_id="s", **fields)).rest())


async def resumed(client: Hermes, run_id: str, event_id: str) -> list[Frame]:
    """What Chat's stream of the run has after the event."""
    target = f"/v1/chat/completions/{run_id}?stream=true"
    return (await client.get(target, headers={"last-event-id": event_id})).frames


async def test_one_run_id_for_a_whole_turn(control: Control) -> None:
    """A turn keeps one run id however many model calls and tools are in it: in both histories, in the stream and as a run."""
    control.say = two_calls
    client = control.hermes()
    frames = await chat_frames(client, run_id="r-1")
    page, rows = await chat_page(client), await client.history()
    assert frames[0].json["run_id"] == "r-1"
    assert {message["run_id"] for message in page["messages"]} == {"r-1"}
    assert {row["run_id"] for row in rows["data"]} == {"r-1"}
    assert [run["id"] for run in page["runs"]] == [run["id"] for run in rows["runs"]] == ["r-1"]


async def test_every_verb_takes_the_run_id(live: Control) -> None:
    """Stop, steer, resume and regenerate say by run id which turn they mean."""
    live.say = Steps()
    client = live.hermes()
    await client.begin("hi", run_id="r-1", session_id="s")
    steered = await client.post("/v1/runs/r-1/steer", {"input": "shorter"})
    stopped = await client.post("/v1/runs/r-1/stop")
    await client.until("r-1")
    again = await client.post("/v1/runs/r-1/regenerate")
    assert (steered.status, stopped.status, again.status) == (200, 200, 202)
    assert (await client.get("/v1/runs/r-1/events")).status == 200


async def test_the_local_run_id_is_the_runs_id(live: Control) -> None:
    """A command names its run, and the events on the other channel bear that id, so that a receipt has to map nothing."""
    client = live.hermes()
    await client.session()
    assert (await client.begin("hi", run_id="local-7", session_id="s"))["run_id"] == "local-7"
    await client.until("local-7")
    stream = await client.open("GET", "/api/sessions/s/events?after=0&format=hermes")
    frames = await stream.until("run.completed")
    assert {frame.json["run_id"] for frame in frames if frame.data} == {"local-7"}
    await stream.close()


async def test_an_event_id_on_every_chunk(live: Control) -> None:
    """A protocol without event ids has them in SSE's `id:`, on every frame but the end mark; the data stays as it is."""
    live.say = two_calls
    frames = await chat_frames(live.hermes())
    assert [frame.data for frame in frames if frame.id is None] == ["[DONE]"]
    assert len({frame.id for frame in frames}) == len(frames)
    assert all("id" not in frame.json["choices"][0]["delta"] for frame in frames[:-1])


async def test_resuming_sends_only_what_follows(control: Control) -> None:
    """After each event id exactly the rest comes, once, up to the end; the agent is not asked again."""
    control.say = two_calls
    client = control.hermes()
    frames = await chat_frames(client, run_id="r-1")
    for n, frame in enumerate(frames[:-1]):
        assert frame.id is not None
        rest = await resumed(client, "r-1", frame.id)
        assert [one.text for one in rest] == [one.text for one in frames[n + 1 :]]
    assert control.calls == 1


async def test_resuming_a_run_that_goes_on(control: Control) -> None:
    """A cut leaves the turn without a conclusion; what comes after the last id joins on to the same answer."""
    steps = Steps()
    control.say = steps
    client = control.hermes()
    stream = await client.stream("hi", session_id="s", run_id="r-1")
    steps.word("one ")
    before = await stream.until("one ")
    await stream.close()
    assert (await client.run("r-1"))["status"] == "running"
    assert before[-1].id is not None
    target = "/v1/chat/completions/r-1?stream=true"
    again = await client.open("GET", target, headers={"last-event-id": before[-1].id})
    steps.word("two")
    steps.end()
    after = frames_of(await again.rest())
    assert text_of([*before, *after]) == "one two"
    assert after[-1].data == "[DONE]"


@pytest.mark.parametrize("cursor", ["999", "e3", "-1"])
async def test_a_cursor_that_is_none(live: Control, cursor: str) -> None:
    """An id that no event of the run has is an error, not the whole stream again."""
    client = live.hermes()
    await chat_frames(client, run_id="r-1")
    answer = await client.get("/v1/chat/completions/r-1?stream=true", headers={"last-event-id": cursor})
    assert (answer.status, answer.code) == (400, "cursor_unknown")


async def test_finish_reasons_end_steps_and_done_ends_the_stream(live: Control) -> None:
    """`finish_reason` concludes a model's step, after which the next may follow; `[DONE]` is the end."""
    live.say = two_calls
    frames = await chat_frames(live.hermes(), dialect="steps")
    reasons = [choice["finish_reason"] for frame in frames[:-1] for choice in frame.json["choices"]]
    assert [reason for reason in reasons if reason] == ["tool_calls", "stop"]
    assert [frame.data for frame in frames].count("[DONE]") == 1
    assert frames[-1].data == "[DONE]"


async def test_errors_are_a_status_or_a_chunk(live: Control) -> None:
    """A failure is a status other than 2xx, or a chunk with an `error` object when the stream has begun."""
    live.say = failing
    client = live.hermes()
    frames = await chat_frames(client)
    assert (await client.chat("hi", session_id="s")).status == 500
    assert frames[-2].json["error"]["message"] == "the model is away"
    assert frames[-1].data == "[DONE]"


async def test_messages_of_chat_history(control: Control) -> None:
    """Messages have id, run and time, oldest first; reasoning, calls and results are where Chat has them."""
    control.say = two_calls
    client = control.hermes()
    await chat_frames(client, run_id="r-1")
    user, first, tool, last = (await chat_page(client))["messages"]
    assert [message["role"] for message in (user, first, tool, last)] == ["user", "assistant", "tool", "assistant"]
    assert len({message["id"] for message in (user, first, tool, last)}) == 4
    assert all(type(message["created_at"]) is int for message in (user, first, tool, last))
    (call,) = first["tool_calls"]
    assert (first["reasoning_content"], first["content"]) == ("the weather is needed", "Let me look.")
    assert (call["type"], call["function"]["name"]) == ("function", "weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Beijing"}
    assert (tool["tool_call_id"], json.loads(tool["content"])) == (call["id"], {"temp": 20})


async def test_runs_of_chat_history(control: Control) -> None:
    """Each run has its outcome, its times, its model and what was counted."""
    control.say = two_calls
    client = control.hermes()
    await chat_frames(client, run_id="r-1")
    control.say = failing
    await chat_frames(client, "more", run_id="r-2")
    first, second = (await chat_page(client))["runs"]
    assert (first["id"], first["status"], first["usage"]["total_tokens"]) == ("r-1", "completed", 30)
    assert first["created_at"] <= first["finished_at"]
    assert first["model"] == "agent"
    assert (second["id"], second["status"]) == ("r-2", "failed")


async def test_a_failed_tool_in_chat_history(control: Control) -> None:
    """Content that is exactly `{"error": reason}` is a failed call; nothing else stands beside it."""
    control.say = broken_tool
    client = control.hermes()
    await chat_frames(client)
    (tool,) = [message for message in (await chat_page(client))["messages"] if message["role"] == "tool"]
    assert json.loads(tool["content"]) == {"error": "no such city"}


async def test_pages_of_chat_history(control: Control) -> None:
    """`cursor` and `has_more` lead to the page before, until there is none; the pages joined are the whole."""
    client = control.hermes()
    for n in range(3):
        await chat_frames(client, f"turn {n}")
    whole: list[Any] = (await chat_page(client))["messages"]
    found: list[Any] = []
    query = "?limit=2"
    while True:
        page = await chat_page(client, query=query)
        found = page["messages"] + found
        if not page["has_more"]:
            break
        query = f"?limit=2&before={page['cursor']}"
    assert [message["id"] for message in found] == [message["id"] for message in whole]
    assert len(whole) == 6


async def test_the_place_of_a_running_run_fits_its_history(control: Control) -> None:
    """`last_event_id` of a running run stands for the messages that are given: what follows it is what they lack."""
    steps = Steps()
    control.say = steps
    client = control.hermes()
    stream = await client.stream("hi", session_id="s", run_id="r-1")
    steps.word("one ")
    await stream.until("one ")
    page = await chat_page(client)
    (run,) = page["runs"]
    assert (run["status"], page["active_run"]) == ("running", {"run_id": "r-1", "event_id": run["last_event_id"]})
    assert page["messages"][-1]["content"] == "one "
    steps.word("two")
    steps.end()
    await client.until("r-1")
    assert text_of(await resumed(client, "r-1", run["last_event_id"])) == "two"
    await stream.close()


async def test_known_idle_is_null(control: Control) -> None:
    """`active_run` is null when it is known that none goes on, on both surfaces, and ended runs have no place to resume."""
    client = control.hermes()
    await chat_frames(client)
    for page in (await chat_page(client), await client.history()):
        assert page["active_run"] is None
        assert all("last_event_id" not in run for run in page["runs"])


async def test_the_status_of_a_session(control: Control) -> None:
    """It is idle, running, error or unknown in both histories; our finer word is beside it; waiting is not running."""
    client = control.hermes()
    await client.session()

    async def status() -> tuple[str, str]:
        sessions = [(await chat_page(client))["session"], (await client.history())["session"]]
        assert sessions[0]["status"] == sessions[1]["status"]
        assert sessions[0]["status"] in STATUSES
        return sessions[0]["status"], sessions[0]["metadata"].get("backendStatus")

    assert (await status())[0] == "idle"
    await chat_frames(client)
    assert await status() == ("idle", "completed")
    steps = Steps()
    control.say = steps
    await client.begin("hi", run_id="r-1", session_id="s")
    await steps.started.wait()
    assert await status() == ("running", "running")
    steps.end()
    await client.until("r-1")
    control.say = asking
    await client.begin("hi", run_id="r-2", session_id="s")
    await client.until("r-2", "waiting_for_approval")
    assert await status() == ("idle", "waiting")
    control.say = failing
    await chat_frames(client)
    assert await status() == ("error", "failed")


async def test_the_stream_of_hermes(control: Control) -> None:
    """Frames are `event:` and one line of JSON: started, deltas and tools, one outcome, then `done` and nothing after it."""
    control.say = two_calls
    client = control.hermes()
    await client.session()
    frames = frames_of(await (await client.saying("hi")).rest())
    told = names(frames)
    assert told[0] == "run.started"
    assert told[-2:] == ["run.completed", "done"]
    assert {"assistant.delta", "tool.started", "tool.completed"} < set(told)
    assert all(frame.event and type(frame.json) is dict for frame in frames)
    assert said(frames) == "Let me look.\n\n20 degrees."


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled"])
async def test_every_outcome_of_hermes(control: Control, outcome: str) -> None:
    """Each end has its event, the same word as in history, and `done` comes after it."""
    steps = Steps()
    control.say = failing if outcome == "failed" else steps
    client = control.hermes()
    await client.begin("hi", run_id="r-1", session_id="s")
    if outcome == "completed":
        steps.end()
    if outcome == "cancelled":
        await client.post("/v1/runs/r-1/stop")
    await ends_as(client, outcome)


async def test_an_interrupted_run_of_hermes(tmp_path: Path) -> None:
    """A run that ended by nobody's wish is interrupted, in the stream and in history, and not failed or cancelled."""
    site = Control("sqlite", tmp_path)
    await site.open()
    site.say = steps = Steps()
    await site.hermes().begin("hi", run_id="r-1", session_id="s")
    await steps.started.wait()
    await site.crash()
    await ends_as(site.hermes(), "interrupted")
    await site.close()


async def ends_as(client: Hermes, outcome: str) -> None:
    """The run of the session ends with this word everywhere."""
    await client.until("r-1")
    frames = (await client.get("/v1/runs/r-1/events?format=hermes")).frames
    assert names(frames)[-2:] == [f"run.{outcome}", "done"]
    for page in (await client.history(), await chat_page(client)):
        assert [run["status"] for run in page["runs"]] == [outcome]


async def test_the_history_of_hermes(control: Control) -> None:
    """Rows have id, run, role, content and time, reasoning and calls; runs have outcome and times."""
    control.say = two_calls
    client = control.hermes()
    await client.session()
    await client.say("hi")
    page = await client.history()
    user, first, tool, last = page["data"]
    assert [row["role"] for row in page["data"]] == ["user", "assistant", "tool", "assistant"]
    assert [row["id"] for row in page["data"]] == sorted(row["id"] for row in page["data"])
    assert all(row["timestamp"] and row["run_id"] == user["run_id"] for row in page["data"])
    assert first["reasoning"] == "the weather is needed"
    assert first["tool_calls"][0]["id"] == tool["tool_call_id"]
    assert last["content"] == "20 degrees."
    (run,) = page["runs"]
    assert (run["id"], run["status"]) == (user["run_id"], "completed")
    assert run["created_at"] <= run["finished_at"]


async def test_receiving_apart(control: Control) -> None:
    """A command is only accepted; the events come on the session's channel, and start and end of each run bear its id."""
    client = control.hermes()
    await client.session()
    channel = await client.open("GET", "/api/sessions/s/events?after=0&format=hermes")
    for n in (1, 2):
        answer = await client.post(
            "/api/sessions/s/chat", {"message": "hi", "run_id": f"r-{n}", "accepted_only": True, "busy": "queue"}
        )
        assert (answer.status, answer.json["run_id"], "message" in answer.json) == (202, f"r-{n}", False)
        frames = await channel.until("run.completed")
        ends = [frame.json["run_id"] for frame in frames if frame.event in ("run.started", "run.completed")]
        assert ends == [f"r-{n}", f"r-{n}"]
    await channel.close()


async def test_the_channel_replays_in_order_then_goes_on(control: Control) -> None:
    """A reader that comes later gets what was, from its position and in one order, and then what happens, each event once."""
    client = control.hermes()
    await client.session()
    await client.say("one")
    channel = await client.open("GET", "/api/sessions/s/events?after=0")
    past = await channel.until("run_ended")
    await client.say("two")
    future = await channel.until("run_ended")
    positions = [frame.json["position"] for frame in [*past, *future] if frame.data]
    assert positions == list(range(1, len(positions) + 1))
    await channel.close()


async def test_regenerating_is_a_run_of_the_same_turn(control: Control) -> None:
    """It has a run id of its own; history shows the newest answer in the turn's place, and no two answers to one question."""
    client = control.hermes()
    await client.session()
    await client.begin("hi", run_id="r-1", session_id="s")
    await client.until("r-1")
    again = (await client.post("/v1/runs/r-1/regenerate", {"run_id": "r-2"})).json
    await client.until(again["run_id"])
    for page in (await chat_page(client), await client.history()):
        assert [run["id"] for run in page["runs"]] == [again["run_id"]]
    assert (await client.run("r-1"))["status"] == "completed"
