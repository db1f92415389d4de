"""What every protocol's codec looks like.

Rule: the frames of a stream are a pure function of the leg's header, the events and the reader's options. How many frames an
event makes is part of the contract that resuming rests on: changing it is a new encoder version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from runstone.core.events import Event
from runstone.core.runs import Leg, Run
from runstone.errors import CursorUnknown

_CURSOR: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?")


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One SSE message. `data` is one line of UTF-8 text. `id` and `event` are left out of the wire when None."""

    data: bytes
    event: str | None = None
    id: str | None = None


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What an encoder knows before the first event: the run as it was created, and which leg of it is read."""

    run: Run
    leg: Leg
    leg_index: int = 0


class Encoder(Protocol):
    """Events of one run as frames of one stream, in order. One encoder, one stream.

    It is fed from the run's first event on, also when a later leg is read or a reader resumes: events before the leg make no
    frames but may be needed (a call whose result comes in this leg). `is_over` becomes True with the last frame of the
    stream: at the end of the run, or at a pause where the protocol's streams end there.
    """

    is_over: bool

    def encode(self, event: Event) -> list[Frame]:
        """Frames for `event`, in wire order; empty when the protocol has no word for it.

        Raises:
            LocalProtocolError: `event` does not continue what was encoded before.
        """
        ...

    def wire(self, events: list[Event]) -> list[bytes]:
        """The frames of `events`, up to the end of the stream, as they go onto the wire: `sse.to_bytes` of what `encode` gives.

        A protocol with a fast way for the events that come by the thousands has it here; others call `sse.wire_of`.
        """
        ...

    def end(self) -> list[Frame]:
        """End marks of the connection (`[DONE]` and the like); they have no id. Called once, when the stream is over."""
        ...


class Cursor(msgspec.Struct, frozen=True):
    """A reader's place: all frames up to `seq`, or of event `seq` only the first `k + 1` when `k` is given."""

    seq: int
    k: int | None = None


def numbered(seq: int, lines: list[bytes], *, event: str | None = None) -> list[Frame]:
    """Frames of one event with their ids: `seq` for the last, `seq.k` for those before it."""
    last = len(lines) - 1
    return [Frame(data, event, str(seq) if n == last else f"{seq}.{n}") for n, data in enumerate(lines)]


def cursor_from_text(text: str) -> Cursor:
    """The cursor that a frame's id says.

    Raises:
        CursorUnknown: it is not `N` or `N.K` with N from 0 and K from 0.
    """
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise CursorUnknown(text[:80], expected="an event number such as 17 or 17.0")
    return Cursor(int(match[1]), None if match[2] is None else int(match[2]))


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """An error on a wire: HTTP status, JSON body, headers beside it."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = {}
