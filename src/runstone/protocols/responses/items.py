"""One item of ours as one item of the wire.

Stream, finished response, input items and conversation show an item by these functions, so that they agree in every field.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from runstone.core.content import FilePart, ImagePart, Part, RefusalPart, TextPart
from runstone.core.events import ApprovalRequested
from runstone.core.items import ApprovalItem, FileItem, Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import PendingApproval
from runstone.protocols.parts import Blobs, json_text, part_to_responses
from runstone.protocols.responses.ids import approval_response_id
from runstone.protocols.responses.types import (
    SERVER_LABEL,
    ApprovalRequestItem,
    ApprovalResponseItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    ItemStatus,
    McpCallItem,
    McpStatus,
    MessageItem,
    OutputItem,
    ReasoningItem,
    Style,
)

#: The key of `opaque` whose data is a reasoning item's `encrypted_content`.
OPAQUE_PROVIDER: Final = "openai"
_POSITIONS: Final = frozenset({"index", "start_index", "end_index"})


def message_item(id: str, item: Message, blobs: Blobs) -> MessageItem:
    """A message, with the parts that its role may have."""
    if item.role == "assistant":
        content = output_content(item.parts, blobs)
    else:
        content = [part_to_responses(part, blobs) for part in item.parts]
    return {"type": "message", "id": id, "role": item.role, "status": item.status, "content": content}


def output_content(parts: Iterable[Part], blobs: Blobs) -> list[dict[str, Any]]:
    """The content of an output message: its texts as one part, then what is not text.

    Output messages know text and refusals only: an image or a file is named, with its address when that is short.
    An empty message has one empty text part, so that `content[0].text` can be read.
    """
    texts = [part for part in parts if isinstance(part, TextPart)]
    others = [_shown(part, blobs) for part in parts if not isinstance(part, TextPart)]
    if not texts and others:
        return others
    return [_text_part("".join(part.text for part in texts), _annotations(texts)), *others]


def _annotations(texts: list[TextPart]) -> list[dict[str, Any]]:
    """The annotations of all texts, their positions counted in the joined text."""
    found: list[dict[str, Any]] = []
    start = 0
    for part in texts:
        for one in part.annotations:
            found.append({key: v + start if key in _POSITIONS and type(v) is int else v for key, v in one.items()})
        start += len(part.text)
    return found


def _shown(part: Part, blobs: Blobs) -> dict[str, Any]:
    match part:
        case ImagePart() | FilePart():
            name = "image" if isinstance(part, ImagePart) else part.name or "file"
            text = f"[{name}]({part.url})" if part.url else f"[{name}]"
            return _text_part(
                text, [{"type": "file_path", "file_id": part.file_id, "index": 0}] if part.file_id else []
            )
        case _:
            return part_to_responses(part, blobs, output=True)


def _text_part(text: str, annotations: list[dict[str, Any]]) -> dict[str, Any]:
    return part_to_responses(TextPart(text=text, annotations=annotations), {}, output=True)


def file_item(id: str, item: FileItem, blobs: Blobs) -> MessageItem:
    """A file that the agent made, named in a message: outputs have no files."""
    return message_item(id, Message(item_id=item.item_id, role="assistant", parts=item.parts), blobs)


def reasoning_item(id: str, item: Reasoning, style: Style) -> ReasoningItem:
    """The model's thinking, as summary or as text."""
    shown: ReasoningItem = {"type": "reasoning", "id": id, "status": item.status, "summary": []}
    if style.dialect == "openai" and style.reasoning_as == "summary":
        shown["summary"] = [{"type": "summary_text", "text": item.text}] if item.text else []
    else:
        shown["content"] = [{"type": "reasoning_text", "text": item.text}] if item.text else []
    sealed = item.opaque[OPAQUE_PROVIDER] if item.opaque and OPAQUE_PROVIDER in item.opaque else None
    if isinstance(sealed, str):
        shown["encrypted_content"] = sealed
    return shown


def function_call_item(id: str, call: ToolCall) -> FunctionCallItem:
    """A call on its own."""
    return call_item(id, call.call_id, call.name, call.arguments, call.status)


def call_item(id: str, call_id: str, name: str, arguments: str, status: ItemStatus) -> FunctionCallItem:
    """A call in any state."""
    return {
        "type": "function_call",
        "id": id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def function_output_item(
    id: str, result: ToolResult, blobs: Blobs, *, name: str | None = None
) -> FunctionCallOutputItem:
    """A result on its own; `name` is that of the call, where it is known."""
    item: FunctionCallOutputItem = {
        "type": "function_call_output",
        "id": id,
        "call_id": result.call_id,
        "output": output_value(result.output, blobs),
        "status": "completed",
    }
    known = name or result.name
    if known is not None:
        item["name"] = known
    return item


def output_value(parts: list[Part], blobs: Blobs) -> str | list[dict[str, Any]]:
    """What a call gave: text when it is nothing but text, else `input_*` parts; a refusal is text here."""
    if all(isinstance(part, TextPart | RefusalPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart | RefusalPart))
    return [part_to_responses(_as_input(part), blobs) for part in parts]


def _as_input(part: Part) -> Part:
    return TextPart(text=part.text) if isinstance(part, RefusalPart) else part


def mcp_call_item(
    id: str, call: ToolCall, status: McpStatus, approval_id: str | None, *, output: str | None = None
) -> McpCallItem:
    """A server-run call; `call` has the arguments that ran."""
    return {
        "type": "mcp_call",
        "id": id,
        "status": status,
        "server_label": SERVER_LABEL,
        "name": call.name,
        "arguments": call.arguments,
        "output": output,
        "error": None,
        "approval_request_id": approval_id,
    }


def mcp_result_item(id: str, call: ToolCall, result: ToolResult, blobs: Blobs, approval_id: str | None) -> McpCallItem:
    """A server-run call with its result, `output` or `error`."""
    value = output_value(result.output, blobs)
    text = value if isinstance(value, str) else json_text(value)
    if not result.is_error:
        return mcp_call_item(id, call, "completed", approval_id, output=text)
    said = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    return {**mcp_call_item(id, call, "failed", approval_id), "error": said}


def approval_request_item(asked: ApprovalRequested | PendingApproval | ApprovalItem) -> ApprovalRequestItem:
    """A request for a decision. The words of a question stand in `arguments`, for want of a field of their own."""
    kind = asked.approval_kind if isinstance(asked, ApprovalItem) else asked.kind
    item: ApprovalRequestItem = {
        "type": "mcp_approval_request",
        "id": asked.approval_id,
        "server_label": SERVER_LABEL,
        "name": asked.name or kind,
        "arguments": _question(asked) if asked.arguments is None else asked.arguments,
        "kind": kind,
    }
    if asked.prompt is not None:
        item["description"] = asked.prompt
    if asked.call_id is not None:
        item["call_id"] = asked.call_id
    return item


def _question(asked: ApprovalRequested | PendingApproval | ApprovalItem) -> str:
    schema = None if isinstance(asked, ApprovalItem) else asked.schema
    said = {"prompt": asked.prompt, "choices": asked.choices, "schema": schema}
    return json_text({key: value for key, value in said.items() if value is not None})


def approval_response_item(item: ApprovalItem) -> ApprovalResponseItem | None:
    """The decision of an approval, None when nobody took one."""
    if item.decision not in ("approved", "answered", "denied"):
        return None
    return {
        "type": "mcp_approval_response",
        "id": approval_response_id(item.approval_id),
        "approval_request_id": item.approval_id,
        "approve": item.decision != "denied",
        "reason": item.reason,
    }


def output_text(output: Iterable[OutputItem]) -> str:
    """The texts of all messages joined, as the official clients join them."""
    return "".join(
        part["text"]
        for item in output
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    )
