"""Wire shapes of Hermes' session and runs APIs, and the words that both halves share.

Source: the Hermes agent API server 0.19 and 0.22 as measured; the backend contract, "Hermes". Fields marked "ours" are
extensions of Runstone; docs/protocols/hermes.md lists them all.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, TypedDict

NAME: Final = "hermes"
#: `session`: named frames of `/api/sessions/{id}/chat/stream`. `runs`: unnamed frames of `/v1/runs/{id}/events`.
Vocabulary = Literal["session", "runs"]
RunWord = Literal[
    "queued", "running", "waiting_for_approval", "stopping", "completed", "failed", "cancelled", "interrupted"
]
#: How Hermes calls the agent behind it, whatever that is; taken as "the default one".
ANY_AGENT: Final = "hermes-agent"
#: Sessions that were made over HTTP.
SOURCE: Final = "api_server"
#: Comments around a runs stream: the first goes out at once, the last before the connection ends.
OPENED: Final = b": open\n\n"
CLOSED: Final = b": stream closed\n\n"
KEEPALIVE: Final = b": keepalive\n\n"
SESSION_HEADER: Final = "X-Hermes-Session-Id"
REPLAYED_HEADER: Final = "Idempotency-Replayed"

#: A message's `id` is `position * ID_STEP + ordinal`: a whole number that rises with its place and can be taken apart again.
#: Below 2**53 for nine billion positions; a request's ten megabytes hold fewer items than one step has numbers.
ID_STEP: Final = 1_000_000


class Function(TypedDict):
    """`function` of a tool call; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCallWire(TypedDict):
    """A call in a message row."""

    id: str
    call_id: str
    response_item_id: str
    type: Literal["function"]
    function: Function


class MessageRow(TypedDict):
    """A row of `/messages`: Hermes' keys, always there, and ours after them."""

    id: int
    session_id: str
    role: str
    content: str
    tool_call_id: str | None
    tool_calls: list[ToolCallWire] | None
    tool_name: str | None
    timestamp: float | None
    token_count: None
    finish_reason: str | None
    reasoning: str | None
    reasoning_content: str | None
    display_kind: str | None
    run_id: str | None
    is_error: NotRequired[bool]
    parts: NotRequired[list[dict[str, Any]]]


class HistoryRun(TypedDict, total=False):
    """A run beside the messages (backend contract)."""

    id: str
    status: RunWord
    created_at: float
    finished_at: float
    model: str
    usage: dict[str, int]
    last_event_id: str
    reason: str
    error: dict[str, str]
    approvals: list[dict[str, Any]]


class SessionState(TypedDict):
    """The session's status in the contract's four words; our finer word is in `metadata.backendStatus`."""

    id: str
    status: str
    title: str | None
    metadata: dict[str, Any]


class ActiveRunWire(TypedDict):
    """The run that goes on, and the newest event that the messages contain."""

    run_id: str
    event_id: str


class Pagination(TypedDict):
    """Which part of the messages came."""

    limit: int
    offset: int
    order: str
    returned: int


class MessagesPage(TypedDict):
    """The body of `/messages`; what follows `pagination` is ours."""

    object: Literal["list"]
    session_id: str
    data: list[MessageRow]
    pagination: Pagination
    runs: list[HistoryRun]
    session: SessionState
    active_run: NotRequired[ActiveRunWire | None]
    cursor: str | None
    has_more: bool
    newer: str | None


class SessionWire(TypedDict):
    """A session. What nobody counts here is null, never 0."""

    id: str
    source: str
    user_id: None
    model: str | None
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    message_count: int | None
    tool_call_count: int | None
    input_tokens: None
    output_tokens: None
    cache_read_tokens: None
    cache_write_tokens: None
    reasoning_tokens: None
    estimated_cost_usd: None
    actual_cost_usd: None
    api_call_count: None
    parent_session_id: str | None
    pinned: bool
    archived: bool
    unread: bool
    hidden: bool
    is_internal_child: bool
    has_system_prompt: bool
    has_model_config: bool
    status: str
    metadata: dict[str, Any]
    active_run_id: str | None
    last_active: NotRequired[float]
    preview: NotRequired[str]


class RunWire(TypedDict):
    """A run as `GET /v1/runs/{id}` shows it; from `agent` on, ours."""

    object: Literal["hermes.run"]
    run_id: str
    status: RunWord
    created_at: float
    updated_at: float
    session_id: str
    model: str | None
    last_event: NotRequired[str]
    output: NotRequired[str]
    usage: NotRequired[dict[str, int]]
    error: NotRequired[str]
    completed: NotRequired[bool]
    partial: NotRequired[bool]
    interrupted: NotRequired[bool]
    turn_exit_reason: NotRequired[str]
    pending_steer: NotRequired[str]
    approval: NotRequired[dict[str, Any]]
    agent: str
    attempt: int
    last_event_id: str
    error_code: NotRequired[str]
    approvals: NotRequired[list[dict[str, Any]]]
    turn: NotRequired[str]
    continues: NotRequired[str]
