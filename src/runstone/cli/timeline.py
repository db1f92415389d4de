"""A run's events as a timeline: one line each, neighbouring words of one item together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from runstone.cli.printing import short

Json = dict[str, Any]
_DELTAS: Final = {"text_delta": "text", "reasoning_delta": "thinks", "arguments_delta": "arguments"}
#: Of each type, the fields that say what happened.
_SHOWN: Final = {
    "run_created": ("agent", "model", "continues"),
    "run_paused": ("approvals",),
    "run_ended": ("outcome", "reason", "error", "usage", "returned"),
    "attempt_started": ("attempt", "reason", "discard_after_seq"),
    "step_started": ("step", "author"),
    "step_ended": ("step", "finish_reason", "model", "usage"),
    "item_started": ("kind", "name", "call_id"),
    "tool_progress": ("call_id", "data"),
    "approval_requested": ("approval_id", "kind", "name", "arguments", "prompt"),
    "approval_decided": ("approval_id", "decision", "by", "reason"),
    "input_received": ("input_id", "by"),
    "input_settled": ("input_id", "outcome", "reason"),
    "custom": ("name",),
}


class Timeline:
    """Lines from native events, in order. Words are kept back until their item says something else; `rest` gives them."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._words: list[str] = []
        self._first: Json | None = None

    def lines(self, event: Json) -> Iterator[str]:
        """What can be shown with the next event."""
        if self._began is None:
            self._began = event["at"]
        if event["type"] in _DELTAS:
            first = self._first
            if first is None or (first["type"], first["item_id"]) != (event["type"], event["item_id"]):
                yield from self.rest()
                self._first = event
            self._words.append(event["text"])
            return
        yield from self.rest()
        yield self._line(event, event["type"].replace("_", " "), _about(event))

    def rest(self) -> Iterator[str]:
        """The words that were kept back."""
        if self._first is not None:
            yield self._line(self._first, _DELTAS[self._first["type"]], short("".join(self._words)))
        self._first, self._words = None, []

    def _line(self, event: Json, what: str, about: str) -> str:
        after = event["at"] - (self._began or 0.0)
        return f"{after:9.3f}s  {event['seq']:>5}  {what:<18}  {about}".rstrip()


def timeline(events: Iterable[Json]) -> Iterator[str]:
    """The lines of a run's events."""
    shown = Timeline()
    for event in events:
        yield from shown.lines(event)
    yield from shown.rest()


def _about(event: Json) -> str:
    if event["type"] in ("item_ended", "item_replaced"):
        return _item(event["item"])
    names = _SHOWN.get(event["type"], ())
    said = [f"{name}={_value(event[name])}" for name in names if name in event]
    if event["type"] == "run_created":
        said += [_item(item) for item in event["input"]]
    if event["type"] == "input_received":
        said += [_item(item) for item in event["content"]]
    return "  ".join(said)


def _value(value: Any) -> str:  # noqa: ANN401
    return short(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _item(item: Json) -> str:
    match item:
        case {"kind": "message", "role": role, "parts": parts}:
            return f"{role}: {short(_parts(parts))}"
        case {"kind": "reasoning", "text": text}:
            return f"reasoning: {short(text)}"
        case {"kind": "tool_call", "name": name, "arguments": arguments}:
            return f"call {short(name)} {short(arguments)}"
        case {"kind": "tool_result", "output": parts}:
            failed = " failed" if "is_error" in item else ""
            return f"result{failed}: {short(_parts(parts))}"
        case _:
            return short(msgspec.json.encode(item).decode())


def _parts(parts: list[Json]) -> str:
    return "".join(part["text"] if "text" in part else f"[{part['type']}]" for part in parts)
