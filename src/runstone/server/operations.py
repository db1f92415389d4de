"""Operations, fields and events of the HTTP surface as values, each with its label.

Four labels: `compatible`, as the protocol's owner documents or serves it; `compatible-shaped`, that shape with values that mean
something of ours; `extension`, ours, part of no official standard; `legacy`, accepted for old clients, not for new ones.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Label = Literal["compatible", "compatible-shaped", "extension", "legacy"]
LABELS: Final[dict[Label, str]] = {
    "compatible": "as OpenAI documents it, or as Hermes serves it",
    "compatible-shaped": "that shape, with values that mean something of ours",
    "extension": "ours, part of no official standard",
    "legacy": "accepted for old clients, not for new ones",
}


class Field(msgspec.Struct, frozen=True):
    """A field, a parameter or an event. `type` is a JSON type, or several with `|`; empty for an event."""

    name: str
    label: Label
    type: str
    text: str


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    label: Label
    text: str
    query: list[Field] = []
    body: list[Field] = []
    required: list[str] = []
    form: bool = False
    answer: list[Field] = []
    events: list[Field] = []
    is_public: bool = False


def fields_of(rows: str) -> list[Field]:
    """Fields from lines of `name, name; label; type; text`, the label by one letter."""
    labels: dict[str, Label] = {"c": "compatible", "s": "compatible-shaped", "x": "extension", "l": "legacy"}
    found = []
    for row in filter(None, rows.splitlines()):
        names, label, type, text = (word.strip() for word in row.split(";", 3))
        found += [Field(name, labels[label], type, text) for name in names.split(", ")]
    return found


def operation(method: str, path: str, text: str, **more: object) -> Operation:
    """An operation, compatible unless it says otherwise."""
    return Operation(method=method, path=path, text=text, **{"label": "compatible", **more})  # type: ignore[arg-type]
