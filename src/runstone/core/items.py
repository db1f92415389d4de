"""Finished units of conversation. `item_id` is unique in its run, or in its session when no run made the item."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from runstone.core.content import Part, TextPart, text_of

Role = Literal["user", "assistant", "system", "developer"]
Executor = Literal["server", "client"]
ItemKind = Literal["message", "reasoning", "tool_call", "tool_result", "approval", "file"]
ItemStatus = Literal["completed", "incomplete"]
Opaque = dict[str, Any]


class _Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What every item has. `opaque`: provider -> data to give back to that provider only. `native`: protocol -> data."""

    item_id: str
    step: str | None = None
    author: str | None = None
    opaque: Opaque | None = None
    native: dict[str, Any] | None = None


class Message(_Item, frozen=True, kw_only=True, omit_defaults=True, tag="message"):
    """Words of one role. `incomplete`: the run ended while it was being written."""

    role: Role
    parts: list[Part]
    status: ItemStatus = "completed"

    @property
    def text(self) -> str:
        """Its texts joined."""
        return text_of(self.parts)


class Reasoning(_Item, frozen=True, kw_only=True, omit_defaults=True, tag="reasoning"):
    """The model's thinking, as far as it may be shown."""

    text: str
    status: ItemStatus = "completed"


class ToolCall(_Item, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call"):
    """A call. `arguments` is the text of one JSON document, as the model wrote it. `executor`: who runs it."""

    call_id: str
    name: str
    arguments: str
    executor: Executor = "server"
    status: ItemStatus = "completed"


class ToolResult(_Item, frozen=True, kw_only=True, omit_defaults=True, tag="tool_result"):
    """What a call gave. `is_error`: the tool failed and `output` says why. `synthetic`: no tool said this, we closed the call."""

    call_id: str
    output: list[Part]
    name: str | None = None
    is_error: bool = False
    synthetic: bool = False
    executor: Executor = "server"

    @property
    def text(self) -> str:
        """Its texts joined."""
        return text_of(self.output)


class ApprovalItem(_Item, frozen=True, kw_only=True, omit_defaults=True, tag="approval"):
    """A request for a decision and, once there is one, the decision; history only."""

    approval_id: str
    approval_kind: Literal["confirm", "input", "tool_output"]
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    prompt: str | None = None
    choices: list[str] | None = None
    decision: str | None = None
    value: Any = None
    reason: str | None = None


class FileItem(_Item, frozen=True, kw_only=True, omit_defaults=True, tag="file"):
    """A file the agent made."""

    parts: list[Part]


Item = Message | Reasoning | ToolCall | ToolResult | ApprovalItem | FileItem


def user_message(item_id: str, text: str) -> Message:
    """A user's message of one text part."""
    return Message(item_id=item_id, role="user", parts=[TextPart(text=text)])
