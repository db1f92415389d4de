"""A page of history as Chat messages and runs.

Rules: what one step said (reasoning, text, calls) is one assistant message. A tool message's content is text of JSON where
the tool gave JSON; a failure is exactly `{"error": "<reason>"}`, and a success that would look so is `{"result": ...}`.
Source: backend contract, "OpenAI", "History".
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from runstone.core.content import DataPart, Part, RefusalPart, TextPart, text_of
from runstone.core.items import ApprovalItem, FileItem, Item, Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import Run, Session, backend_status, session_status
from runstone.core.transcript import HistoryRow, Page
from runstone.protocols.chat.types import HistoryMessage, HistoryPage, HistoryRun, HistorySession, ToolCallWire
from runstone.protocols.openai import known_usage
from runstone.protocols.parts import Blobs, json_text, part_to_chat


def history_page(page: Page, session: Session, head: Run | None, *, blobs: Blobs = {}) -> HistoryPage:  # noqa: B006
    """The page in the contract's words, oldest message first.

    `head` is the newest run of the session's chain, None when it has none; `blobs` holds the bytes that
    `openai.blobs_of` lists for the page's items.
    """
    active = page.active
    return {
        "messages": messages_of(page, blobs),
        "runs": [_run(run, page) for run in page.runs],
        "cursor": page.before,
        "has_more": page.has_more,
        "session": session_to_wire(session, head),
        "active_run": None if active is None else {"run_id": active.run_id, "event_id": str(active.seq)},
    }


def session_to_wire(session: Session, head: Run | None) -> HistorySession:
    """Id, title and status; the status is one of four words, ours is kept beside it."""
    metadata = {**session.metadata, "backendStatus": backend_status(head)}
    return {"id": session.id, "status": session_status(head), "title": session.title, "metadata": metadata}


def _run(run: Run, page: Page) -> HistoryRun:
    wire: HistoryRun = {"id": run.id, "status": run.status, "created_at": int(run.created_at)}
    if run.ended_at is not None:
        wire["finished_at"] = int(run.ended_at)
    if run.model is not None:
        wire["model"] = run.model
    if run.usage is not None:
        wire["usage"] = known_usage(run.usage)
    if run.reason is not None:
        wire["reason"] = run.reason
    if run.error is not None:
        wire["error"] = {"code": run.error.code, "message": run.error.message}
    if run.approvals:
        wire["approvals"] = [msgspec.to_builtins(approval) for approval in run.approvals]
    if page.active is not None and page.active.run_id == run.id:
        wire["last_event_id"] = str(page.active.seq)
    return wire


# -- messages


def messages_of(page: Page, blobs: Blobs) -> list[HistoryMessage]:
    """The page's rows as messages; the items that an active run has open come last, as they stand."""
    reader = _Reader(blobs)
    for row in page.rows:
        reader.read(row.item, row.run_id, row)
    for item in page.open_items:
        # A tool that still runs has said nothing; its call is there.
        if page.active is not None and not isinstance(item, ToolResult):
            reader.read(item, page.active.run_id, None)
    return reader.messages


_Key = tuple[str | None, bool, str | None]


class _Reader:
    """Rows read so far. A key is run, whether it is the run's input, and step."""

    def __init__(self, blobs: Blobs) -> None:
        self.messages: list[HistoryMessage] = []
        self._blobs = blobs
        self._of_step: dict[_Key, HistoryMessage] = {}
        self._newest_key: _Key | None = None

    def read(self, item: Item, run_id: str | None, row: HistoryRow | None) -> None:
        """Add one item; `row` is None for one that is not finished. Approvals have no word in Chat."""
        key = (run_id, row is not None and row.is_input, item.step)
        match item:
            case Message(role="assistant"):
                self._assistant_text(item, key, row)
            case Message():
                message = self._new(item.item_id, key, row, item.role)
                message["content"] = content_to_wire(item.parts, self._blobs)
                if item.author is not None:
                    message["name"] = item.author
            case Reasoning():
                message = self._takes(key, "reasoning_content", "content", "tool_calls") or self._step(item, key, row)
                message["reasoning_content"] = item.text
            case ToolCall():
                message = self._find(key) or self._step(item, key, row)
                message.setdefault("tool_calls", []).append(call_to_wire(item))
            case ToolResult():
                message = self._new(item.item_id, key, row, "tool")
                message["tool_call_id"] = item.call_id
                message["content"] = tool_content(item, self._blobs)
            case FileItem():
                message = self._new(item.item_id, key, row, "assistant")
                message["content"] = content_to_wire(item.parts, self._blobs)
            case ApprovalItem():
                pass
            case _:
                assert_never(item)

    def _assistant_text(self, item: Message, key: _Key, row: HistoryRow | None) -> None:
        message = self._takes(key, "content", "refusal") or self._step(item, key, row)
        refusals = [part.text for part in item.parts if isinstance(part, RefusalPart)]
        parts: list[Part] = [part for part in item.parts if not isinstance(part, RefusalPart)]
        if parts or not refusals:
            message["content"] = content_to_wire(parts, self._blobs, join=True)
        if refusals:
            message["refusal"] = "".join(refusals)

    def _find(self, key: _Key) -> HistoryMessage | None:
        """The message that has this step's words; without steps, the newest one when it is of the same run."""
        if key[2] is not None:
            return self._of_step.get(key)
        return self.messages[-1] if key == self._newest_key else None

    def _takes(self, key: _Key, *fields: str) -> HistoryMessage | None:
        """The step's message, when nothing came after it and it has none of `fields` yet."""
        message = self._find(key)
        if message is None or message is not self.messages[-1] or any(message.get(field) for field in fields):
            return None
        return message

    def _step(self, item: Item, key: _Key, row: HistoryRow | None) -> HistoryMessage:
        """A new assistant message. The first of a step is named by it: which of its items ends first is chance."""
        step = key[2]
        name = item.item_id if step is None or key in self._of_step else step
        message = self._new(name, key, row, "assistant")
        message["content"] = None
        self._newest_key = key
        self._of_step[key] = message
        return message

    def _new(self, name: str, key: _Key, row: HistoryRow | None, role: str) -> HistoryMessage:
        run_id = key[0]
        message: HistoryMessage = {"id": name if run_id is None else f"{run_id}:{name}"}
        if run_id is not None:
            message["run_id"] = run_id
        if row is not None:
            message["created_at"] = int(row.at)
        message["role"] = role
        self.messages.append(message)
        self._newest_key = None
        return message


def content_to_wire(parts: list[Part], blobs: Blobs, *, join: bool = False) -> str | list[dict[str, Any]]:
    """One text as a string, anything else as content blocks; several texts as one string too when `join`."""
    if not parts:
        return ""
    if all(isinstance(part, TextPart) for part in parts) and (join or len(parts) == 1):
        return text_of(parts)
    return [part_to_chat(part, blobs) for part in parts]


def call_to_wire(call: ToolCall) -> ToolCallWire:
    """A tool call as a message carries it."""
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def tool_content(result: ToolResult, blobs: Blobs) -> str:
    """A result as the content of a tool message."""
    match result.output:
        case [DataPart(data=value)]:
            text = json_text(value)
        case parts if all(isinstance(part, TextPart) for part in parts):
            text = text_of(parts)
        case parts:
            text = json_text([part_to_chat(part, blobs) for part in parts])
    if result.is_error:
        return json_text({"error": text})
    return json_text({"result": msgspec.json.decode(text)}) if _looks_failed(text) else text


def _looks_failed(text: str) -> bool:
    """Whether a reader would take `text` for a failure."""
    if '"error"' not in text and "\\u" not in text:
        return False
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(value, dict) and value.keys() == {"error"}
