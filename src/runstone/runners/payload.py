"""The input in the words that user code reads: Chat messages, and the payload names of the second contract.

Rule: pure. Bytes and extracted texts are given, under the key of their part (`part_key`); what is not given stays a
reference. Nothing here is a wire field: no request can set these names.
"""

from __future__ import annotations

import base64
import binascii
import json
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from runstone.core.content import DataPart, FilePart, ImagePart, Part, RefusalPart, TextPart, text_of
from runstone.core.items import ApprovalItem, FileItem, Item, Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import RunRequest, ToolSpec

Blobs = Mapping[str, bytes]
Row = dict[str, Any]

_KINDS: Final = {
    "text": "text",
    "markdown": "text",
    "json": "text",
    "csv": "text",
    "pdf": "document",
    "docx": "document",
    "pptx": "document",
    "xlsx": "document",
    "html": "document",
    "image": "image",
    "zip": "archive",
}
_METHODS: Final = {
    "text": "text_decode",
    "markdown": "text_decode",
    "json": "text_decode",
    "csv": "text_decode",
    "pdf": "pdf_native",
    "docx": "docx_native",
    "pptx": "pptx_native",
    "xlsx": "xlsx_native",
    "html": "html_native",
    "zip": "zip_enumeration",
}


class Extracted(Protocol):
    """What is known of one attached file; the extraction of `runstone.attachments` has this shape."""

    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def excerpt(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def warnings(self) -> Sequence[str]: ...
    @property
    def details(self) -> Mapping[str, Any]: ...


def part_key(part: ImagePart | FilePart) -> str:
    """What names the bytes of an attached part: its `blob`, else the id of its file, else its address."""
    return part.blob or part.file_id or part.url or ""


def blobs_in(items: Iterable[Item]) -> list[str]:
    """References of the stored bytes that messages and tool results of `items` show, each once."""
    return list(dict.fromkeys(p.blob for item in items for p in _parts(item) if _is_attached(p) and p.blob))


def _parts(item: Item) -> list[Any]:
    match item:
        case Message(parts=parts) | ToolResult(output=parts):
            return parts
        case _:
            return []


def _is_attached(part: Part) -> bool:
    return isinstance(part, ImagePart | FilePart)


# -- Chat messages


def chat_messages(items: Iterable[Item], blobs: Blobs | None = None) -> list[Row]:
    """`items` as Chat messages that any Chat model takes.

    Words and calls of one model call make one assistant row; results follow the row of their call, wherever they came. A
    call without a result, reasoning, approvals and files that the agent made have no row: no model takes them back.
    """
    items = list(items)
    answered = {item.call_id for item in items if isinstance(item, ToolResult)}
    blocks: list[list[Row]] = []
    of_call: dict[str, list[Row]] = {}
    step: str | None = None
    for item in items:
        match item:
            case Message(role=role, parts=parts):
                step = item.step if role == "assistant" else None
                blocks.append([{"role": role, "content": chat_content(parts, blobs or {})}])
            case ToolCall(call_id=call_id) if call_id in answered:
                if not _takes_calls(blocks, step, item):
                    blocks.append([{"role": "assistant", "content": None}])
                    step = item.step
                blocks[-1][0].setdefault("tool_calls", []).append(_chat_call(item))
                of_call[call_id] = blocks[-1]
            case ToolResult(call_id=call_id):
                row = {"role": "tool", "tool_call_id": call_id, "content": chat_content(item.output, blobs or {})}
                of_call.pop(call_id, []).append(row)
            case ToolCall() | Reasoning() | ApprovalItem() | FileItem():
                pass
    return [row for block in blocks for row in block]


def _takes_calls(blocks: list[list[Row]], step: str | None, call: ToolCall) -> bool:
    """Whether the newest row is the assistant's, of the same model call, with no result behind it."""
    return bool(blocks) and len(blocks[-1]) == 1 and blocks[-1][0]["role"] == "assistant" and step == call.step


def _chat_call(call: ToolCall) -> Row:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def chat_content(parts: Sequence[Part], blobs: Blobs) -> str | list[Row]:
    """Text when there is nothing else, a list of blocks `text`, `image_url`, `file` otherwise."""
    if all(isinstance(part, TextPart | RefusalPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart | RefusalPart))
    return [_chat_block(part, blobs) for part in parts]


def _chat_block(part: Part, blobs: Blobs) -> Row:
    match part:
        case TextPart(text=text) | RefusalPart(text=text):
            return {"type": "text", "text": text}
        case DataPart(data=data):
            return {"type": "text", "text": json.dumps(data, ensure_ascii=False)}
        case ImagePart():
            image = {"url": _address(part, blobs), "detail": part.detail}
            return {"type": "image_url", "image_url": _known(image)}
        case FilePart():
            return {"type": "file", "file": _file_fields(part, blobs)}


def _file_fields(part: FilePart, blobs: Blobs) -> Row:
    if (content := _content(part, blobs)) is not None:
        return _known({"filename": part.name, "file_data": data_url(content, part.media_type)})
    return _known({"filename": part.name, "file_id": part.file_id, "file_url": part.url})


def _address(part: ImagePart, blobs: Blobs) -> str:
    content = _content(part, blobs)
    return data_url(content, part.media_type or "image/png") if content is not None else part_key(part)


def _content(part: ImagePart | FilePart, blobs: Blobs) -> bytes | None:
    return part.content if part.content is not None else blobs.get(part.blob or "")


def _known(fields: Row) -> Row:
    return {key: value for key, value in fields.items() if value is not None}


def data_url(content: bytes, media_type: str | None) -> str:
    """`content` as a data URL."""
    return f"data:{media_type or 'application/octet-stream'};base64,{base64.b64encode(content).decode()}"


def bytes_of_data_url(url: str) -> bytes | None:
    """The bytes in a data URL; None when `url` is no data URL."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:"):
        return None
    if not head.endswith(";base64"):
        return urllib.parse.unquote_to_bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error:
        return None


def tool_dict(tool: ToolSpec) -> Row:
    """A tool that the client declared, as Chat has it."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    return {"type": "function", "function": _known(function)}


def input_text(items: Sequence[Item]) -> str:
    """The text of the newest user message among `items`; empty when there is none."""
    texts = [text_of(item.parts) for item in items if isinstance(item, Message) and item.role == "user"]
    return texts[-1] if texts else ""


# -- the names of the second contract


def runner_payload(
    request: RunRequest,
    *,
    extractions: Mapping[str, Extracted] | None = None,
    blobs: Blobs | None = None,
) -> Row:
    """What user functions and hooks read about this turn.

    - `input`: text of the turn; `input_content`: its blocks (`input_text`, `input_image`, `input_file`); `input_parts`:
      the same in the older form (`text`, `inlineData`, `fileData`); `input_messages`: all messages of the turn.
    - `history`: Chat messages of the chain before the turn.
    - `current_attachments`, `current_attachment_results`, `has_current_files`: what this turn brought, one result per
      file that was looked at; `attachments`, `attachment_results`: the same, of the newest turn that had any.
    - `session_id`, `invocation_id` (the run id), `model`, `model_options`, `model_metadata`, `instructions`,
      `request_metadata`; unknown ones are absent.
    """
    blobs, extractions = blobs or {}, extractions or {}
    messages = [item for item in request.input if isinstance(item, Message)]
    newest = next((message for message in reversed(messages) if message.role == "user"), None)
    parts = newest.parts if newest is not None else []
    current = _attached_parts(request.input)
    effective = current or _newest_attached(request.history)
    settings = request.settings
    return _known(
        {
            "session_id": request.session_id,
            "invocation_id": request.run_id,
            "input": text_of(parts),
            "input_content": [_input_block(part, blobs) for part in parts],
            "input_messages": [
                {"role": message.role, "content": [_input_block(part, blobs) for part in message.parts]}
                for message in messages
            ],
            "input_parts": [_older_part(part, blobs) for part in parts],
            "history": chat_messages(request.history, blobs),
            "current_attachments": [_attachment(part, extractions) for part in current],
            "current_attachment_results": _results(current, extractions),
            "has_current_files": bool(current),
            "attachments": [_attachment(part, extractions) for part in effective],
            "attachment_results": _results(effective, extractions),
            "model": settings.model,
            "model_options": settings.model_options,
            "model_metadata": settings.model_metadata,
            "instructions": settings.instructions,
            "request_metadata": request.metadata or None,
        }
    )


def attached_parts(request: RunRequest) -> list[ImagePart | FilePart]:
    """The files whose extraction `runner_payload` can use: this turn's, else those of the newest turn that had any."""
    return _attached_parts(request.input) or _newest_attached(request.history)


def _attached_parts(items: Iterable[Item]) -> list[ImagePart | FilePart]:
    return [
        part
        for item in items
        if isinstance(item, Message) and item.role == "user"
        for part in item.parts
        if isinstance(part, ImagePart | FilePart)
    ]


def _newest_attached(history: Sequence[Item]) -> list[ImagePart | FilePart]:
    """Attachments of the newest stretch of user messages that has any; an answer of the agent ends a stretch."""
    found: list[ImagePart | FilePart] = []
    for item in reversed(history):
        if isinstance(item, Message) and item.role == "user":
            found = [*_attached_parts([item]), *found]
        elif found:
            break
    return found


def _input_block(part: Part, blobs: Blobs) -> Row:
    match part:
        case ImagePart():
            return _known({"type": "input_image", "image_url": _address(part, blobs), "detail": part.detail})
        case FilePart():
            return {"type": "input_file", **_file_fields(part, blobs)}
        case _:
            return {"type": "input_text", "text": _chat_block(part, blobs)["text"]}


def _older_part(part: Part, blobs: Blobs) -> Row:
    if not isinstance(part, ImagePart | FilePart):
        return {"text": _chat_block(part, blobs)["text"]}
    name = part.name if isinstance(part, FilePart) else None
    content = _content(part, blobs)
    if content is None:
        return {"fileData": _known({"fileUri": part_key(part), "displayName": name, "mimeType": part.media_type})}
    data = base64.b64encode(content).decode()
    return {"inlineData": _known({"data": data, "displayName": name, "mimeType": part.media_type})}


def _attachment(part: ImagePart | FilePart, extractions: Mapping[str, Extracted]) -> Row:
    name = part.name if isinstance(part, FilePart) else None
    extracted = extractions.get(part_key(part))
    return _known(
        {
            "display_name": name or ("image" if isinstance(part, ImagePart) else "file"),
            "mime_type": part.media_type,
            "transport": "inline" if part.blob or part.content is not None else "reference",
            "file_uri": part_key(part) or None,
            "size_bytes": extracted.size_bytes if extracted is not None and extracted.size_bytes else None,
        }
    )


def _results(parts: Sequence[ImagePart | FilePart], extractions: Mapping[str, Extracted]) -> list[Row]:
    return [
        {**_attachment(part, extractions), **_result(extractions[part_key(part)])}
        for part in parts
        if part_key(part) in extractions
    ]


def _result(extracted: Extracted) -> Row:
    has_text = bool(extracted.text)
    return _known(
        {
            "kind": _KINDS.get(extracted.kind, "binary"),
            "status": {"ok": "ok", "truncated": "partial"}.get(extracted.status, "failed"),
            "warnings": list(extracted.warnings),
            "extraction_method": _METHODS.get(extracted.kind, "metadata_only") if has_text else "metadata_only",
            "text": extracted.text if has_text else None,
            "text_excerpt": extracted.excerpt if has_text else None,
            "text_truncated": extracted.status == "truncated",
            "details": dict(extracted.details) or None,
        }
    )


def chat_rows(rows: Sequence[Any]) -> list[Any]:
    """Rows that user code gives back, `input_text` and its kin turned into Chat blocks; anything else as it is."""
    return [
        {**row, "content": [_from_input_block(block) for block in row["content"]]}
        if isinstance(row, dict) and isinstance(row.get("content"), list)
        else row
        for row in rows
    ]


def _from_input_block(block: Any) -> Any:
    match block:
        case {"type": "input_text" | "output_text", "text": text}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image_url", "image_url": _known({"url": url, "detail": block.get("detail")})}
        case {"type": "input_file"}:
            return {"type": "file", "file": {key: value for key, value in block.items() if key != "type"}}
        case _:
            return block
