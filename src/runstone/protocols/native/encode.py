"""Events as the log has them; a session's events as one stream, in the words of any protocol.

Rules: a native frame is one event, its name the body's type, its id the event's number. On a session's stream ids are
positions (`position`, or `position.k` for all but the last frame of an event), every frame names its run in `run_id`, and
nothing marks the end of a run but its own frames: the stream goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from runstone.core.events import Event, RunEnded, TextDelta
from runstone.errors import LocalProtocolError
from runstone.protocols.base import Cursor, Frame, Header
from runstone.protocols.base import Encoder as AnyEncoder
from runstone.protocols.native.types import SocketMessage
from runstone.protocols.sse import escaped, json_line, wire_of

MakeEncoder = Callable[[Header], AnyEncoder]
_encode = msgspec.json.Encoder().encode


class _Named(msgspec.Struct):
    run_id: str | None = None


_named = msgspec.json.Decoder(_Named)


def native_event(run_id: str, event: Event) -> dict[str, Any]:
    """The event as plain JSON data: its numbers, the body's `type`, and the body's fields."""
    body: dict[str, Any] = msgspec.to_builtins(event.body)
    return {
        "run_id": run_id,
        "seq": event.seq,
        "position": event.position,
        "at": event.at,
        "attempt": event.attempt,
        **body,
    }


class Encoder:
    """One run's events as native frames; an id is the event's `seq`."""

    def __init__(self, header: Header) -> None:
        self.is_over = False
        self._run_id = header.run.id
        self._last = 0
        id = json_line(header.run.id).replace(b"%", b"%%")
        numbers = b'"seq":%d,"position":%d,"at":%b,"attempt":%d'
        self._text = b'{"run_id":' + id + b"," + numbers + b',"type":"text_delta","item_id":%b,"text":%b}'

    def encode(self, event: Event) -> list[Frame]:
        body, seq = event.body, event.seq
        if seq != self._last + 1 or self.is_over:
            raise LocalProtocolError(f"event {seq} does not follow event {self._last}")
        self._last = seq
        if type(body) is TextDelta:
            at, item_id, text = _encode(event.at), _encode(body.item_id), _encode(body.text)
            data = self._text % (seq, event.position, at, event.attempt, item_id, text)
            return [Frame(escaped(data), "text_delta", str(seq))]
        self.is_over = isinstance(body, RunEnded)
        fields = native_event(self._run_id, event)
        return [Frame(json_line(fields), fields["type"], str(seq))]

    def wire(self, events: list[Event]) -> list[bytes]:
        return wire_of(self, events)

    def end(self) -> list[Frame]:
        return [Frame(json_line({"run_id": self._run_id}), "done")]


class SessionEncoder:
    """The events of a session's runs as one stream; each run has an encoder of its own, made by `make`.

    Before an event of a run that it does not know yet, or no longer (the run's own stream ended at a pause), the caller has
    to `begin` the run: with the header of its first leg, and all events before that event.
    """

    def __init__(self, make: MakeEncoder = Encoder) -> None:
        self._make = make
        self._encoders: dict[str, AnyEncoder] = {}

    def knows(self, run_id: str) -> bool:
        """Whether the next event of the run can be encoded; if not, it has to be begun first."""
        return run_id in self._encoders

    def begin(self, header: Header, earlier: Iterable[Event] = ()) -> None:
        """Be ready for the event of the run that follows `earlier`, which are its first ones and make no frames here."""
        events, first_seq = list(earlier), 1
        while True:
            leg = msgspec.structs.replace(header.leg, first_seq=first_seq)
            encoder = self._make(msgspec.structs.replace(header, leg=leg))
            over = next(
                (event.seq for event in events if _is_over_with(encoder, event) and event.seq >= first_seq), None
            )
            if over is None:
                break
            # There the protocol's stream ended and the run went on: another stretch begins with the next event.
            first_seq = over + 1
        self._encoders[header.run.id] = encoder

    def encode(self, run_id: str, event: Event) -> list[Frame]:
        """Frames for the event, in wire order; empty when the format has no word for it.

        Raises:
            LocalProtocolError: the run was not begun, or the event does not continue it.
        """
        encoder = self._encoders.get(run_id)
        if encoder is None:
            raise LocalProtocolError(f"run {run_id!r} was not begun")
        frames = encoder.encode(event)
        if encoder.is_over:
            del self._encoders[run_id]
        last = len(frames) - 1
        position = str(event.position)
        return [
            Frame(_with_run_id(frame.data, run_id), frame.event, position if n == last else f"{position}.{n}")
            for n, frame in enumerate(frames)
        ]


def _is_over_with(encoder: AnyEncoder, event: Event) -> bool:
    encoder.encode(event)
    return encoder.is_over


def _with_run_id(data: bytes, run_id: str) -> bytes:
    """A frame's JSON object with `run_id` in it; where the protocol puts one by itself, it is left as it is."""
    if _named.decode(data).run_id is not None:
        return data
    named = b'"run_id":' + json_line(run_id)
    return data[:-1] + (b"" if data == b"{}" else b",") + named + b"}"


def after_cursor(frames: list[Frame], event: Event, cursor: Cursor) -> list[Frame]:
    """Of an event's frames on a session's stream, those that a reader with `cursor` does not have."""
    if event.position != cursor.seq:
        return frames if event.position > cursor.seq else []
    return [] if cursor.k is None else frames[cursor.k + 1 :]


def socket_text(frame: Frame) -> bytes:
    """The frame as one WebSocket text message: `{"id", "event", "data"}`, what is absent left out."""
    message: SocketMessage = {"data": msgspec.Raw(frame.data)}
    if frame.event is not None:
        message = {"event": frame.event, **message}
    if frame.id is not None:
        message = {"id": frame.id, **message}
    return json_line(message)
