"""Core values <-> JSON for the log and the records.

A stretch of the log is one JSON array. Its elements are `[0, seq, position, at, attempt, body]`, an event, and
`[1, seq, position, at, attempt, kind, item_id, [text, ...]]`, neighbouring deltas of one item, whose numbers go up by one and
whose time is the same: most of a log is such deltas, and so they take a tenth of the room. Two arrays put together are the
stretch of both. `VERSION` is stored with it; `events_from_json` reads every version that a released Runstone wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from runstone.core.events import ArgumentsDelta, Body, Event, ReasoningDelta, TextDelta
from runstone.core.runs import Run, Session
from runstone.errors import StorageError

VERSION: Final = 1


class _One(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    seq: int
    position: int
    at: float
    attempt: int
    body: Body


class _Many(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    seq: int
    position: int
    at: float
    attempt: int
    kind: str
    item_id: str
    texts: list[str]


_KIND_OF: Final[dict[type, str]] = {TextDelta: "t", ReasoningDelta: "r", ArgumentsDelta: "a"}
_DELTA_OF: Final[dict[str, type[TextDelta | ReasoningDelta | ArgumentsDelta]]] = {
    "t": TextDelta,
    "r": ReasoningDelta,
    "a": ArgumentsDelta,
}
_encode = msgspec.json.Encoder().encode
_stretch = msgspec.json.Decoder(list[_One | _Many])
_run = msgspec.json.Decoder(Run)
_session = msgspec.json.Decoder(Session)


def to_json(value: Any) -> bytes:
    """UTF-8 JSON of any core value, or of plain JSON data.

    Raises:
        TypeError, ValueError, UnicodeEncodeError, RecursionError: it has something that JSON cannot carry.
    """
    return _encode(value)


def events_to_json(events: Sequence[Event]) -> bytes:
    """One stretch of the log."""
    stretch: list[_One | _Many] = []
    texts: list[str] = []
    seq, position, at, item_id = -1, -1, 0.0, ""
    of: type | None = None
    for event in events:
        body = event.body
        kind = type(body)
        if (
            kind is of
            and body.item_id == item_id  # type: ignore[union-attr]
            and event.seq == seq
            and event.position == position
            and event.at == at
        ):
            texts.append(body.text)  # type: ignore[union-attr]
        elif kind in _KIND_OF:
            of, item_id, at, texts = kind, body.item_id, event.at, [body.text]  # type: ignore[union-attr]
            seq, position = event.seq, event.position
            stretch.append(_Many(seq, position, at, event.attempt, _KIND_OF[kind], item_id, texts))
        else:
            of = None
            stretch.append(_One(event.seq, event.position, event.at, event.attempt, body))
        seq += 1
        position += 1
    return _encode(stretch)


def events_from_json(text: bytes, *, version: int = VERSION) -> list[Event]:
    """The events of a stretch, in order.

    Raises:
        StorageError: the version is newer than this program, or the stretch is damaged.
    """
    if version > VERSION:
        raise StorageError(f"The log has version {version}; this program reads up to {VERSION}.")
    try:
        stretch = _stretch.decode(text)
    except msgspec.MsgspecError as e:
        raise StorageError("A stretch of the log is damaged.") from e
    events: list[Event] = []
    for part in stretch:
        if type(part) is _Many:
            delta, item_id, at, attempt = _DELTA_OF[part.kind], part.item_id, part.at, part.attempt
            events += [
                Event(part.seq + n, part.position + n, at, attempt, delta(item_id=item_id, text=text))
                for n, text in enumerate(part.texts)
            ]
        else:
            events.append(Event(part.seq, part.position, part.at, part.attempt, part.body))  # type: ignore[union-attr]
    return events


def run_from_json(text: bytes) -> Run:
    """The run of a record."""
    return _run.decode(text)


def session_from_json(text: bytes) -> Session:
    """The session of a record."""
    return _session.decode(text)
