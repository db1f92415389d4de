"""Core values <-> JSON for the log and the records.

A stretch of the log is one JSON array of events. `VERSION` is stored with it; `events_from_json` reads every version that a
released Runstone wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from runstone.core.events import Body, Event
from runstone.core.items import Item
from runstone.core.runs import Run, Session
from runstone.errors import StorageError

VERSION: Final = 1

_encode = msgspec.json.Encoder().encode
_events = msgspec.json.Decoder(list[Event])
_run = msgspec.json.Decoder(Run)
_session = msgspec.json.Decoder(Session)
_item = msgspec.json.Decoder(Item)
_items = msgspec.json.Decoder(list[Item])


def to_json(value: Any) -> bytes:
    """UTF-8 JSON of any core value, or of plain JSON data.

    Raises:
        TypeError, ValueError, UnicodeEncodeError, RecursionError: it has something that JSON cannot carry.
    """
    return _encode(value)


def events_to_json(events: Sequence[Event]) -> bytes:
    """One stretch of the log."""
    return _encode(events)


def events_from_json(text: bytes, *, version: int = VERSION) -> list[Event]:
    """The events of a stretch, in order.

    Raises:
        StorageError: the version is newer than this program, or the stretch is damaged.
    """
    if version > VERSION:
        raise StorageError(f"The log has version {version}; this program reads up to {VERSION}.")
    try:
        return _events.decode(text)
    except msgspec.MsgspecError as e:
        raise StorageError("A stretch of the log is damaged.") from e


def run_from_json(text: bytes) -> Run:
    """The run of a record."""
    return _run.decode(text)


def session_from_json(text: bytes) -> Session:
    """The session of a record."""
    return _session.decode(text)


def item_from_json(text: bytes) -> Item:
    """The item of a history row."""
    return _item.decode(text)


def items_from_json(text: bytes) -> list[Item]:
    """A list of items."""
    return _items.decode(text)


def body_size(body: Body) -> int:
    """A cheap estimate of the bytes of a body in the log, for limits on what is not committed yet."""
    text = getattr(body, "text", None)
    return 80 + len(text) if type(text) is str else 600
