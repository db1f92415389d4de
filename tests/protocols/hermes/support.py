"""What the tests of this protocol share: a header, whole streams, and what a reader makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from runstone.core.events import Event
from runstone.core.runs import Leg, Run
from runstone.protocols.base import Frame, Header
from runstone.protocols.hermes.encode import Encoder
from runstone.protocols.hermes.types import Vocabulary

AT = 1_760_000_000.0


def header(**fields: Any) -> Header:
    """The header of a run that Hermes began."""
    leg = Leg(first_seq=1, created_at=AT)
    common = {"id": "run_1", "owner": "local", "session_id": "s-1", "agent": "echo", "turn": "t1", "created_at": AT}
    return Header(run=Run(**{**common, "legs": [leg], **fields}), leg=leg)


def frames_of(events: Iterable[Event], vocabulary: Vocabulary) -> list[Frame]:
    """All frames with an id."""
    encoder = Encoder(header(), vocabulary=vocabulary)
    return [frame for event in events for frame in encoder.encode(event)]


def stream(events: Iterable[Event], vocabulary: Vocabulary) -> tuple[list[Frame], bool]:
    """All frames, end mark included when the stream is over; and whether it is."""
    encoder = Encoder(header(), vocabulary=vocabulary)
    frames = [frame for event in events for frame in encoder.encode(event)]
    return (frames + encoder.end() if encoder.is_over else frames), encoder.is_over


def frames_as_json(frames: Iterable[Frame]) -> list[Any]:
    """Frames as golden files hold them."""
    return [[frame.id, frame.event, json.loads(frame.data)] for frame in frames]


def shown(frames: Iterable[Frame]) -> str:
    """The text that a reader has after the frames: deltas append, a replacement replaces."""
    text = ""
    for frame in frames:
        data = json.loads(frame.data)
        match frame.event or data["event"]:
            case "assistant.delta" | "message.delta":
                text += data["delta"]
            case "assistant.completed" if data["partial"] and "attempt" in data:
                text = data["content"]
            case "message.replaced":
                text = data["text"]
            case _:
                pass
    return text
