"""Run events to the events of one response.

A response is one leg of a run. Rule: `response.created` is the leg's first event and exactly one of completed, incomplete and
failed the last; between them items, each added, filled and done. Frames have no SSE id: `sequence_number` is the cursor.
Source: OpenAI API reference, "Responses / streaming"; the stream events of the second dialect's table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

import msgspec

from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    AttemptStarted,
    Body,
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
from runstone.core.items import Item, Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import Usage
from runstone.errors import LocalProtocolError
from runstone.protocols.base import Frame, Header
from runstone.protocols.responses.body import RESTARTED, WAITING, Ending, ResponseBody, ending_of
from runstone.protocols.responses.emit import DONE, Emitter
from runstone.protocols.responses.ids import wire_item_id
from runstone.protocols.responses.items import approval_request_item
from runstone.protocols.responses.streams import (
    FunctionCallStream,
    ItemStream,
    McpCallStream,
    MessageStream,
    OutputStream,
    ReasoningStream,
)
from runstone.protocols.responses.types import Dialect, ReasoningAs, ResponseObject, Status, Style, ToolsAs
from runstone.protocols.sse import wire_of

#: How events become frames; another number of frames for an event is another version.
VERSION: Final = 1
#: What may happen to a run that nobody drives yet; any other event means that work is in progress.
_IDLE: Final = (RunCreated, RunEnded, RunPaused, ApprovalDecided, InputReceived, InputSettled, StepEnded)


class Encoder:
    """One leg of a run as the frames of one response.

    Feed it every event of the run from the first; deltas may be missing when only `response` is wanted. `sent` is the number
    of frames made, which is the number that the next one gets. `is_over` becomes True at the pause or end that ends the leg.
    """

    def __init__(
        self,
        header: Header,
        *,
        dialect: Dialect = "openai",
        tools_as: ToolsAs = "mcp_call",
        reasoning_as: ReasoningAs = "summary",
        blobs: Mapping[str, bytes] | None = None,
    ) -> None:
        self.is_over = False
        self._style = Style(dialect=dialect, tools_as=tools_as, reasoning_as=reasoning_as)
        self._blobs = blobs or {}
        self._run_id = header.run.id
        self._leg_index = header.leg_index
        self._first_seq = header.leg.first_seq
        self._body = ResponseBody(header)
        self._out = Emitter()
        self._seq = 0
        self._status: Status = "queued"
        self._is_begun = False
        self._final: ResponseObject | None = None
        self._usage: Usage | None = None
        self._open: dict[str, ItemStream] = {}
        self._fast: dict[str, MessageStream] = {}
        self._calls: dict[str, ToolCall] = {}
        self._asked: dict[str, ApprovalRequested] = {}
        self._shown: set[str] = set()
        self._decided: dict[str, ApprovalDecided] = {}

    @property
    def sent(self) -> int:
        """How many frames were made."""
        return self._out.sent

    @property
    def response(self) -> ResponseObject:
        """The response as it stands; of its items those that are finished."""
        return self._final or self._body.make(self._status, self._out.output)

    def encode(self, event: Event) -> list[Frame]:
        body = event.body
        if type(body) is TextDelta and event.seq > self._seq and body.text:
            stream = self._fast.get(body.item_id)
            if stream is not None:
                self._seq = event.seq
                return [stream.fast_delta(body.text)]
        if event.seq <= self._seq or self.is_over:
            raise LocalProtocolError(f"event {event.seq} cannot follow event {self._seq} of this response")
        self._seq = event.seq
        if event.seq < self._first_seq:
            self._watch(body)
        elif isinstance(body, AttemptStarted) and self._is_begun:
            self._end(event, RESTARTED, self._usage)
        else:
            self._begin(body)
            self._say(event)
        return self._out.take()

    def wire(self, events: list[Event]) -> list[bytes]:
        return wire_of(self, events)

    def end(self) -> list[Frame]:
        return [DONE]

    # -- what the leg may need of what came before it

    def _watch(self, body: Body) -> None:
        match body:
            case ItemStarted():
                self._open[body.item_id] = self._stream(body)
            case TextDelta() | ReasoningDelta() | ArgumentsDelta():
                self._stream_of(body.item_id).keep(body.text)
            case ItemReplaced(item=item):
                self._stream_of(item.item_id).keep_only(_text_of(item))
            case ItemEnded(item=item):
                self._open.pop(item.item_id, None)
                self._note_call(item)
            case AttemptStarted():
                self._forget()
            case _:
                self._note_approval(body)

    def _forget(self) -> None:
        """A new attempt: what was going on does not go on."""
        self._open.clear()
        self._calls.clear()
        self._asked.clear()

    def _note_call(self, item: Item) -> None:
        if isinstance(item, ToolCall):
            self._calls[item.call_id] = item
        elif isinstance(item, ToolResult):
            self._calls.pop(item.call_id, None)

    def _note_approval(self, body: Body) -> None:
        if isinstance(body, ApprovalRequested):
            self._asked[body.approval_id] = body
        elif isinstance(body, ApprovalDecided) and body.approval_id in self._asked:
            call_id = self._asked[body.approval_id].call_id
            if call_id is not None:
                self._decided[call_id] = body

    # -- the leg

    def _begin(self, body: Body) -> None:
        """Created at the leg's first event, in progress at the first that is work."""
        is_work = self._status == "queued" and not isinstance(body, _IDLE)
        if not self._is_begun:
            self._is_begun = True
            self._out.say_response("response.created", self.response)
        if is_work:
            self._status = "in_progress"
            self._out.say_response("response.in_progress", self.response)

    def _say(self, event: Event) -> None:
        body = event.body
        match body:
            case TextDelta() | ReasoningDelta() | ArgumentsDelta():
                self._delta(body)
            case ItemStarted():
                stream = self._open[body.item_id] = self._stream(body)
                if body.kind != "file":
                    stream.begin()
            case ItemReplaced(item=item):
                self._stream_of(item.item_id).replace(_text_of(item))
            case ItemEnded(item=item):
                self._item_ended(item)
            case ApprovalRequested():
                self._note_approval(body)
                self._ask(body)
            case ApprovalDecided():
                self._note_approval(body)
            case StepEnded(usage=usage):
                if usage is not None:
                    self._usage = usage if self._usage is None else self._usage.plus(usage)
            case RunPaused(approvals=pending):
                # Who answered some of several in the leg before has to see what the run still waits for.
                for id in pending:
                    if id in self._asked and id not in self._shown:
                        self._ask(self._asked[id])
                self._end(event, WAITING[self._style.dialect], self._usage)
            case RunEnded():
                own, whole = self._usage, body.usage
                usage = (own or whole) if self._leg_index else (whole or own)
                self._end(event, ending_of(body, self._style.dialect), usage)
            case AttemptStarted():
                self._forget()
            case RunCreated() | RunStarted() | RunContinued() | StepStarted() | ToolProgress() | Custom():
                pass
            case InputReceived() | InputSettled():
                pass
            case _:
                assert_never(body)

    def _ask(self, asked: ApprovalRequested) -> None:
        self._shown.add(asked.approval_id)
        shown = approval_request_item(asked)
        self._out.finish(self._out.add(shown), shown)

    def _delta(self, body: TextDelta | ReasoningDelta | ArgumentsDelta) -> None:
        stream = self._stream_of(body.item_id)
        stream.delta(body.text)
        if isinstance(stream, MessageStream) and stream.is_fast:
            self._fast[body.item_id] = stream

    def _item_ended(self, item: Item) -> None:
        stream = self._stream_of(item.item_id)
        if isinstance(item, ToolCall) and item.executor == "client" and not isinstance(stream, FunctionCallStream):
            # Who runs a call may be known at its end only; one for the client must be seen.
            stream = FunctionCallStream(self._out, stream.id, stream.started)
        stream.end(item)
        self._note_call(item)
        self._open.pop(item.item_id, None)
        self._fast.pop(item.item_id, None)

    def _end(self, event: Event, ending: Ending, usage: Usage | None) -> None:
        """The last frame. At a pause what is open is closed; a new attempt leaves it, since nothing of it counts."""
        if isinstance(event.body, RunPaused):
            for stream in self._open.values():
                if stream.is_open:
                    stream.cut()
        self._fast.clear()
        self._status = ending.status
        self._final = self._body.make(ending.status, self._out.output, ending=ending, at=event.at, usage=usage)
        self._out.say_response(ending.event, self._final)
        self.is_over = True

    # -- items

    def _stream_of(self, item_id: str) -> ItemStream:
        try:
            return self._open[item_id]
        except KeyError:
            raise LocalProtocolError(f"item {item_id!r} is not open") from None

    def _stream(self, started: ItemStarted) -> ItemStream:
        out, run_id, item_id = self._out, self._run_id, started.item_id
        tools = self._style.tools
        match started.kind:
            case "message" | "file":
                return MessageStream(out, wire_item_id("msg", run_id, item_id), started, self._blobs)
            case "reasoning":
                return ReasoningStream(out, wire_item_id("rs", run_id, item_id), started, self._style)
            case "tool_call":
                is_shown = started.executor == "client" or tools == "function_pair"
                kind = FunctionCallStream if is_shown else ItemStream
                return kind(out, wire_item_id("fc", run_id, item_id), started)
            case "tool_result":
                return self._result_stream(started)
            case "approval":
                return ItemStream(out, item_id, started)
            case _:
                assert_never(started.kind)

    def _result_stream(self, started: ItemStarted) -> ItemStream:
        """How the result of a call is shown: not at all when the client gave it."""
        call = self._calls.get(started.call_id or "")
        if call is None:
            raise LocalProtocolError(f"result {started.item_id!r} is of no finished call")
        id = wire_item_id("mcp" if self._style.tools == "mcp_call" else "fco", self._run_id, started.item_id)
        if call.executor == "client" or self._style.tools == "hidden":
            return ItemStream(self._out, id, started)
        if self._style.tools == "function_pair":
            return OutputStream(self._out, id, started, self._blobs, self._style, name=call.name)
        decided = self._decided.get(call.call_id)
        shown = call_as_run(call, decided)
        approval_id = None if decided is None else decided.approval_id
        return McpCallStream(self._out, id, started, shown, self._blobs, approval_id=approval_id)


def call_as_run(call: ToolCall, decided: ApprovalDecided | None) -> ToolCall:
    """The call with the arguments that ran: those of the decision, where it gave some."""
    if decided is None or decided.arguments is None:
        return call
    return msgspec.structs.replace(call, arguments=decided.arguments)


def _text_of(item: Item) -> str:
    match item:
        case Message() | Reasoning():
            return item.text
        case ToolCall():
            return item.arguments
        case _:
            return ""


def response_body(
    header: Header,
    events: Iterable[Event],
    *,
    dialect: Dialect = "openai",
    tools_as: ToolsAs = "mcp_call",
    reasoning_as: ReasoningAs = "summary",
    blobs: Mapping[str, bytes] | None = None,
    next_response_id: str | None = None,
) -> ResponseObject:
    """The response object of the leg after `events`, which begin with the run's first; deltas may be left out.

    It equals the object of the stream's last event. `next_response_id` names the leg after it, when there is one.
    """
    encoder = Encoder(header, dialect=dialect, tools_as=tools_as, reasoning_as=reasoning_as, blobs=blobs)
    for event in events:
        if encoder.is_over:
            break
        encoder.encode(event)
    response = encoder.response
    return response if next_response_id is None else {**response, "next_response_id": next_response_id}
