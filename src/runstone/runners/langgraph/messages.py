"""History as LangChain messages, and what LangChain says of a model call in our words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from runstone.core.content import ImagePart, Part, TextPart
from runstone.core.items import Item, ToolResult
from runstone.core.runs import Usage
from runstone.runners.payload import Blobs, chat_messages

#: A fixed id, so that a graph that keeps its messages replaces the instructions of the turn before.
INSTRUCTIONS_ID: Final = "runstone-instructions"

_FINISH: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "safety": "content_filter",
    "refusal": "content_filter",
}


def langchain_messages(items: Sequence[Item], blobs: Blobs) -> list[BaseMessage]:
    """`items` as messages, without ids: the graph gives them its own."""
    failed = {item.call_id for item in items if isinstance(item, ToolResult) and item.is_error}
    return [_message(row, failed) for row in chat_messages(items, blobs)]


def _message(row: dict[str, Any], failed: set[str]) -> BaseMessage:
    content = row["content"] if row["content"] is not None else ""
    match row["role"]:
        case "assistant":
            return AIMessage(content=content, tool_calls=[_tool_call(call) for call in row.get("tool_calls", [])])
        case "tool":
            call_id = row["tool_call_id"]
            return ToolMessage(
                content=content, tool_call_id=call_id, status="error" if call_id in failed else "success"
            )
        case "user":
            return HumanMessage(content=content)
        case _:
            return SystemMessage(content=content)


def _tool_call(call: dict[str, Any]) -> Any:
    text = call["function"]["arguments"]
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"_raw": text}  # What the model wrote was no object; LangChain has no other place for it.
    return {"name": call["function"]["name"], "args": arguments, "id": call["id"], "type": "tool_call"}


def instructions_message(text: str) -> SystemMessage:
    """The request's instructions; a graph puts its own prompt before the messages of its state, so these come after it."""
    return SystemMessage(content=text, id=INSTRUCTIONS_ID)


def usage_of(fields: Mapping[str, Any] | None) -> Usage | None:
    """Tokens as `usage_metadata` has them."""
    if not fields:
        return None
    return Usage(
        input_tokens=fields.get("input_tokens"),
        output_tokens=fields.get("output_tokens"),
        total_tokens=fields.get("total_tokens"),
        cached_tokens=(fields.get("input_token_details") or {}).get("cache_read"),
        reasoning_tokens=(fields.get("output_token_details") or {}).get("reasoning"),
    )


def finish_of(metadata: Mapping[str, Any]) -> str | None:
    """Why the model stopped: `stop`, `length`, `tool_calls`, `content_filter`, or the provider's own word in small letters."""
    for key in ("finish_reason", "stop_reason", "done_reason"):
        word = metadata.get(key)
        if isinstance(word, str) and word:
            return _FINISH.get(word.lower(), word.lower())
    return None


def model_of(metadata: Mapping[str, Any]) -> str | None:
    """The model that answered, as its provider names it."""
    name = metadata.get("model_name") or metadata.get("model")
    return name if isinstance(name, str) else None


def reasoning_of(block: Mapping[str, Any]) -> str | None:
    """The thinking in a content block of any provider; None when it is no thinking."""
    match block.get("type"):
        case "thinking":
            return str(block.get("thinking") or "")
        case "reasoning":
            summary = block.get("summary")
            if isinstance(summary, list):
                return "".join(str(part.get("text") or "") for part in summary if isinstance(part, dict))
            return str(block.get("reasoning") or block.get("text") or "")
        case "reasoning_content":
            inner = block.get("reasoning_content")
            return str((inner.get("text") if isinstance(inner, dict) else inner) or "")
        case _:
            return None


def output_parts(content: Any) -> list[Part]:
    """What a tool gave. Bytes stay out: an image is told by its address or by its type only."""
    if isinstance(content, str):
        return [TextPart(text=content)]
    return [_output_part(block) for block in content]


def _output_part(block: Any) -> Part:
    if isinstance(block, str):
        return TextPart(text=block)
    match block:
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "image_url", "image_url": {"url": str(url)}} if not url.startswith("data:"):
            return ImagePart(url=url)
        case {"type": "image", "url": str(url)} if not url.startswith("data:"):
            return ImagePart(url=url)
        case {"type": "image" | "image_url" | "file" | "audio" | "video" as kind}:
            return TextPart(text=f"[{kind}]")
        case _:
            return TextPart(text=json.dumps(block, ensure_ascii=False, default=str))
