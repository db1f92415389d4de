"""Wire shapes of Chat Completions, and what an encoder remembers of a request.

Source: OpenAI API reference, "Chat"; openai-python's `types/chat`; for history the backend contract, "OpenAI".
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, TypedDict

import msgspec

from runstone.protocols.openai import FinishReason

NAME: Final = "chat"
#: `openai`: no server-run tools in streams, clients would run them. `steps`: calls and results of every step are shown.
Dialect = Literal["openai", "steps"]


class Echo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the answers to a request repeat of it; kept with the leg, so that a resumed stream looks the same."""

    model: str | None = None
    include_usage: bool = False
    dialect: Dialect = "openai"


class Function(TypedDict):
    """`function` of a tool call."""

    name: str
    arguments: str


class ToolCallWire(TypedDict):
    """A call in a message."""

    id: str
    type: Literal["function"]
    function: Function


class MessageWire(TypedDict):
    """`message` of a completion."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCallWire]]


class Choice(TypedDict):
    """The one choice of a completion."""

    index: int
    message: MessageWire
    finish_reason: FinishReason
    logprobs: None


class Waiting(TypedDict):
    """Why an answer stopped though its run goes on; an extension."""

    status: Literal["waiting"]
    run_id: str
    approvals: list[dict[str, Any]]


class Completion(TypedDict):
    """The body of a call without `stream`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: NotRequired[dict[str, Any]]
    run_id: str
    session_id: str
    runstone: NotRequired[Waiting]


class HistoryMessage(TypedDict, total=False):
    """A message of history."""

    id: str
    run_id: str
    created_at: int
    role: str
    content: str | list[dict[str, Any]] | None
    refusal: str
    reasoning_content: str
    tool_calls: list[ToolCallWire]
    tool_call_id: str
    name: str


class HistoryRun(TypedDict, total=False):
    """A run of history."""

    id: str
    status: str
    created_at: int
    finished_at: int
    model: str
    usage: dict[str, Any]
    last_event_id: str
    reason: str
    error: dict[str, str]
    approvals: list[dict[str, Any]]


class HistorySession(TypedDict):
    """The session of history; our finer status word is in `metadata.backendStatus`."""

    id: str
    status: str
    title: str | None
    metadata: dict[str, Any]


class ActiveRunWire(TypedDict):
    """The run that goes on, and the newest event that the messages contain."""

    run_id: str
    event_id: str


class HistoryPage(TypedDict):
    """A page of history, oldest message first."""

    messages: list[HistoryMessage]
    runs: list[HistoryRun]
    cursor: str | None
    has_more: bool
    session: HistorySession
    active_run: ActiveRunWire | None
