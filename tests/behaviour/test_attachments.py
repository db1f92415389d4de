"""Files of a turn while they are read: the run is there first, says how far it is, and can be stopped."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

from runstone.runners.agent_context import AgentContext
from tests.behaviour.control import Control

COUNT = 12


async def reading(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Says what it read."""
    payload = await context.payload()
    yield " ".join(found["text"] for found in payload["attachment_results"])


def files(count: int) -> list[dict[str, Any]]:
    """A turn with that many files, no two alike."""
    content = [
        {"type": "input_file", "filename": f"{n}.txt", "file_data": base64.b64encode(b"%d" % n).decode()}
        for n in range(count)
    ]
    return [{"role": "user", "content": content}]


async def test_reading_is_told_file_by_file(live: Control) -> None:
    """Each file that is read is an event of the run, in the order of the files."""
    live.say = reading
    client = live.hermes()
    answer = await client.respond(files(2), run_id="r-1")
    assert answer.json["output_text"] == "0 1"
    events = [frame.json for frame in (await client.get("/v1/runs/r-1/events?format=native")).frames]
    told = [event["data"] for event in events if event.get("name") == "attachment"]
    assert [(one["name"], one["status"]) for one in told] == [("0.txt", "ok"), ("1.txt", "ok")]


async def test_reading_is_stopped_with_its_run(live: Control) -> None:
    """A run that is stopped while its files are read ends at once, and the rest of them is not read."""
    live.say = reading
    client = live.hermes()
    await client.respond(files(COUNT), run_id="r-1", background=True)
    stream = await client.open("GET", "/v1/runs/r-1/events?format=native")
    await stream.until('"attachment"')
    await client.post("/v1/runs/r-1/stop")
    assert (await client.until("r-1"))["status"] == "cancelled"
    events = [frame.json for frame in (await client.get("/v1/runs/r-1/events?format=native")).frames]
    assert 1 <= len([event for event in events if event.get("name") == "attachment"]) < COUNT
    await stream.close()


async def test_reading_comes_before_the_agent(live: Control) -> None:
    """An agent that never asks, and one that asks twice, find the files read once, before they said a word."""

    async def silent_reader(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield "word"
        first = await context.payload()
        assert await context.payload() == first

    for run_id, agent in (("r-1", reading), ("r-2", silent_reader)):
        live.say = agent
        client = live.hermes()
        await client.respond(files(1), run_id=run_id)
        frames = (await client.get(f"/v1/runs/{run_id}/events?format=native")).frames
        order = [frame.event for frame in frames if frame.event in ("custom", "text_delta")]
        assert order == ["custom", "text_delta"]
