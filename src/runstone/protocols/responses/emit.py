"""Numbers: `sequence_number` of every frame, `output_index` of every item.

Rule: a frame's number is how many frames of the leg came before it in this dialect, an item's index how many items were added
before it. Both are the same on every replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runstone.protocols.base import Frame
from runstone.protocols.responses.types import OutputItem, ResponseObject
from runstone.protocols.sse import json_line

DONE: Final = Frame(b"[DONE]")


class Emitter:
    """Frames of one response in the order of the calls; `take` hands them over."""

    def __init__(self) -> None:
        self.sent = 0
        self._frames: list[Frame] = []
        self._added = 0
        self._done: dict[int, OutputItem] = {}

    def say(self, type: str, fields: Mapping[str, Any]) -> None:
        """One frame."""
        data = json_line({"type": type, "sequence_number": self.sent, **fields})
        self.sent += 1
        self._frames.append(Frame(data, type))

    def push(self, frame: Frame) -> None:
        """A frame that has its number already."""
        self._frames.append(frame)

    def say_response(self, type: str, response: ResponseObject) -> None:
        """One frame about the whole response."""
        self.say(type, {"response": response})

    def add(self, item: OutputItem) -> int:
        """Begin an item; its index."""
        index = self._added
        self._added += 1
        self.say("response.output_item.added", {"output_index": index, "item": item})
        return index

    def finish(self, index: int, item: OutputItem) -> None:
        """End an item: this is what it is in the final output."""
        self._done[index] = item
        self.say("response.output_item.done", {"output_index": index, "item": item})

    @property
    def output(self) -> list[OutputItem]:
        """The finished items by their index."""
        return [self._done[index] for index in sorted(self._done)]

    def take(self) -> list[Frame]:
        """The frames since the last call."""
        frames, self._frames = self._frames, []
        return frames
