"""Streams of a run of many events: writes, slices, every kind of cursor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runstone.app import App
from runstone.config import Config, EngineConfig
from tests.behaviour.client import Answer, Client, chat_body, frames_of, text_of

WORDS = 3_000
CHAT = "/v1/chat/completions"


async def many(messages: list[dict[str, Any]]) -> AsyncIterator[str]:
    """Says a lot, some of it large."""
    for n in range(WORDS):
        yield f"w{n} " if n % 1_000 else "x" * 50_000


@pytest.fixture(params=["memory", "sqlite"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A server whose memory of a run is short, so that readers go to the store."""
    engine = EngineConfig(ring_events=50, page_events=700)
    url = "memory" if request.param == "memory" else str(tmp_path / "runs.db")
    app = App(many, name="agent", storage=url, config=msgspec.structs.replace(Config(), engine=engine))
    yield Client(app.asgi)
    await app.close()


async def test_writes_are_few_and_not_too_large(client: Client) -> None:
    """A stream is sent in as few writes as there are batches, none of them much over the limit, and complete."""
    stream = await client.open("POST", CHAT, json=chat_body("x", stream=True, session_id="s"))
    writes: list[bytes] = []
    while (piece := await stream.write()) is not None:
        writes.append(piece)
    frames = frames_of(b"".join(writes))
    assert len(frames) == WORDS + 3
    assert text_of(frames).count("w") == WORDS - 3
    assert len(writes) < WORDS / 4
    assert max(map(len, writes)) < 130_000
    assert all(write.endswith(b"\n\n") for write in writes)
    assert stream.ended_well


@pytest.mark.parametrize("place", [0, 1, 2, 699, 700, 701, 2_000, WORDS + 1])
async def test_a_cursor_anywhere(client: Client, place: int) -> None:
    """After any frame exactly the rest comes, by Chat's ids and by the numbers of Responses."""
    whole = frames_of(await (await client.open("POST", CHAT, json=chat_body("x", stream=True, session_id="s"))).rest())
    run_id = whole[0].json["run_id"]
    rest = await client.get(f"{CHAT}/{run_id}?stream=true", headers={"last-event-id": str(whole[place].id)})
    assert [f.text for f in rest.frames] == [f.text for f in whole[place + 1 :]]
    url = f"/v1/responses/resp_{run_id}?stream=true"
    numbered = (await client.get(url)).frames
    after = await client.get(f"{url}&starting_after={place}")
    assert [f.text for f in after.frames] == [f.text for f in numbered[place + 1 :]]


async def test_a_frame_of_an_event_that_has_several(client: Client) -> None:
    """A cursor `seq.k` gives the rest of the event's frames first."""
    answer: Answer = await client.post(
        CHAT, chat_body("x", stream=True, session_id="s", stream_options={"include_usage": True})
    )
    frames = answer.frames
    run_id = frames[0].json["run_id"]
    parts = [frame for frame in frames if frame.id is not None and "." in frame.id]
    for part in parts:
        rest = await client.get(f"{CHAT}/{run_id}?stream=true", headers={"last-event-id": str(part.id)})
        assert [f.text for f in rest.frames] == [f.text for f in frames[frames.index(part) + 1 :]]
    beyond = await client.get(f"{CHAT}/{run_id}?stream=true", headers={"last-event-id": "2.7"})
    assert (beyond.status, beyond.code) == (400, "cursor_unknown")
