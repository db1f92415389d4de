"""One item of a run, from its first event to its last, as frames.

Rule: an item is opened once, with what it is at that moment, and closed once, with what it is in the final output. Text can
only be appended: when the finished item does not go on from what was said, its closing frames say the truth.
An item that is open when a leg begins is opened in that leg again, with all of its text.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from runstone.core.content import TextPart
from runstone.core.events import ItemStarted
from runstone.core.items import FileItem, Item, Message, Reasoning, ToolCall, ToolResult
from runstone.errors import LocalProtocolError
from runstone.protocols.base import Frame
from runstone.protocols.parts import Blobs
from runstone.protocols.responses.emit import Emitter
from runstone.protocols.responses.items import (
    call_item,
    file_item,
    function_call_item,
    function_output_item,
    mcp_call_item,
    mcp_result_item,
    message_item,
    reasoning_item,
)
from runstone.protocols.responses.types import OutputItem, Style
from runstone.protocols.sse import escaped
from runstone.protocols.told import Told

_T = TypeVar("_T")
_text_to_json: Final = msgspec.json.Encoder().encode
_DELTA: Final = "response.output_text.delta"
_NOT_OPEN: Final = -1


class ItemStream:
    """One open item. This one shows nothing: it is how an item is hidden."""

    def __init__(self, out: Emitter, id: str, started: ItemStarted) -> None:
        self.out = out
        self.id = id
        self.started = started
        self.index = _NOT_OPEN
        self.told = Told()

    @property
    def is_open(self) -> bool:
        """Whether the client has been told of it in this leg."""
        return self.index != _NOT_OPEN

    @property
    def text(self) -> str:
        """What was said so far; before the leg that is read, what there was to say. Empty when it is too long to be kept."""
        return self.told.text or ""

    def keep(self, text: str) -> None:
        """One more delta, before the leg that is read."""
        self.told.add(text)

    def keep_only(self, text: str) -> None:
        """All of the text is `text`, before the leg that is read."""
        self.told = Told(text)

    def begin(self) -> None:
        """Open it, if it is not open and enough is known, and say what there was to say before the leg."""
        if self.is_open or not self._can_open():
            return
        self.index = self.out.add(self._opening())
        self._opened()
        if text := self.text:
            self._say(text)

    def delta(self, text: str) -> None:
        """More text; an empty one is left out."""
        if not text:
            return
        self.begin()
        self.told.add(text)
        if self.is_open:
            self._say(text)

    def replace(self, text: str) -> None:
        """All of the text is `text`; what cannot be appended waits for the end."""
        if not self.is_open:
            self.keep_only(text)
        self.begin()
        self.go_on_to(text)

    def go_on_to(self, text: str) -> None:
        """Say what `text` has beyond what was said, when it goes on from there."""
        if rest := self.told.rest_of(text):
            self.delta(rest)

    def end(self, item: Item) -> None:
        """Close it as `item`."""

    def cut(self) -> None:
        """Close the open item as far as it goes: the leg ends and the item does not."""

    def place(self, **more: Any) -> dict[str, Any]:
        """The fields that say which item a frame is about, and `more`."""
        return {"item_id": self.id, "output_index": self.index, **more}

    def _can_open(self) -> bool:
        return False

    def _opening(self) -> OutputItem:
        raise LocalProtocolError(f"item {self.id!r} is not shown")

    def _opened(self) -> None:
        pass

    def _say(self, text: str) -> None:
        pass


class MessageStream(ItemStream):
    """A message: one part for all of its text, then what is not text."""

    def __init__(self, out: Emitter, id: str, started: ItemStarted, blobs: Blobs) -> None:
        super().__init__(out, id, started)
        self._blobs = blobs
        self._head = b""

    @property
    def is_fast(self) -> bool:
        """Whether `fast_delta` may be used: the part is open."""
        return self._head != b""

    def fast_delta(self, text: str) -> Frame:
        """The frame of one more delta that is not empty."""
        self.told.add(text)
        return self._delta_frame(text)

    def _delta_frame(self, text: str) -> Frame:
        """One delta; everything but its number and text was made before."""
        out = self.out
        data = b'%b%d,"delta":%b}' % (self._head, out.sent, _text_to_json(text))
        out.sent += 1
        return Frame(data if data.isascii() else escaped(data), _DELTA)

    def end(self, item: Item) -> None:
        """Close it; a file is shown as a message that names it."""
        if isinstance(item, FileItem):
            shown = file_item(self.id, item, self._blobs)
        else:
            message = msgspec.structs.replace(_of(Message, item), role="assistant")
            shown = message_item(self.id, message, self._blobs)
        self.begin()
        content = shown["content"]
        done = 0
        if content[0]["type"] == "output_text":
            self.go_on_to(content[0]["text"])
            self._start_part()
            self._end_part(0, content[0])
            done = 1
        elif self.is_fast:
            self._end_part(0, _text_part())
        for n, part in enumerate(content[done:], 1 if self.is_fast else 0):
            self._whole_part(n, part)
        self.out.finish(self.index, shown)

    def cut(self) -> None:
        """Close it as an incomplete message of the text so far."""
        text = self.text
        parts = [TextPart(text=text)] if text else []
        self.end(Message(item_id=self.id, role="assistant", parts=[*parts], status="incomplete"))

    def _can_open(self) -> bool:
        return True

    def _opening(self) -> OutputItem:
        return {"type": "message", "id": self.id, "role": "assistant", "status": "in_progress", "content": []}

    def _say(self, text: str) -> None:
        self._start_part()
        self.out.push(self._delta_frame(text))

    def _start_part(self) -> None:
        if self.is_fast:
            return
        self.out.say("response.content_part.added", self.place(content_index=0, part=_text_part()))
        head = msgspec.json.encode({"type": _DELTA, **self.place(content_index=0, logprobs=[])})
        self._head = escaped(head[:-1] + b',"sequence_number":')

    def _end_part(self, n: int, part: dict[str, Any]) -> None:
        for k, annotation in enumerate(part["annotations"]):
            at = self.place(content_index=n, annotation_index=k, annotation=annotation)
            self.out.say("response.output_text.annotation.added", at)
        self.out.say("response.output_text.done", self.place(content_index=n, text=part["text"], logprobs=[]))
        self.out.say("response.content_part.done", self.place(content_index=n, part=part))

    def _whole_part(self, n: int, part: dict[str, Any]) -> None:
        if part["type"] == "output_text":
            self.out.say("response.content_part.added", self.place(content_index=n, part=_text_part()))
            self.out.say(_DELTA, self.place(content_index=n, logprobs=[], delta=part["text"]))
            self._end_part(n, part)
            return
        words = part["refusal"]
        self.out.say("response.content_part.added", self.place(content_index=n, part={**part, "refusal": ""}))
        self.out.say("response.refusal.delta", self.place(content_index=n, delta=words))
        self.out.say("response.refusal.done", self.place(content_index=n, refusal=words))
        self.out.say("response.content_part.done", self.place(content_index=n, part=part))


def _text_part() -> dict[str, Any]:
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


class ReasoningStream(ItemStream):
    """Reasoning as a summary, as text, or by the one event of the `ksadk` dialect."""

    def __init__(self, out: Emitter, id: str, started: ItemStarted, style: Style) -> None:
        super().__init__(out, id, started)
        self._style = style
        self._has_part = False
        if style.dialect == "ksadk":
            self._word, self._part, self._type, index = "response.reasoning", None, "", "content_index"
        elif style.reasoning_as == "summary":
            self._word, self._part = "response.reasoning_summary_text", "response.reasoning_summary_part"
            self._type, index = "summary_text", "summary_index"
        else:
            self._word, self._part = "response.reasoning_text", "response.content_part"
            self._type, index = "reasoning_text", "content_index"
        self._at = {index: 0}

    def end(self, item: Item) -> None:
        """Close it; reasoning without words has no part."""
        reasoning = _of(Reasoning, item)
        self.begin()
        self.go_on_to(reasoning.text)
        if self._has_part:
            self.out.say(f"{self._word}.done", self.place(**self._at, text=reasoning.text))
            self._say_part("done", reasoning.text)
        self.out.finish(self.index, reasoning_item(self.id, reasoning, self._style))

    def cut(self) -> None:
        """Close it as incomplete reasoning of the text so far."""
        self.end(Reasoning(item_id=self.id, text=self.text, status="incomplete"))

    def _can_open(self) -> bool:
        return True

    def _opening(self) -> OutputItem:
        empty = reasoning_item(self.id, Reasoning(item_id=self.id, text=""), self._style)
        return {**empty, "status": "in_progress"}

    def _say(self, text: str) -> None:
        if not self._has_part:
            self._has_part = True
            self._say_part("added", "")
        self.out.say(f"{self._word}.delta", self.place(**self._at, delta=text))

    def _say_part(self, word: str, text: str) -> None:
        if self._part is not None:
            part = {"type": self._type, "text": text}
            self.out.say(f"{self._part}.{word}", self.place(**self._at, part=part))


class FunctionCallStream(ItemStream):
    """A call as `function_call`; it opens when its name is known."""

    def end(self, item: Item) -> None:
        """Close it; there is one delta at least, since clients build the arguments from deltas."""
        call = _of(ToolCall, item)
        self.started = msgspec.structs.replace(self.started, name=call.name, call_id=call.call_id)
        self.begin()
        self.go_on_to(call.arguments)
        done = self.place(name=call.name, arguments=call.arguments)
        self.out.say("response.function_call_arguments.done", done)
        self.out.finish(self.index, function_call_item(self.id, call))

    def cut(self) -> None:
        """Close it as an incomplete call with the arguments so far."""
        name, call_id = self.started.name or "", self.started.call_id or ""
        self.end(ToolCall(item_id=self.id, call_id=call_id, name=name, arguments=self.text, status="incomplete"))

    def _can_open(self) -> bool:
        return self.started.name is not None and self.started.call_id is not None

    def _opening(self) -> OutputItem:
        return call_item(self.id, self.started.call_id or "", self.started.name or "", "", "in_progress")

    def _say(self, text: str) -> None:
        self.out.say("response.function_call_arguments.delta", self.place(delta=text))


class McpCallStream(ItemStream):
    """A server-run call as `mcp_call`: opened when the tool starts, so that a call that waits is none that runs.

    `call` has the arguments that ran, `approval_id` the approval that allowed it.
    """

    def __init__(
        self, out: Emitter, id: str, started: ItemStarted, call: ToolCall, blobs: Blobs, *, approval_id: str | None
    ) -> None:
        super().__init__(out, id, started)
        self._call = call
        self._blobs = blobs
        self._approval_id = approval_id

    def end(self, item: Item) -> None:
        """Close it with what the tool gave."""
        result = _of(ToolResult, item)
        self.begin()
        word = "failed" if result.is_error else "completed"
        self.out.say(f"response.mcp_call.{word}", self.place())
        self.out.finish(self.index, mcp_result_item(self.id, self._call, result, self._blobs, self._approval_id))

    def cut(self) -> None:
        """Close it without a result: the tool goes on in the next leg."""
        self.out.finish(self.index, mcp_call_item(self.id, self._call, "incomplete", self._approval_id))

    def _can_open(self) -> bool:
        return True

    def _opening(self) -> OutputItem:
        call = msgspec.structs.replace(self._call, arguments="")
        return mcp_call_item(self.id, call, "in_progress", self._approval_id)

    def _opened(self) -> None:
        arguments = self._call.arguments
        self.out.say("response.mcp_call.in_progress", self.place())
        if arguments:
            self.out.say("response.mcp_call_arguments.delta", self.place(delta=arguments))
        self.out.say("response.mcp_call_arguments.done", self.place(arguments=arguments))


class OutputStream(ItemStream):
    """What a server-run call gave, as `function_call_output`; the `ksadk` dialect says it by an event of its own too."""

    def __init__(self, out: Emitter, id: str, started: ItemStarted, blobs: Blobs, style: Style, *, name: str) -> None:
        super().__init__(out, id, started)
        self._blobs = blobs
        self._style = style
        self._name = name

    def end(self, item: Item) -> None:
        """Open and close it: nothing is known before the tool has finished."""
        result = _of(ToolResult, item)
        shown = function_output_item(self.id, result, self._blobs, name=self._name)
        self.index = self.out.add({**shown, "output": "", "status": "in_progress"})
        if self._style.dialect == "ksadk":
            said = {"call_id": result.call_id, "name": self._name, "output": shown["output"]}
            self.out.say("response.ksadk.tool_result", self.place(**said, is_error=result.is_error))
        self.out.finish(self.index, shown)


def _of(kind: type[_T], item: Item) -> _T:
    if not isinstance(item, kind):
        raise LocalProtocolError(f"item {item.item_id!r} ended as {type(item).__name__}, expected {kind.__name__}")
    return item
