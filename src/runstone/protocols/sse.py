"""Frames as the bytes of an event stream (WHATWG HTML, "server-sent events").

Rule: `data` holds no line end, so one frame is one message whatever a model or a tool said. U+2028, U+2029 and U+0085 are
escaped: many clients split lines there.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from runstone.core.events import Event
from runstone.protocols.base import Encoder, Frame

_encode = msgspec.json.Encoder().encode
#: A comment without a blank line after it: with one, clients that saw an `id:` before dispatch an empty message.
PING: Final = b": ping\n"
MEDIA_TYPE: Final = "text/event-stream"
HEADERS: Final = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


def json_line(value: Any) -> bytes:
    """`value` as JSON that is safe in one `data:` line."""
    return escaped(_encode(value))


def escaped(text: bytes) -> bytes:
    """JSON text with the three characters that weak clients take for line ends written as escapes."""
    if text.isascii():
        return text
    return (
        text.replace(b"\xe2\x80\xa8", rb"\u2028").replace(b"\xe2\x80\xa9", rb"\u2029").replace(b"\xc2\x85", rb"\u0085")
    )


def to_bytes(frame: Frame) -> bytes:
    """The frame as it goes onto the wire, its blank line included."""
    if frame.event is None:
        if frame.id is None:
            return b"data: %b\n\n" % frame.data
        return b"id: %b\ndata: %b\n\n" % (frame.id.encode(), frame.data)
    if frame.id is None:
        return b"event: %b\ndata: %b\n\n" % (frame.event.encode(), frame.data)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (frame.id.encode(), frame.event.encode(), frame.data)


def wire_of(encoder: Encoder, events: list[Event]) -> list[bytes]:
    """What `Encoder.wire` gives, by way of `encode`."""
    parts: list[bytes] = []
    for event in events:
        parts += [to_bytes(frame) for frame in encoder.encode(event)]
        if encoder.is_over:
            break
    return parts
