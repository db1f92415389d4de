"""What a graph streams, as bodies.

Rules: one model call is one step, and is told once, whether it streamed or came whole. A call belongs to its model call, its
result comes when the tool gives it. Calls of parallel nodes may interleave.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langgraph.types import Interrupt
from pydantic import BaseModel

from runstone.core.events import Custom
from runstone.core.items import ToolCall
from runstone.core.runs import RunRequest
from runstone.runners.base import RunContext
from runstone.runners.compose import Call, Composer
from runstone.runners.langgraph.messages import finish_of, model_of, output_parts, reasoning_of, usage_of

MODES: Final = ["messages", "updates", "custom", "tools", "tasks"]
#: Where a graph without messages is taken to leave its answer, when it said nothing else.
_ANSWER_KEYS: Final = ("output", "answer", "response", "result")

_log = logging.getLogger(__name__)


class Lane:
    """One model call that is being told."""

    __slots__ = ("call_ids", "composer", "is_open", "last_call", "meta")

    def __init__(self, composer: Composer, meta: Any) -> None:
        self.composer = composer
        self.meta = meta
        self.is_open = True
        self.call_ids: dict[Any, str] = {}
        self.last_call: Any = None

    def end(self) -> None:
        """The model call is over."""
        if self.is_open:
            self.is_open = False
            self.composer.end_step()


class Teller:
    """Tells one stretch of a graph's work: from its input, or a resume, to its end or its interrupts."""

    def __init__(self, request: RunRequest, context: RunContext) -> None:
        self._context = context
        self._client_tools = {tool.name for tool in request.settings.tools}
        self._calls = _calls_so_far(request, context)
        self._root = Composer(context, calls=self._calls)
        self._lanes: list[Lane] = []
        self._by_id: dict[str, Lane] = {}
        self._current: Lane | None = None
        self._has_spoken = False
        self._answer: str | None = None
        self._running: set[str] = set()
        self._task_inputs: dict[str, Any] = {}
        self._task_of: dict[str, Any] = {}
        self.interrupts: dict[str, Interrupt] = {}
        self.is_at_breakpoint = False

    def take(self, namespace: tuple[str, ...], mode: str, data: Any) -> None:
        """One element of the stream."""
        match mode:
            case "messages":
                self.message(namespace, data[0], data[1])
            case "tools":
                self._tool(data)
            case "updates":
                self._update(namespace, data)
            case "tasks":
                self._task(data)
            case "custom":
                self._context.emit(Custom(name="langgraph", data=plain(data)))
            case _:
                _log.debug("a graph streamed %r, which is not told", mode)

    def break_off(self) -> None:
        """Something else comes in between: end what is being said."""
        for lane in self._lanes:
            lane.end()
        self._root.break_off()

    def close(self) -> None:
        """The stream is over: end what is open, and give the answer of a graph that has no messages."""
        for lane in self._lanes:
            lane.end()
        if self._answer and not self._has_spoken and not self.interrupts:
            self._root.text(self._answer)
        self._root.close()

    # -- messages

    def message(self, namespace: tuple[str, ...], message: BaseMessage, meta: Any) -> None:
        """A piece of a message, or a whole one."""
        lane = self._current
        if type(message) is AIMessageChunk:
            if lane is None or lane.meta is not meta:
                lane = self._lane(namespace, message, meta)
            self._chunk(lane, message)
        elif isinstance(message, ToolMessage):
            self._result(message)
        elif isinstance(message, AIMessage):
            self._whole(namespace, message, meta)

    def _lane(self, namespace: tuple[str, ...], message: BaseMessage, meta: Any) -> Lane:
        """The lane of a chunk: pieces of one model call share their metadata object, or at least their id."""
        lane = next((lane for lane in self._lanes if lane.meta is meta and lane.is_open), None)
        lane = lane or self._by_id.get(message.id or "")
        if lane is None:
            lane = self._open(namespace, meta)
        if message.id:
            self._by_id[message.id] = lane
        lane.meta = meta
        self._current = lane
        return lane

    def _open(self, namespace: tuple[str, ...], meta: Any) -> Lane:
        composer = Composer(self._context, calls=self._calls)
        names = [part.partition(":")[0] for part in namespace]
        author = meta.get("lc_agent_name") or (names[-1] if names else None)
        composer.begin_step(author, "/".join(names) or None)
        lane = Lane(composer, meta)
        self._lanes = [lane, *(other for other in self._lanes if other.is_open)]
        return lane

    def _chunk(self, lane: Lane, chunk: AIMessageChunk) -> None:
        content = chunk.content
        if chunk.additional_kwargs:
            self._say_reasoning(lane, chunk.additional_kwargs.get("reasoning_content"))
        if content:
            self._has_spoken = True
            if isinstance(content, str):
                lane.composer.text(content)
            else:
                self._say_blocks(lane, content)
        if chunk.tool_call_chunks:
            for piece in chunk.tool_call_chunks:
                self._call_piece(lane, piece)
        if chunk.usage_metadata or chunk.response_metadata:
            _note(lane.composer, chunk)
        if chunk.chunk_position == "last":
            lane.end()

    def _whole(self, namespace: tuple[str, ...], message: AIMessage, meta: Any) -> None:
        """A message that did not stream; one that did is only ended here."""
        told = self._by_id.get(message.id or "")
        if told is not None:
            told.end()
            return
        lane = self._open(namespace, meta)
        if message.id:
            self._by_id[message.id] = lane
        self._has_spoken = True
        self._say_reasoning(lane, message.additional_kwargs.get("reasoning_content"))
        if isinstance(message.content, str):
            lane.composer.text(message.content)
        else:
            self._say_blocks(lane, message.content)
        for call in message.tool_calls:
            name = call["name"]
            lane.composer.tool_call(name, call["args"], call["id"], self._executor(name))
        _note(lane.composer, message)
        lane.end()

    def _say_reasoning(self, lane: Lane, text: Any) -> None:
        if isinstance(text, str):
            lane.composer.reasoning(text)

    def _say_blocks(self, lane: Lane, blocks: Sequence[Any]) -> None:
        for block in blocks:
            if isinstance(block, str):
                lane.composer.text(block)
            elif (thinking := reasoning_of(block)) is not None:
                lane.composer.reasoning(thinking)
            elif isinstance(block.get("text"), str):
                lane.composer.text(block["text"])
            elif block.get("type") == "refusal":
                lane.composer.text(str(block.get("refusal") or ""))
            elif block.get("type") not in _CALL_BLOCKS:
                self._context.emit(Custom(name="langgraph.content", data=_without_bytes(block)))

    # -- tools

    def _executor(self, name: str) -> Any:
        return "client" if name in self._client_tools else "server"

    def _call_piece(self, lane: Lane, piece: Mapping[str, Any]) -> None:
        index = piece.get("index")
        key = index if index is not None else (piece.get("id") or lane.last_call)
        call_id = lane.call_ids.get(key)
        if call_id is None:
            name = piece.get("name")
            if not name:
                return
            call_id = lane.composer.tool_call_started(name, piece.get("id"), self._executor(name))
            lane.call_ids[key] = call_id
        lane.last_call = key
        self._has_spoken = True
        if call_id in self._calls and self._calls[call_id].is_open:
            lane.composer.tool_call_delta(call_id, piece.get("args") or "")

    def _tool(self, data: Mapping[str, Any]) -> None:
        call_id = str(data.get("tool_call_id"))
        match data.get("event"):
            case "tool-started":
                self._running.add(call_id)
                if call_id in self._calls:
                    self._root.tool_started(call_id)
            case "tool-output-delta" if call_id in self._calls:
                self._root.tool_progress(call_id, plain(data.get("delta")))
            case "tool-finished" | "tool-error":
                self._running.discard(call_id)
            case _:
                pass

    def _result(self, message: ToolMessage) -> None:
        call_id = message.tool_call_id
        self._running.discard(call_id)
        if call_id in self._calls:
            parts = output_parts(message.content)
            self._root.tool_result(call_id, parts, is_error=message.status == "error")
        else:
            _log.debug("a tool message answers the call %r, which nobody made or which has its result", call_id)

    # -- nodes

    def _update(self, namespace: tuple[str, ...], data: Mapping[str, Any]) -> None:
        for node, update in data.items():
            if node == "__interrupt__":
                self.is_at_breakpoint |= not update
                self.interrupts.update({interrupt.id: interrupt for interrupt in update})
            elif not namespace and node != "__metadata__":
                self._answer = _answer(update) or self._answer

    def _task(self, data: Mapping[str, Any]) -> None:
        """Remember what an interrupted task was given: a tool call, or messages that end with calls."""
        if "input" in data:
            self._task_inputs[data["id"]] = data["input"]
            return
        given = self._task_inputs.pop(data["id"], None)
        for interrupt in data.get("interrupts", ()):
            self._task_of.setdefault(interrupt["id"], given)

    def interrupts_in_order(self) -> list[Interrupt]:
        """The interrupts in the order of their calls; parallel tools raise theirs in any order."""
        order = {call_id: n for n, call_id in enumerate(self._calls)}

        def place(interrupt: Interrupt) -> int:
            return min((order[call[0]] for call in self.calls_of(interrupt.id)), default=len(order))

        return sorted(self.interrupts.values(), key=place)

    def calls_of(self, interrupt_id: str) -> list[tuple[str, str, Any]]:
        """Id, name and arguments of the open calls that an interrupt can be about; one alone when it is certain."""
        calls = [call for call in _calls_given(self._task_of.get(interrupt_id)) if call[0] in self._calls]
        running = [call for call in calls if call[0] in self._running]
        return running if len(running) == 1 else calls


_CALL_BLOCKS: Final = {
    "tool_use",
    "tool_call",
    "tool_call_chunk",
    "input_json_delta",
    "function_call",
    "server_tool_call",
}


def _calls_so_far(request: RunRequest, context: RunContext) -> dict[str, Call]:
    """The calls of this run that have no result yet, from the stretches before a pause."""
    waiting, running = set(context.open_calls()), context.open_results()
    return {
        item.call_id: Call(
            item_id=item.item_id,
            name=item.name,
            executor=item.executor,
            step=item.step or "",
            author=item.author,
            is_open=False,
            result_id=running.get(item.call_id),
        )
        for item in request.transcript
        if isinstance(item, ToolCall) and item.call_id in waiting
    }


def _note(composer: Composer, message: AIMessage) -> None:
    metadata = message.response_metadata
    composer.note(usage=usage_of(message.usage_metadata), finish_reason=finish_of(metadata), model=model_of(metadata))


def _answer(update: Any) -> str | None:
    if isinstance(update, str):
        return update
    if not isinstance(update, dict):
        return None
    return next((update[key] for key in _ANSWER_KEYS if isinstance(update.get(key), str)), None)


def _calls_given(given: Any) -> list[tuple[str, str, Any]]:
    match given:
        case {"tool_call": {"id": call_id, "name": name, "args": arguments}}:
            return [(call_id, name, arguments)]
        case {"messages": [*messages]}:
            newest = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
            return [(str(c["id"]), c["name"], c["args"]) for c in newest.tool_calls] if newest is not None else []
        case [*calls] if all(isinstance(call, dict) and "args" in call for call in calls):
            return [(str(c.get("id")), str(c.get("name")), c["args"]) for c in calls]
        case _:
            return []


def plain(value: Any) -> Any:
    """`value` as JSON data; what has no JSON form becomes its text."""
    return msgspec.to_builtins(value, enc_hook=_plain, str_keys=True)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def _without_bytes(block: Mapping[str, Any]) -> Any:
    return plain({key: value for key, value in block.items() if key not in ("data", "base64", "source")})
