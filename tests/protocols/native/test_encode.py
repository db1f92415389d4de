"""Native events, and a session's runs as one stream in any protocol's words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptStarted,
    Body,
    Event,
    ItemStarted,
    RunContinued,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    TextDelta,
)
from runstone.core.items import user_message
from runstone.core.runs import Leg, Run
from runstone.errors import LocalProtocolError
from runstone.protocols.base import Encoder as AnyEncoder
from runstone.protocols.base import Frame, Header, cursor_from_text
from runstone.protocols.chat.encode import Encoder as ChatEncoder
from runstone.protocols.hermes.encode import Encoder as HermesEncoder
from runstone.protocols.native.encode import Encoder, SessionEncoder, after_cursor, native_event, socket_text
from runstone.protocols.sse import to_bytes
from runstone.testing import said
from tests.protocols.strategies import numbered, runs

AT = 1_760_000_000.0
FORMATS: dict[str, Callable[[Header], AnyEncoder]] = {"native": Encoder, "hermes": HermesEncoder, "chat": ChatEncoder}
every_format = pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)


def header(run_id: str = "run_1") -> Header:
    """The header of a run's first leg."""
    run = Run(id=run_id, owner="local", session_id="s-1", agent="echo", turn=run_id, created_at=AT)
    return Header(run=run, leg=Leg(first_seq=1, created_at=AT))


def together(*streams: list[Event]) -> list[tuple[str, Event]]:
    """The events of several runs in turns, with positions that rise over all of them."""
    mixed: list[tuple[str, Event]] = []
    longest = max(len(events) for events in streams)
    for n in range(longest):
        for run, events in enumerate(streams, 1):
            if n < len(events):
                event = events[n]
                place = len(mixed) + 1
                mixed.append((f"run_{run}", Event(event.seq, place, event.at, event.attempt, event.body)))
    return mixed


class Subscriber:
    """A reader of the session from a position on, as the server makes one: it begins each run that is not known."""

    def __init__(self, make: Callable[[Header], AnyEncoder], log: list[tuple[str, Event]]) -> None:
        self.encoder = SessionEncoder(make)
        self.log = log

    def frames(self, after: str = "0") -> list[Frame]:
        """The frames that follow the cursor."""
        cursor = cursor_from_text(after)
        out: list[Frame] = []
        for run_id, event in self.log:
            if event.position < cursor.seq or (event.position == cursor.seq and cursor.k is None):
                continue
            if not self.encoder.knows(run_id):
                earlier = [e for id, e in self.log if id == run_id and e.seq < event.seq]
                self.encoder.begin(header(run_id), earlier)
            out += after_cursor(self.encoder.encode(run_id, event), event, cursor)
        return out


# -- native


@given(runs())
def test_a_native_frame_is_the_event(events: list[Event]) -> None:
    """Each event is one frame: its name is the body's type, its id the number, its data the event; the wire is the frames."""
    encoder = Encoder(header())
    for event in events:
        [frame] = encoder.encode(event)
        data = json.loads(frame.data)
        assert (frame.id, frame.event) == (str(event.seq), data["type"])
        assert data == json.loads(msgspec.json.encode(native_event("run_1", event)))
        fields = {key: value for key, value in data.items() if key not in ("run_id", "seq", "position", "at")}
        if not isinstance(event.body, AttemptStarted):
            del fields["attempt"]
        assert msgspec.convert(fields, Body) == event.body
    assert Encoder(header()).wire(events) == [to_bytes(f) for e in events for f in _again(events, e)]


def _again(events: list[Event], event: Event) -> list[Frame]:
    encoder = Encoder(header())
    frames: list[Frame] = []
    for one in events[: event.seq]:
        frames = encoder.encode(one)
    return frames


def test_a_native_stream_ends_with_a_mark_that_names_the_run() -> None:
    """After the end of the run comes `done`, without an id; nothing can follow."""
    encoder = Encoder(header())
    created, ended = numbered([RunCreated(agent="echo", input=[]), RunEnded(outcome="completed")])
    encoder.encode(created)
    assert not encoder.is_over
    encoder.encode(ended)
    assert encoder.is_over and encoder.end() == [Frame(b'{"run_id":"run_1"}', "done")]
    with pytest.raises(LocalProtocolError):
        encoder.encode(Event(3, 3, AT, 1, RunStarted()))


# -- a session


@every_format
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_session_can_be_resumed_anywhere(make: Callable[[Header], AnyEncoder], data: st.DataObject) -> None:
    """In every format, what follows a frame's id is exactly the rest, also of runs that began before it."""
    log = together(data.draw(runs()), data.draw(runs()))
    frames = Subscriber(make, log).frames()
    ids = [frame.id or "" for frame in frames]
    assert len(set(ids)) == len(ids)
    n = data.draw(st.integers(0, max(len(ids) - 1, 0)))
    if ids:
        assert Subscriber(make, log).frames(ids[n]) == frames[n + 1 :]


@every_format
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_frame_names_its_run(make: Callable[[Header], AnyEncoder], data: st.DataObject) -> None:
    """In every format each frame has its run's id, so start and end can be placed; ids are positions that rise."""
    log = together(data.draw(runs()), data.draw(runs()))
    of_position = {event.position: run_id for run_id, event in log}
    places = []
    for frame in Subscriber(make, log).frames():
        place = cursor_from_text(frame.id or "")
        assert json.loads(frame.data)["run_id"] == of_position[place.seq]
        places.append(place.seq)
    assert places == sorted(places)


PAUSED: list[Body] = [
    RunCreated(agent="echo", input=[user_message("in1", "?")]),
    RunStarted(),
    ApprovalRequested(approval_id="a1", kind="confirm"),
    ApprovalRequested(approval_id="a2", kind="confirm"),
    RunPaused(approvals=["a1", "a2"]),
    ApprovalDecided(approval_id="a1", decision="approved"),
    RunContinued(),
    RunPaused(approvals=["a2"]),
    ApprovalDecided(approval_id="a2", decision="approved"),
    RunContinued(),
    *said("done"),
    RunEnded(outcome="completed"),
]


def test_a_run_goes_on_after_a_pause_where_its_protocol_ends_there() -> None:
    """Chat ends at a pause; on a session's stream the run then begins again as the next stretch, up to its end."""
    subscriber = Subscriber(ChatEncoder, together(numbered(PAUSED)))
    chunks = [json.loads(frame.data) for frame in subscriber.frames()]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"][0]["finish_reason"]] == [
        "stop"
    ] * 3
    pending = [
        [one["approval_id"] for one in chunk["runstone"]["approvals"]] for chunk in chunks if "runstone" in chunk
    ]
    assert pending == [["a1", "a2"], ["a2"]]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "done"
    assert not subscriber.encoder.knows("run_1")


def test_a_run_that_began_again_goes_on() -> None:
    """Chat ends with an error where work was lost; on a session's stream the new attempt follows."""
    bodies: list[Body] = [
        RunCreated(agent="echo", input=[]),
        RunStarted(),
        ItemStarted(item_id="i0", kind="message"),
        TextDelta(item_id="i0", text="lost"),
        AttemptStarted(attempt=2, reason="worker_lost", discard_after_seq=2),
        *said("kept"),
        RunEnded(outcome="completed"),
    ]
    chunks = [json.loads(frame.data) for frame in Subscriber(ChatEncoder, together(numbered(bodies))).frames()]
    errors = [n for n, chunk in enumerate(chunks) if "error" in chunk]
    assert len(errors) == 1
    later = [chunk["choices"][0] for chunk in chunks[errors[0] + 1 :]]
    assert "".join(choice["delta"].get("content") or "" for choice in later) == "kept"
    assert later[-1]["finish_reason"] == "stop"


def test_an_event_of_a_run_that_was_not_begun_is_refused() -> None:
    """A run has to be begun before its events are encoded."""
    [created] = numbered([RunCreated(agent="echo", input=[])])
    with pytest.raises(LocalProtocolError):
        SessionEncoder().encode("run_1", created)


# -- web sockets


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (Frame(b'{"a":1}', "x", "7"), {"id": "7", "event": "x", "data": {"a": 1}}),
        (Frame(b'{"a":1}', None, "7.0"), {"id": "7.0", "data": {"a": 1}}),
        (Frame(b"{}", "done"), {"event": "done", "data": {}}),
    ],
)
def test_a_frame_is_one_socket_message(frame: Frame, message: Any) -> None:
    """A WebSocket message has the frame's id, event and data, as JSON."""
    assert json.loads(socket_text(frame)) == message
