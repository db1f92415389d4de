"""What Hermes' two streams call each thing, and what they say of it.

A `Say` is a frame without what all frames of its stream have. `SessionWords` are those of `/chat/stream`, `RunsWords` those
of `/v1/runs/{id}/events`: the same methods, each with the names and shapes that its clients know.
Source: the Hermes agent API server as measured; docs/protocols/hermes.md lists what is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from runstone.core.events import ApprovalDecided, ApprovalRequested, InputReceived, InputSettled, RunEnded, ToolProgress
from runstone.core.items import Item, Message, ToolCall, ToolResult
from runstone.core.runs import PendingApproval
from runstone.protocols.hermes.history import result_text, text_to_show, usage_to_wire, user_content
from runstone.protocols.hermes.types import MessageRow

Fields = dict[str, Any]
#: The event's name and its fields.
Say = tuple[str, Fields]

_PREVIEW: Final = 500
_FAILED: Final = {
    "failed": "The agent failed.",
    "interrupted": "The run was interrupted.",
}


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What the end of a run says: its event, the rows it made, and the steering that nobody took."""

    body: RunEnded
    rows: list[MessageRow]
    answer: str
    pending_steer: str | None = None


class Words(Protocol):
    """How one stream says what happens."""

    def created(self, items: list[Item]) -> list[Say]:
        """The run is there; `items` are its input."""
        ...

    def reasoning(self, text: str) -> list[Say]:
        """More of the model's thinking."""
        ...

    def replaced(self, text: str, attempt: int) -> list[Say]:
        """All text shown so far is `text` from here on."""
        ...

    def tool_started(self, call: ToolCall) -> list[Say]:
        """A tool starts to run, or waits for leave to."""
        ...

    def tool_progress(self, progress: ToolProgress, call: ToolCall | None) -> list[Say]:
        """A running tool says something."""
        ...

    def tool_ended(self, result: ToolResult, call: ToolCall | None, seconds: float | None) -> list[Say]:
        """A tool gave its result, or failed."""
        ...

    def approval_requested(self, asked: ApprovalRequested) -> list[Say]:
        """Somebody has to decide."""
        ...

    def approval_decided(self, decided: ApprovalDecided) -> list[Say]:
        """Somebody decided."""
        ...

    def input_received(self, received: InputReceived) -> list[Say]:
        """Steering came."""
        ...

    def input_settled(self, settled: InputSettled, received: InputReceived | None) -> list[Say]:
        """Steering reached the agent, or did not."""
        ...

    def ended(self, ending: Ending) -> list[Say]:
        """The run has its outcome."""
        ...


class SessionWords:
    """Named frames; every one about the answer names the one message of the turn."""

    def __init__(self, message_id: str) -> None:
        self._message = {"message_id": message_id}

    def created(self, items: list[Item]) -> list[Say]:
        """`run.started` with the user's message, and the message that will be the answer."""
        said = [item for item in items if isinstance(item, Message) and item.role == "user"]
        fields: Fields = {"user_message": {"role": "user", "content": user_content(said[-1].parts)}} if said else {}
        message = {"id": self._message["message_id"], "role": "assistant"}
        return [("run.started", fields), ("message.started", {"message": message})]

    def reasoning(self, text: str) -> list[Say]:
        """`reasoning.delta`."""
        return [("reasoning.delta", {**self._message, "delta": text})]

    def replaced(self, text: str, attempt: int) -> list[Say]:
        """`assistant.completed` replaces; `partial` says that more comes."""
        flags = {"completed": False, "partial": True, "interrupted": False}
        return [("assistant.completed", {**self._message, "content": text, **flags, "attempt": attempt})]

    def tool_started(self, call: ToolCall) -> list[Say]:
        """`tool.started`."""
        return [("tool.started", {**self._tool(call.call_id, call.name), "preview": preview_of(call), **args_of(call)})]

    def tool_progress(self, progress: ToolProgress, call: ToolCall | None) -> list[Say]:
        """`tool.progress`, never with the name `_thinking`."""
        name = call.name if call is not None else None
        return [("tool.progress", {**self._tool(progress.call_id, name), **_progress(progress)})]

    def tool_ended(self, result: ToolResult, call: ToolCall | None, seconds: float | None) -> list[Say]:
        """`tool.completed` with the result, or `tool.failed` with the reason."""
        text = result_text(result)
        fields: Fields = {**self._tool(result.call_id, _name(result, call)), "preview": _cut(text)}
        fields |= args_of(call) if call is not None else {"args": None}
        if seconds is not None:
            fields["duration"] = seconds
        if result.is_error:
            return [("tool.failed", {**fields, "error": {"message": text}})]
        return [("tool.completed", {**fields, "result": text})]

    def _tool(self, call_id: str, name: str | None) -> Fields:
        return {**self._message, "tool_call_id": call_id, "tool_name": name}

    def approval_requested(self, asked: ApprovalRequested) -> list[Say]:
        """`approval.request`."""
        return [("approval.request", {**self._message, **approval_to_wire(asked)})]

    def approval_decided(self, decided: ApprovalDecided) -> list[Say]:
        """`approval.responded`; Hermes has it on runs streams only."""
        return [("approval.responded", {**self._message, **_decided(decided)})]

    def input_received(self, received: InputReceived) -> list[Say]:
        """`input.received`; Hermes has no word for it here."""
        return [("input.received", {**self._message, **_input(received)})]

    def input_settled(self, settled: InputSettled, received: InputReceived | None) -> list[Say]:
        """`input.delivered` or `input.returned`."""
        return [(f"input.{settled.outcome}", {**self._message, **_settled(settled, received)})]

    def ended(self, ending: Ending) -> list[Say]:
        """`assistant.completed`, for a failure `error`, and the outcome."""
        body = ending.body
        flags = flags_of(body)
        more = _more(ending)
        says: list[Say] = [("assistant.completed", {**self._message, "content": ending.answer, **flags, **more})]
        fields: Fields = {**self._message, **flags, **more, "messages": ending.rows}
        if usage := usage_to_wire(body.usage):
            fields["usage"] = usage
        if body.outcome in _FAILED:
            fields["error"] = {"message": failure_text(body), "code": failure_code(body)}
        if body.outcome == "failed":
            # Some clients know no other bad end than this event; it says no more than the next one.
            says.append(("error", {"message": failure_text(body), "error": fields["error"]}))
        return [*says, (f"run.{body.outcome}", fields)]


class RunsWords:
    """Unnamed frames: the name stands in `data.event`. There is no start and no end mark."""

    def created(self, items: list[Item]) -> list[Say]:
        """Nothing: whoever reads this stream knows that the run is there."""
        return []

    def reasoning(self, text: str) -> list[Say]:
        """`reasoning.delta`."""
        return [("reasoning.delta", {"delta": text})]

    def replaced(self, text: str, attempt: int) -> list[Say]:
        """`message.replaced`; Hermes has no word for it here."""
        return [("message.replaced", {"text": text, "attempt": attempt})]

    def tool_started(self, call: ToolCall) -> list[Say]:
        """`tool.started`."""
        fields: Fields = {"tool": call.name, "tool_call_id": call.call_id, "preview": preview_of(call), **args_of(call)}
        return [("tool.started", fields)]

    def tool_progress(self, progress: ToolProgress, call: ToolCall | None) -> list[Say]:
        """`tool.progress`; Hermes has it on session streams only."""
        fields: Fields = {"tool": call.name if call is not None else None, "tool_call_id": progress.call_id}
        return [("tool.progress", {**fields, **_progress(progress)})]

    def tool_ended(self, result: ToolResult, call: ToolCall | None, seconds: float | None) -> list[Say]:
        """`tool.completed`, also for a tool that failed."""
        text = result_text(result)
        fields: Fields = {"tool": _name(result, call), "tool_call_id": result.call_id}
        if seconds is not None:
            fields["duration"] = seconds
        return [("tool.completed", {**fields, "error": result.is_error, "preview": _cut(text), "result": text})]

    def approval_requested(self, asked: ApprovalRequested) -> list[Say]:
        """`approval.request`."""
        return [("approval.request", approval_to_wire(asked))]

    def approval_decided(self, decided: ApprovalDecided) -> list[Say]:
        """`approval.responded`."""
        return [("approval.responded", _decided(decided))]

    def input_received(self, received: InputReceived) -> list[Say]:
        """`run.steered`."""
        return [("run.steered", {"accepted": True, **_input(received)})]

    def input_settled(self, settled: InputSettled, received: InputReceived | None) -> list[Say]:
        """`input.delivered` or `input.returned`."""
        return [(f"input.{settled.outcome}", _settled(settled, received))]

    def ended(self, ending: Ending) -> list[Say]:
        """The outcome, with the answer in `output`."""
        return [(f"run.{ending.body.outcome}", end_of_run(ending.body, ending.answer, ending.pending_steer))]


# -- what both say alike


def end_of_run(body: RunEnded, output: str | None, pending_steer: str | None) -> Fields:
    """The end as the runs stream and `GET /v1/runs/{id}` tell it; `output` None when it is not known."""
    fields: Fields = {}
    if output or (output is not None and body.outcome == "completed"):
        fields["output"] = output
    if usage := usage_to_wire(body.usage):
        fields["usage"] = usage
    if body.outcome in _FAILED:
        fields |= {"error": failure_text(body), "error_code": failure_code(body)}
    fields |= flags_of(body)
    if body.reason is not None:
        fields["turn_exit_reason"] = body.reason
    if pending_steer is not None:
        fields["pending_steer"] = pending_steer
    return fields


def flags_of(body: RunEnded) -> Fields:
    """Hermes' three booleans about an end; `partial`: the model was cut off by a limit or a filter."""
    return {
        "completed": body.outcome == "completed",
        "partial": body.outcome == "completed" and body.reason in ("max_output_tokens", "content_filter"),
        "interrupted": body.outcome in ("cancelled", "interrupted"),
    }


def failure_text(body: RunEnded) -> str:
    """Why the run failed or was interrupted."""
    return body.error.message if body.error is not None else _FAILED[body.outcome]


def failure_code(body: RunEnded) -> str:
    """The same as a word."""
    return body.error.code if body.error is not None else body.outcome


def _more(ending: Ending) -> Fields:
    fields: Fields = {}
    if ending.body.reason is not None:
        fields["turn_exit_reason"] = ending.body.reason
    if ending.pending_steer is not None:
        fields["pending_steer"] = ending.pending_steer
    return fields


def args_of(call: ToolCall) -> Fields:
    """`args` as an object; null, with the text in `args_raw`, when the arguments are no object."""
    if not call.arguments.strip():
        return {"args": {}}
    try:
        value = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        value = None
    return {"args": value} if isinstance(value, dict) else {"args": None, "args_raw": call.arguments}


def preview_of(call: ToolCall) -> str:
    """The arguments in a line: the value alone when there is one and it is text."""
    return _line(call.arguments)


def _line(arguments: str) -> str:
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return _cut(arguments)
    match value:
        case dict() if len(value) == 1 and isinstance(only := next(iter(value.values())), str):
            return _cut(only)
        case _:
            return _cut(arguments)


def _cut(text: str) -> str:
    return text if len(text) <= _PREVIEW else f"{text[: _PREVIEW - 3]}..."


def _name(result: ToolResult, call: ToolCall | None) -> str | None:
    return call.name if call is not None else result.name


def _progress(progress: ToolProgress) -> Fields:
    data = progress.data
    return {"delta": data if isinstance(data, str) else msgspec.json.encode(data).decode(), "data": data}


def approval_to_wire(asked: ApprovalRequested | PendingApproval) -> Fields:
    """A request for a decision in Hermes' words, and after them ours.

    `choices` are the agent's own, or yes and no: whether more than this once is meant is for the agent to offer.
    """
    command = "" if asked.arguments is None else _line(asked.arguments)
    default = ["once", "deny"] if asked.kind == "confirm" else []
    choices = default if asked.choices is None else asked.choices
    fields: Fields = {
        "command": command or asked.name or "",
        "description": asked.prompt or asked.name or "",
        "pattern_key": asked.name or asked.kind,
        "pattern_keys": [asked.name or asked.kind],
        "allow_session": "session" in choices,
        "allow_permanent": "always" in choices,
        "request_id": asked.approval_id,
        "choices": choices,
        "approval_id": asked.approval_id,
        "kind": asked.kind,
    }
    ours = {
        "tool_call_id": asked.call_id,
        "tool_name": asked.name,
        "arguments": asked.arguments,
        "prompt": asked.prompt,
        "schema": asked.schema,
        "expires_at": asked.expires_at,
    }
    return fields | {key: value for key, value in ours.items() if value is not None}


def choice_of(decision: str, scope: str | None) -> str:
    """A decision as Hermes' `choice`."""
    if decision == "approved":
        return scope if scope in ("session", "always") else "once"
    return {"denied": "deny", "answered": "answer"}.get(decision, decision)


def _decided(decided: ApprovalDecided) -> Fields:
    fields: Fields = {
        "choice": choice_of(decided.decision, decided.scope),
        "resolved": 1,
        "request_id": decided.approval_id,
        "approval_id": decided.approval_id,
        "decision": decided.decision,
    }
    ours = {"arguments": decided.arguments, "value": decided.value, "reason": decided.reason, "by": decided.by}
    return fields | {key: value for key, value in ours.items() if value is not None}


def text_of_input(received: InputReceived) -> str:
    """The words of a steering input."""
    return "\n".join(text_to_show(item.parts) for item in received.content if isinstance(item, Message))


def _input(received: InputReceived) -> Fields:
    fields: Fields = {"input_id": received.input_id, "text": text_of_input(received)}
    return fields if received.by is None else {**fields, "by": received.by}


def _settled(settled: InputSettled, received: InputReceived | None) -> Fields:
    fields: Fields = {"input_id": settled.input_id}
    if received is not None:
        fields["text"] = text_of_input(received)
    return fields if settled.reason is None else {**fields, "reason": settled.reason}


def joined_steer(returned: Iterable[InputReceived]) -> str | None:
    """`pending_steer`: the words of the inputs that came back, one after another; None when none did."""
    texts = [text_of_input(received) for received in returned]
    return "\n".join(texts) if texts else None
