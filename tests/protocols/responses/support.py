"""What the tests of this protocol share: headers, legs, whole streams, and the official client's models as a judge."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pydantic
from openai.types.responses import Response
from openai.types.responses.response_output_item import ResponseOutputItem
from openai.types.responses.response_stream_event import ResponseStreamEvent

from runstone.core.events import AttemptStarted, Event, RunEnded, RunPaused
from runstone.core.runs import Leg, Run
from runstone.protocols.base import Frame, Header
from runstone.protocols.responses.encode import Encoder

AT = 1_760_000_000.0
RUN_ID = "run_01k0"
ENDS = {"response.completed", "response.failed", "response.incomplete"}


def header_of(leg_index: int = 0, first_seq: int = 1, *, echo: dict[str, Any] | None = None, **run: Any) -> Header:
    """A header; `echo` is what the request of the leg said in this protocol."""
    leg = Leg(first_seq=first_seq, created_at=AT, echo={} if echo is None else {"responses": echo})
    fields = {"id": RUN_ID, "owner": "local", "session_id": "ses_1", "agent": "echo", "turn": "t1", "created_at": AT}
    return Header(run=Run(**{**fields, **run}), leg=leg, leg_index=leg_index)


def legs_of(events: list[Event]) -> list[int]:
    """The first seq of every leg that has events."""
    starts = [1]
    for event, following in zip(events, [*events[1:], None], strict=True):
        if isinstance(event.body, RunPaused) and following is not None:
            starts.append(following.seq)
        elif isinstance(event.body, AttemptStarted) and event.seq != starts[-1]:
            starts.append(event.seq)
    return starts


def stream(header: Header, events: list[Event], **style: Any) -> list[Frame]:
    """All frames of the leg, end mark included when it is over."""
    encoder = Encoder(header, **style)
    frames: list[Frame] = []
    for event in events:
        if encoder.is_over:
            break
        frames += encoder.encode(event)
    return frames + encoder.end() if encoder.is_over else frames


def data_of(frames: list[Frame]) -> list[dict[str, Any]]:
    """What the frames say, end mark left out."""
    return [msgspec.json.decode(frame.data) for frame in frames if frame.data != b"[DONE]"]


def is_over(events: list[Event], first_seq: int) -> bool:
    """Whether the leg has come to its end."""
    later = [event.body for event in events if event.seq >= first_seq]
    return any(isinstance(body, RunPaused | RunEnded) for body in later) or any(
        isinstance(body, AttemptStarted) for body in later[1:]
    )


def _members(alias: Any) -> list[Any]:
    if typing.get_origin(alias) is typing.Annotated:
        return _members(typing.get_args(alias)[0])
    if typing.get_origin(alias) is typing.Union:
        return [member for one in typing.get_args(alias) for member in _members(one)]
    return [alias]


def by_type(alias: Any) -> dict[str, Any]:
    """The models of a union by the words that their `type` may be."""
    return {
        word: model
        for model in _members(alias)
        for word in typing.get_args(model.model_fields["type"].annotation)
        if isinstance(word, str)
    }


_EVENTS = by_type(ResponseStreamEvent)
_ITEMS = by_type(ResponseOutputItem)


def check_item(item: dict[str, Any]) -> None:
    """Fail unless the official client's model takes the output item strictly."""
    assert item["type"] in _ITEMS, item
    _ITEMS[item["type"]].model_validate(item, strict=True)


def check_response(response: dict[str, Any]) -> None:
    """Fail unless the official client's model takes the response strictly."""
    for item in response["output"]:
        check_item(item)
    Response.model_validate({**response, "output": []}, strict=True)


def check_event(event: dict[str, Any]) -> None:
    """Fail unless it is an official event and the official client's model takes it strictly."""
    assert event["type"] in _EVENTS, event["type"]
    shell = dict(event)
    if "response" in event:
        check_response(event["response"])
        shell["response"] = {**event["response"], "output": []}
    if "item" in event:
        check_item(event["item"])
        shell["item"] = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []}
    model: type[pydantic.BaseModel] = _EVENTS[event["type"]]
    model.model_validate(shell, strict=True)
