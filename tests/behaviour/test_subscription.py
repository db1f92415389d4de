"""A session followed apart from any one request, over SSE and WebSocket."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from typing import Any

import msgspec
import pytest

from runstone.config import EngineConfig
from tests.behaviour.client import Connection, Frame, frames_of
from tests.behaviour.control import Control, Hermes
from tests.behaviour.site import Steps

EVENTS = "/api/sessions/s/events"


async def followed(client: Hermes, query: str = "", **more: Any) -> Connection:
    """A subscription, from where on is clear."""
    stream = await client.open("GET", f"{EVENTS}{query}", **more)
    assert stream.status == 200
    assert await stream.write() == b": ping\n"
    return stream


async def whole(client: Hermes, count: int, query: str = "?after=0", **more: Any) -> list[Frame]:
    """The first `count` frames of a subscription that is left then."""
    stream = await followed(client, query, **more)
    body = b""
    while len(frames_of(body)) < count:
        body += await stream.write() or b""
    await stream.close()
    return frames_of(body)[:count]


async def test_commands_and_output_travel_apart(control: Control) -> None:
    """A start that asks for the receipt only is told what it is; the subscription has the run's start, text and end."""
    client = control.hermes()
    await client.session()
    stream = await followed(client)
    for route in ("/chat", "/chat/stream"):
        answer = await client.post(f"/api/sessions/s{route}", {"message": "hi", "accepted_only": True})
        assert answer.status == 202
        run_id = answer.json["run_id"]
        frames = await stream.until("run_ended")
        assert frames[0].event == "run_created"
        assert {frame.json["run_id"] for frame in frames} == {run_id}
        assert frames[-1].json["outcome"] == "completed"
    await stream.close()


@pytest.mark.parametrize("format", ["native", "hermes", "chat"])
async def test_every_position_replays_what_follows(control: Control, format: str) -> None:
    """By every id of a session's stream, in each format, exactly what follows it comes again; each frame names its run."""
    client = control.hermes()
    await client.session()
    for text in ("one", "two"):
        await client.say(text)
    query = f"?format={format}"
    first = await whole(client, 5, f"{query}&after=0")
    count = {"native": 18, "hermes": 12, "chat": 8}[format]
    stream = await followed(client, f"{query}&after=0")
    frames: list[Frame] = []
    while not (len(frames) >= count and stream.left == b""):
        frames += frames_of(await asyncio.wait_for(_some(stream), 5))
    await stream.close()
    assert [f.text for f in frames[:5]] == [f.text for f in first]
    assert len({frame.json["run_id"] for frame in frames}) == 2
    for n, frame in enumerate(frames[:-1]):
        again = await whole(client, len(frames) - n - 1, query, headers={"last-event-id": str(frame.id)})
        assert [f.text for f in again] == [f.text for f in frames[n + 1 :]]


async def _some(stream: Connection) -> bytes:
    return await stream.write() or b""


async def test_positions_mean_the_same_in_every_format(control: Control) -> None:
    """o-run-11: an id read in a format that shows little is a place in the whole log: nothing after it is left out in another."""
    client = control.hermes()
    await client.session()
    await client.say("one")
    everything = await whole(client, 9, "?format=native&after=0")
    for frame in await whole(client, 4, "?format=chat&after=0"):
        position = int(str(frame.id).split(".")[0])
        following = [found for found in everything if int(str(found.id)) > position]
        again = await whole(client, len(following), f"?format=native&after={position}")
        assert [found.text for found in again] == [found.text for found in following]


async def test_replay_then_live_in_one_order(control: Control) -> None:
    """A reader from the middle of a run gets what was, then what comes, in the order of positions, each once."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.session()
    await client.begin("hi", session_id="s")
    steps.word("one ", "two ")
    live = await followed(client, "?after=0")
    seen = await live.until("two ")
    late = await followed(client, f"?after={seen[3].id}")
    steps.word("three")
    steps.end()
    rest = [*seen, *await live.until("run_ended")]
    again = await late.until("run_ended")
    assert [f.text for f in again] == [f.text for f in rest[4:]]
    positions = [int(str(frame.id)) for frame in rest]
    assert positions == sorted(set(positions))
    await live.close()
    await late.close()


async def test_the_socket_says_what_the_stream_says(control: Control) -> None:
    """A WebSocket has the same ids, events and data as the stream."""
    client = control.hermes()
    await client.session()
    await client.say("hi")
    stream = await followed(client, "?after=0")
    frames = await stream.until("run_ended")
    await stream.close()
    socket = await client.socket(f"{EVENTS}?after=0")
    messages = await socket.until("run_ended")
    assert messages == [{"id": f.id, "event": f.event, "data": f.json} for f in frames]
    assert socket.accepted is not None
    headers = {name.decode(): value.decode() for name, value in socket.accepted["headers"]}
    assert headers["X-Hermes-Session-Id"] == "s" and headers["x-request-id"].startswith("req_")
    await socket.close()


async def test_a_socket_only_listens(live: Control) -> None:
    """A client that says something on the socket is told that it is the wrong place."""
    client = live.hermes()
    await client.session()
    socket = await client.socket(EVENTS)
    socket.say("hello")
    assert await socket.message() is None
    assert socket.closed == 1003
    await asyncio.wait_for(socket.task, 5)


async def test_sockets_pass_the_same_door(live: Control) -> None:
    """Keys, names and origins hold for sockets; a browser offers its key as a subprotocol; refusals are HTTP answers."""
    ann, _ = await live.with_keys()
    await ann.post("/api/sessions", {"id": "s"})
    client = live.hermes()
    assert (await client.socket(EVENTS)).status == 401
    assert (await client.socket(EVENTS, key="sk-wrong")).status == 401
    bob = await client.socket(EVENTS, key="sk-bob")
    assert (bob.status, bob.code) == (404, "session_not_found")
    evil = await client.socket(EVENTS, headers=[("origin", "https://evil.example")], key="sk-ann")
    assert (evil.status, evil.code) == (403, "origin_not_allowed")
    foreign = Hermes(live.app.asgi)
    assert (await foreign.socket("/api/sessions/nobody/chat", key="sk-ann")).status == 405
    assert (await foreign.socket("/nowhere", key="sk-ann")).status == 404
    word = urlsafe_b64encode(b"sk-ann").decode().rstrip("=")
    offered = await client.socket(EVENTS, subprotocols=["runstone", f"runstone.bearer.{word}"])
    assert offered.accepted is not None and offered.accepted["subprotocol"] == "runstone"
    await offered.close()
    assert (await client.socket(EVENTS, subprotocols=["runstone.bearer.%%%"])).status == 401
    with_key = await client.socket(EVENTS, key="sk-ann")
    assert with_key.accepted is not None and with_key.accepted["subprotocol"] is None
    await with_key.close()


@pytest.mark.parametrize("cursor", ["abc", "99999", "-1", "1.7", "0.0"])
async def test_unknown_positions_are_refused(live: Control, cursor: str) -> None:
    """o-run-03: a position that the session never gave is 400, on both transports."""
    client = live.hermes()
    await client.session()
    await client.say("hi")
    answer = await client.get(f"{EVENTS}?after={cursor}")
    assert (answer.status, answer.code) == (400, "cursor_unknown")
    socket = await client.socket(f"{EVENTS}?after={cursor}")
    assert (socket.status, socket.code) == (400, "cursor_unknown")


@pytest.mark.parametrize(("format", "code"), [("xml", None), ("adk", "unsupported_format")])
async def test_formats_that_are_not_served(live: Control, format: str, code: str | None) -> None:
    """A format that is none, or is not served, is refused."""
    client = live.hermes()
    await client.session()
    answer = await client.get(f"{EVENTS}?format={format}")
    assert (answer.status, answer.code) == (400, code)


async def test_a_deleted_session_ends_its_streams(control: Control) -> None:
    """Who follows a session is let go when it is deleted, and gets nothing of another session with its id."""
    client = control.hermes()
    await client.session()
    stream, socket = await followed(client), await client.socket(EVENTS)
    assert (await client.delete("/api/sessions/s")).status == 200
    await client.session()
    await client.say("hi")
    assert await stream.rest() == b""
    assert await socket.message() is None
    assert socket.closed == 1000
    assert (await client.get(f"{EVENTS}?after=99")).status == 400


async def test_the_end_of_the_server_ends_streams(live: Control) -> None:
    """S18: at the end of the server a subscription gets what still happens to runs, and ends."""
    live.configure(drain_timeout=0.0)
    await live.restart(drain_timeout=0.0)
    live.say = steps = Steps()
    client = live.hermes()
    await client.session()
    await client.begin("hi", session_id="s")
    await steps.started.wait()
    stream, socket = await followed(client, "?after=0"), await client.socket(f"{EVENTS}?after=0")
    await live.app.engine.end_runs()
    frames = frames_of(await stream.rest())
    assert (frames[-1].event, frames[-1].json["outcome"]) == ("run_ended", "interrupted")
    assert (await socket.until("run_ended"))[-1]["data"]["reason"] == "shutdown"
    assert await socket.message() is None
    assert socket.closed == 1001


async def test_expired_positions(control: Control) -> None:
    """Positions before a compacted run's end are 410 and name the oldest that works; from there on all is there."""
    control.config = msgspec.structs.replace(control.config, engine=EngineConfig(events_ttl=0.0, sweep_every=3600.0))
    await control.restart()
    client = control.hermes()
    await client.session()
    await client.say("one")
    frames = await whole(client, 9)
    assert frames[-1].event == "run_ended"
    await control.app.engine._upkeep.sweep()
    await client.say("two")
    for after in (0, 3):
        answer = await client.get(f"{EVENTS}?after={after}")
        assert (answer.status, answer.code) == (410, "cursor_expired")
        assert answer.json["error"]["oldest"] == frames[-1].id
    oldest = answer.json["error"]["oldest"]
    again = await whole(client, 9, f"?after={oldest}")
    assert (again[0].event, again[-1].event) == ("run_created", "run_ended")
    assert int(str(again[0].id)) == int(oldest) + 1
