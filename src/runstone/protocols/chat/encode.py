"""Run events as Chat Completions chunks; a run as a completion.

Rules: a successful stream is role, deltas, one `finish_reason`, `[DONE]`; any other end is one error frame and `[DONE]`.
Chat can only append: where a finished text differs from what was streamed, the difference is not shown.
Source: OpenAI API reference, "Chat", "Streaming"; docs/protocols/chat.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, assert_never

import msgspec

from runstone.core.content import RefusalPart
from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    AttemptStarted,
    Custom,
    Event,
    InputReceived,
    InputSettled,
    ItemEnded,
    ItemReplaced,
    ItemStarted,
    ReasoningDelta,
    RunContinued,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    StepEnded,
    StepStarted,
    TextDelta,
    ToolProgress,
)
from runstone.core.items import Executor, Item, Message, Reasoning, ToolCall, ToolResult
from runstone.core.transcript import Transcript
from runstone.errors import LocalProtocolError
from runstone.protocols.base import Frame, Header, numbered
from runstone.protocols.chat.errors import RESTARTED, error_of
from runstone.protocols.chat.history import call_to_wire, tool_content
from runstone.protocols.chat.types import NAME, Completion, Dialect, Echo, MessageWire, Waiting
from runstone.protocols.openai import FINISH_OF_REASON, FinishReason, chat_usage
from runstone.protocols.sse import escaped, json_line, to_bytes
from runstone.protocols.told import Told

_DONE: Final = Frame(b"[DONE]")
#: Between the texts of two messages of one answer, so that prose does not glue.
SEPARATOR: Final = "\n\n"
_encode = msgspec.json.Encoder().encode


def echo_of(header: Header) -> Echo:
    """What the leg's request said about its answer; defaults for a leg that another protocol began."""
    return msgspec.convert(header.leg.echo[NAME], Echo) if NAME in header.leg.echo else Echo()


def _id_of(header: Header) -> str:
    return f"chatcmpl-{header.run.id}"


def _model_of(header: Header) -> str:
    return echo_of(header).model or header.run.model or header.run.agent


# -- texts, one after another


class _Prose:
    """Texts that may grow at once, told one after another in the order of their first word.

    Every method gives what may be appended to the answer now. A text that is changed after it was told is told no further.
    """

    def __init__(self) -> None:
        #: The item that is being told, None while there is none.
        self.speaker: str | None = None
        self.has_told = False
        self._told = Told()
        self._held: dict[str, str] = {}
        self._ended: set[str] = set()

    def heard(self, text: str) -> None:
        """`text` of the speaker was told."""
        self._told.add(text)

    def add(self, item_id: str, text: str) -> str:
        """More text of an item."""
        if not text or item_id in self._ended:
            return ""
        if item_id == self.speaker:
            self._told.add(text)
            return text
        self._held[item_id] = self._held.get(item_id, "") + text
        return self._release()

    def replace(self, item_id: str, text: str) -> str:
        """All text of an item so far."""
        if item_id == self.speaker:
            rest = self._told.rest_of(text)
            if rest is not None:
                return self.add(item_id, rest)
            # What was told no longer counts, so nothing may be appended to it.
            self.speaker = None
            self._ended.add(item_id)
            return self._release()
        if item_id not in self._ended and (text or item_id in self._held):
            self._held[item_id] = text
        return self._release()

    def end(self, item_id: str, text: str) -> str:
        """All text of an item that grows no more."""
        rest = self.replace(item_id, text)
        self._ended.add(item_id)
        if item_id != self.speaker:
            return rest
        self.speaker = None
        return rest + self._release()

    def _release(self) -> str:
        """What waited for the speaker to end."""
        out = ""
        while self.speaker is None and self._held:
            item_id = next(iter(self._held))
            text = self._held.pop(item_id)
            if text:
                out += (SEPARATOR if self.has_told else "") + text
                self.has_told = True
            if item_id not in self._ended:
                self.speaker, self._told = item_id, Told(text)
        return out


class _Call:
    """A tool call that the stream has announced: its place, and the arguments that were told."""

    __slots__ = ("index", "told")

    def __init__(self, index: int) -> None:
        self.index = index
        self.told: str | None = ""


# -- the stream


class Encoder:
    """One leg's chunks.

    With `include_usage`, `usage` is null in every chunk and told in one of its own at the end; that one is left out when
    nobody counted. Each frame's id is `seq`, or `seq.k` for all but the last of an event.
    """

    def __init__(self, header: Header, *, include_usage: bool = False, dialect: Dialect = "openai") -> None:
        self.is_over = False
        self._run = header.run
        self._first = header.leg.first_seq
        self._last = 0
        self._shows_steps = dialect == "steps"
        self._include_usage = include_usage
        self._head: dict[str, Any] = {
            "id": _id_of(header),
            "object": "chat.completion.chunk",
            "created": int(header.run.created_at),
            "model": _model_of(header),
        }
        # Everything in a text chunk but its text is the same for the whole stream.
        self._content = self._around("content")
        self._reasoning = self._around("reasoning_content")
        self._approvals: dict[str, ApprovalRequested] = {}
        self._text = _Prose()
        self._thought = _Prose()
        self._calls: dict[str, _Call] = {}
        self._has_said = False
        self._step_is_calling = False

    def encode(self, event: Event) -> list[Frame]:
        body, seq = event.body, event.seq
        if seq <= self._last or self.is_over:
            raise LocalProtocolError(f"event {seq} does not continue a stream that has event {self._last}")
        self._last = seq
        # The one event that comes by the thousands goes no further than this.
        if type(body) is TextDelta and body.item_id == self._text.speaker and seq > self._first:
            text = body.text
            if not text:
                return []
            self._text.heard(text)
            before, after = self._content
            return [Frame(before + escaped(_encode(text)) + after, None, str(seq))]
        if seq < self._first:
            self._chunks(event)
            self.is_over = False
            return []
        if seq == self._first:
            return numbered(seq, [self._begin(), *self._chunks(event)])
        return numbered(seq, self._chunks(event))

    def wire(self, events: list[Event]) -> list[bytes]:
        parts: list[bytes] = []
        before, after = self._content
        after += b"\n\n"
        prose = self._text
        for event in events:
            body = event.body
            seq = event.seq
            if (
                type(body) is TextDelta
                and body.item_id == prose.speaker
                and seq == self._last + 1
                and seq > self._first
            ):
                self._last = seq
                prose.heard(body.text)
                text = _encode(body.text)
                if body.text:
                    parts.append(
                        b"id: %d\ndata: %b%b%b" % (seq, before, text if text.isascii() else escaped(text), after)
                    )
                continue
            parts += [to_bytes(frame) for frame in self.encode(event)]
            if self.is_over:
                break
        return parts

    def end(self) -> list[Frame]:
        return [_DONE]

    def _begin(self) -> bytes:
        """The first chunk; nothing of the legs before counts as said."""
        self._text.has_told = self._thought.has_told = self._has_said = self._step_is_calling = False
        self._calls = {}
        run = self._run
        return self._chunk({"role": "assistant", "content": ""}, run_id=run.id, session_id=run.session_id)

    def _chunks(self, event: Event) -> list[bytes]:
        match event.body:
            case TextDelta(item_id=item_id, text=text):
                return self._say(self._content, self._text.add(item_id, text))
            case ReasoningDelta(item_id=item_id, text=text):
                return self._say(self._reasoning, self._thought.add(item_id, text))
            case ArgumentsDelta(item_id=item_id, text=text):
                return self._arguments(item_id, text)
            case ItemStarted():
                return self._item_started(event.body)
            case ItemReplaced(item=item):
                return self._item_replaced(item)
            case ItemEnded(item=item):
                return self._item_ended(item)
            case StepEnded():
                return self._calling_ended()
            case ApprovalRequested(approval_id=approval_id):
                self._approvals[approval_id] = event.body
                return []
            case ApprovalDecided(approval_id=approval_id):
                self._approvals.pop(approval_id, None)
                return []
            case AttemptStarted():
                return self._restarted()
            case RunPaused():
                return self._paused(event.body)
            case RunEnded():
                return self._ended(event.body)
            case RunCreated() | RunStarted() | RunContinued() | StepStarted() | InputReceived() | InputSettled():
                return []
            case ToolProgress() | Custom():
                return []
            case _:
                assert_never(event.body)

    # -- chunks

    def _chunk(self, delta: dict[str, Any], finish: FinishReason | None = None, **more: Any) -> bytes:
        return self._line([{"index": 0, "delta": delta, "finish_reason": finish}], **more)

    def _line(self, choices: list[Any], **more: Any) -> bytes:
        usage = {"usage": None} if self._include_usage else {}
        return json_line({**self._head, "choices": choices, **usage, **more})

    def _around(self, key: str) -> tuple[bytes, bytes]:
        """A chunk of one text, before and after the text."""
        before, _, after = self._chunk({key: "\0"}).rpartition(rb'"\u0000"')
        return before, after

    def _say(self, around: tuple[bytes, bytes], text: str) -> list[bytes]:
        if not text:
            return []
        self._has_said = True
        before, after = around
        return [before + escaped(_encode(text)) + after]

    # -- items

    def _item_started(self, body: ItemStarted) -> list[bytes]:
        if body.kind == "tool_result":
            return self._calling_ended()
        if body.kind == "tool_call" and body.name and body.executor and self._shows(body.executor):
            return self._announce(body.item_id, body.call_id or "", body.name, body.executor)
        return []

    def _item_replaced(self, item: Item) -> list[bytes]:
        match item:
            case Message():
                return self._say(self._content, self._text.replace(item.item_id, item.text))
            case Reasoning():
                return self._say(self._reasoning, self._thought.replace(item.item_id, item.text))
            case ToolCall():
                return self._all_arguments(item)
            case _:
                return []

    def _item_ended(self, item: Item) -> list[bytes]:
        match item:
            case Message():
                text = item.text if item.role == "assistant" else ""
                refusals = [part.text for part in item.parts if isinstance(part, RefusalPart)]
                chunks = self._say(self._content, self._text.end(item.item_id, text))
                return chunks + [self._chunk({"refusal": words}) for words in refusals]
            case Reasoning():
                return self._say(self._reasoning, self._thought.end(item.item_id, item.text))
            case ToolCall() if self._shows(item.executor):
                known = item.item_id in self._calls
                opening = [] if known else self._announce(item.item_id, item.call_id, item.name, item.executor)
                return opening + self._all_arguments(item)
            case ToolResult() if self._shows_steps:
                delta = {"role": "tool", "tool_call_id": item.call_id, "content": tool_content(item, {})}
                again = {"role": "assistant", "content": ""}
                return [*self._calling_ended(), self._chunk(delta), self._chunk(again)]
            case _:
                return []

    # -- tool calls

    def _shows(self, executor: Executor) -> bool:
        return executor == "client" or self._shows_steps

    def _announce(self, item_id: str, call_id: str, name: str, executor: Executor) -> list[bytes]:
        call = self._calls[item_id] = _Call(len(self._calls))
        self._has_said = True
        self._step_is_calling = self._step_is_calling or executor == "server"
        function = {"name": name, "arguments": ""}
        opening = {"index": call.index, "id": call_id, "type": "function", "function": function}
        return [self._chunk({"tool_calls": [opening]})]

    def _arguments(self, item_id: str, text: str) -> list[bytes]:
        call = self._calls.get(item_id)
        if call is None or call.told is None or not text:
            return []
        call.told += text
        return [self._chunk({"tool_calls": [{"index": call.index, "function": {"arguments": text}}]})]

    def _all_arguments(self, item: ToolCall) -> list[bytes]:
        """The arguments that were not told yet; none, and none ever again, when what was told is not their beginning."""
        call = self._calls.get(item.item_id)
        if call is None or call.told is None:
            return []
        if not item.arguments.startswith(call.told):
            call.told = None
            return []
        return self._arguments(item.item_id, item.arguments[len(call.told) :])

    def _calling_ended(self) -> list[bytes]:
        """In `steps`, the finish of a step that called tools; the stream goes on after it."""
        if not self._step_is_calling:
            return []
        self._step_is_calling = False
        return [self._chunk({}, "tool_calls")]

    # -- ends

    def _restarted(self) -> list[bytes]:
        """Nothing may be appended to words that no longer count; when there were none, the stream goes on."""
        self._approvals = {}
        if self._has_said and self._last >= self._first:
            self.is_over = True
            return [json_line(RESTARTED)]
        self._text, self._thought, self._calls = _Prose(), _Prose(), {}
        self._step_is_calling = False
        return []

    def _paused(self, body: RunPaused) -> list[bytes]:
        self.is_over = True
        pending = [self._approvals[id] for id in body.approvals if id in self._approvals]
        return [self._chunk({}, "stop", runstone=waiting(self._run.id, pending))]

    def _ended(self, body: RunEnded) -> list[bytes]:
        self.is_over = True
        if body.outcome != "completed":
            return [json_line(error_of(body))]
        usage = chat_usage(body.usage) if self._include_usage else None
        told = [] if usage is None else [self._line([], usage=usage)]
        return [self._chunk({}, finish_reason(body)), *told]


def finish_reason(ended: RunEnded) -> FinishReason:
    """The word for the end of a completed run."""
    return FINISH_OF_REASON.get(ended.reason or "", "stop")


def waiting(run_id: str, approvals: Iterable[ApprovalRequested]) -> Waiting:
    """What a client needs to answer a run that waits for decisions."""
    fields = [msgspec.to_builtins(approval) for approval in approvals]
    for approval in fields:
        del approval["type"]
    return {"status": "waiting", "run_id": run_id, "approvals": fields}


# -- the body


class Answer:
    """One leg as the body of a call without `stream`: feed it the run's events from the first on, until `is_over`."""

    def __init__(self, header: Header) -> None:
        self.is_over = False
        #: The outcome, None while there is none; one that is not completed is answered with `errors.failure_of`.
        self.ended: RunEnded | None = None
        self._header = header
        self._transcript = Transcript(header.run.id)
        self._began: dict[str, int] = {}

    def feed(self, event: Event) -> None:
        """Take the next event."""
        self._transcript.feed(event)
        match event.body:
            case TextDelta(item_id=item_id, text=text) | ReasoningDelta(item_id=item_id, text=text) if text:
                self._began.setdefault(item_id, event.seq)
            case ItemStarted(item_id=item_id, kind="tool_call"):
                self._began.setdefault(item_id, event.seq)
            case ItemReplaced(item=Message() | Reasoning() as item) if item.text:
                self._began.setdefault(item.item_id, event.seq)
            case ItemEnded(item=item):
                self._began.setdefault(item.item_id, event.seq)
            case RunPaused():
                self.is_over = event.seq >= self._header.leg.first_seq
            case RunEnded():
                self.ended = event.body
                self.is_over = True
            case _:
                pass

    def body(self) -> Completion:
        """The completion so far: of a run that completed, or that waits."""
        run = self._header.run
        completion: Completion = {
            "id": _id_of(self._header),
            "object": "chat.completion",
            "created": int(run.created_at),
            "model": _model_of(self._header),
            "choices": [{"index": 0, "message": self._message(), "finish_reason": "stop", "logprobs": None}],
            "run_id": run.id,
            "session_id": run.session_id,
        }
        if self.ended is None:
            completion["runstone"] = waiting(run.id, self._transcript.state.approvals.values())
            return completion
        completion["choices"][0]["finish_reason"] = finish_reason(self.ended)
        usage = chat_usage(self.ended.usage)
        if usage is not None:
            completion["usage"] = usage
        return completion

    def _message(self) -> MessageWire:
        items = self._items()
        said = [item for item in items if isinstance(item, Message) and item.role == "assistant"]
        content = SEPARATOR.join(item.text for item in said if item.text)
        refusal = "".join(part.text for item in said for part in item.parts if isinstance(part, RefusalPart))
        reasoning = SEPARATOR.join(item.text for item in items if isinstance(item, Reasoning) and item.text)
        calls = [call_to_wire(item) for item in items if isinstance(item, ToolCall) and item.executor == "client"]
        message: MessageWire = {"role": "assistant", "content": content, "refusal": refusal or None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = calls
            message["content"] = content or None
        return message

    def _items(self) -> list[Item]:
        """What this leg said, in the order in which it began, as the stream tells it."""
        first, began = self._header.leg.first_seq, self._began
        items = [row.item for row in self._transcript.rows if row.seq >= first] + self._transcript.open_items
        mine = [item for item in items if began.get(item.item_id, 0) >= first]
        return sorted(mine, key=lambda item: began[item.item_id])


def body(header: Header, events: Iterable[Event]) -> Completion:
    """The completion of a run whose `events`, from the first on, reach its end or its pause."""
    answer = Answer(header)
    for event in events:
        if answer.is_over:
            break
        answer.feed(event)
    return answer.body()
