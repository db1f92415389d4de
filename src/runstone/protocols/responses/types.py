"""Wire shapes of Responses and Conversations, field names as on the wire.

A key of a `total=False` class may be missing. Extension fields are marked; everything else is OpenAI's word.
Source: OpenAI API reference, "Responses", "Conversations"; the types of openai-python 3.57; Open Responses 2.4.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, TypedDict

import msgspec

Dialect = Literal["openai", "ksadk"]
ToolsAs = Literal["mcp_call", "function_pair", "hidden"]
ReasoningAs = Literal["summary", "text"]
Status = Literal["queued", "in_progress", "completed", "failed", "cancelled", "incomplete"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
McpStatus = Literal["in_progress", "completed", "incomplete", "failed"]

#: Every tool that the server runs itself is one of this "MCP server": clients show it and never run it.
SERVER_LABEL: Final = "agent"


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How a reader wants to see what the protocol can show in several ways."""

    dialect: Dialect = "openai"
    tools_as: ToolsAs = "mcp_call"
    reasoning_as: ReasoningAs = "summary"

    @property
    def tools(self) -> ToolsAs:
        """How server-run tools are shown: the `ksadk` dialect knows no `mcp_call`."""
        return "function_pair" if self.dialect == "ksadk" and self.tools_as == "mcp_call" else self.tools_as


class MessageItem(TypedDict):
    """A message; parts are `output_text` and `refusal` for the assistant, `input_*` for everybody else."""

    type: Literal["message"]
    id: str
    role: str
    status: ItemStatus
    content: list[dict[str, Any]]


class ReasoningItem(TypedDict):
    """The model's thinking; `content` holds it when it is not a summary."""

    type: Literal["reasoning"]
    id: str
    status: ItemStatus
    summary: list[dict[str, Any]]
    content: NotRequired[list[dict[str, Any]]]
    encrypted_content: NotRequired[str]


class FunctionCallItem(TypedDict):
    """A call that the client runs; in the `ksadk` dialect also one that the server ran."""

    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class FunctionCallOutputItem(TypedDict):
    """What a call gave; `output` is text, or `input_*` parts when there is more than text."""

    type: Literal["function_call_output"]
    id: str
    call_id: str
    output: str | list[dict[str, Any]]
    status: ItemStatus
    name: NotRequired[str]


class McpCallItem(TypedDict):
    """A call that the server ran, with its result: `output`, or `error` when it failed."""

    type: Literal["mcp_call"]
    id: str
    status: McpStatus
    server_label: str
    name: str
    arguments: str
    output: str | None
    error: dict[str, Any] | None
    approval_request_id: str | None


class ApprovalRequestItem(TypedDict):
    """Somebody has to decide. `description`, `kind` and `call_id` are extensions."""

    type: Literal["mcp_approval_request"]
    id: str
    server_label: str
    name: str
    arguments: str
    kind: str
    description: NotRequired[str]
    call_id: NotRequired[str]


class ApprovalResponseItem(TypedDict):
    """The decision."""

    type: Literal["mcp_approval_response"]
    id: str
    approval_request_id: str
    approve: bool
    reason: str | None


OutputItem = (
    MessageItem
    | ReasoningItem
    | FunctionCallItem
    | FunctionCallOutputItem
    | McpCallItem
    | ApprovalRequestItem
    | ApprovalResponseItem
)


class ResponseError(TypedDict):
    """Why a response failed. `code` is one of OpenAI's words; `type` is ours."""

    code: str
    message: str
    type: str
    param: None


class ResponseObject(TypedDict):
    """One leg of a run. The four last fields are extensions."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Status
    error: ResponseError | None
    incomplete_details: dict[str, str] | None
    model: str
    output: list[OutputItem]
    usage: dict[str, Any] | None
    instructions: str | None
    metadata: dict[str, Any]
    conversation: dict[str, str] | None
    previous_response_id: str | None
    tools: list[dict[str, Any]]
    tool_choice: Any
    parallel_tool_calls: bool
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    max_output_tokens: int | None
    max_tool_calls: int | None
    truncation: str
    text: dict[str, Any]
    reasoning: dict[str, Any]
    service_tier: str
    safety_identifier: str | None
    prompt_cache_key: str | None
    store: bool
    background: bool
    user: NotRequired[str]
    output_text: str
    session_id: str
    run_id: str
    next_response_id: NotRequired[str]


class ItemList(TypedDict):
    """A page of items; the ids are None when it is empty."""

    object: Literal["list"]
    data: list[OutputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ConversationObject(TypedDict):
    """A session, as the Conversations API shows it."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, Any]


class DeletedObject(TypedDict):
    """What is left of a response or conversation."""

    id: str
    object: Literal["response", "conversation.deleted"]
    deleted: Literal[True]
