"""A Chat Completions request as a start.

Rule: what is wrong is refused with the path of the field in `param`; unknown fields are accepted and not looked at.
Source: OpenAI API reference, "Create chat completion"; docs/protocols/chat.md lists every field and what becomes of it.
"""

from __future__ import annotations

from typing import Any, Final, cast, get_args

import msgspec

from runstone.core.commands import Start
from runstone.core.content import Part, RefusalPart, TextPart
from runstone.core.ids import checked_run_id, checked_session_id
from runstone.core.items import Item, Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import Settings, ToolSpec
from runstone.errors import InvalidRequest, Unsupported
from runstone.protocols.chat.types import NAME, Dialect, Echo
from runstone.protocols.fields import (
    Json,
    need_list,
    need_object,
    need_str,
    opt_bool,
    opt_busy,
    opt_disconnect,
    opt_int,
    opt_list,
    opt_object,
    opt_str,
    path,
    wrong_type,
)
from runstone.protocols.parts import parts_from_wire

#: Passed to the agent as `model_options` under their own names.
OPTIONS: Final = (
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "temperature",
    "top_k",
    "top_logprobs",
    "top_p",
    "verbosity",
)
_NUMBERS: Final = ("frequency_penalty", "presence_penalty", "temperature", "top_p")
_COUNTS: Final = ("max_completion_tokens", "max_tokens")
#: Refused: field -> what to do instead.
REFUSED: Final = {
    "audio": "answers are text",
    "function_call": "use `tool_choice`",
    "functions": "use `tools`",
    "web_search_options": "the agent brings its own tools",
}


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A start, and how its answer is to look. `start.echo` holds the last two as well, for readers that resume."""

    start: Start
    stream: bool = False
    include_usage: bool = False
    dialect: Dialect = "openai"


def start_from_chat(body: Any) -> ChatRequest:
    """What the decoded JSON `body` asks for; headers are the server's to add (`msgspec.structs.replace`).

    Without `session_id` the run is stateless: all messages are its input and nothing is kept unless `store` is true.

    Raises:
        InvalidRequest: a field is wrong, `param` is its path.
        Unsupported: a field asks for what this server does not do.
    """
    fields = need_object(body, "")
    _refuse(fields)
    stream = opt_bool(fields, "stream") or False
    echo = Echo(model=opt_str(fields, "model"), include_usage=_include_usage(fields), dialect=_dialect(fields))
    session_id, run_id = opt_str(fields, "session_id"), opt_str(fields, "run_id")
    store = opt_bool(fields, "store")
    start = Start(
        surface=NAME,
        input=items_from_messages(fields),
        agent=echo.model,
        session_id=None if session_id is None else checked_session_id(session_id),
        settings=_settings(fields),
        metadata=opt_object(fields, "metadata") or {},
        store=session_id is not None if store is None else store,
        reuses_history=session_id is not None,
        replaces_history=_replaces_history(fields, session_id),
        busy=opt_busy(fields),
        disconnect=opt_disconnect(fields),
        run_id=None if run_id is None else checked_run_id(run_id),
        echo={NAME: msgspec.to_builtins(echo)},
        body=_fingerprint(fields),
    )
    return ChatRequest(start=start, stream=stream, include_usage=echo.include_usage, dialect=echo.dialect)


def _refuse(fields: Json) -> None:
    for key, instead in REFUSED.items():
        if fields.get(key) is not None:
            raise Unsupported(f"{key!r} is not supported: {instead}.", capability=key, param=key)
    if opt_int(fields, "n") not in (None, 1):
        raise Unsupported(f"'n' is {fields['n']!r}; one choice is made, expected 1.", capability="n", param="n")
    if "audio" in (opt_list(fields, "modalities") or []):
        raise Unsupported("'modalities' asks for audio; answers are text.", capability="audio", param="modalities")


def _include_usage(fields: Json) -> bool:
    options = opt_object(fields, "stream_options")
    return options is not None and bool(opt_bool(options, "include_usage", at="stream_options"))


def _dialect(fields: Json) -> Dialect:
    word = opt_str(fields, "dialect") or "openai"
    if word not in get_args(Dialect):
        raise InvalidRequest(f"'dialect' is {word[:80]!r}; expected openai or steps.", param="dialect")
    return cast(Dialect, word)


def _replaces_history(fields: Json, session_id: str | None) -> bool:
    word = opt_str(fields, "history")
    if word not in (None, "replace"):
        raise InvalidRequest(f"'history' is {word!r}; expected 'replace'.", param="history")
    if word is not None and session_id is None:
        raise InvalidRequest("'history' needs a 'session_id'.", param="history")
    return word is not None


def _fingerprint(fields: Json) -> bytes:
    """The request without what only says how to read the answer, in one spelling."""
    kept = {key: value for key, value in fields.items() if key not in ("stream", "stream_options")}
    return msgspec.json.encode(kept, order="deterministic")


# -- settings


def _settings(fields: Json) -> Settings:
    for key in _NUMBERS:
        if isinstance(value := fields.get(key), bool) or not isinstance(value, int | float | None):
            raise wrong_type(value, key, "a number")
    for key in _COUNTS:
        if (count := opt_int(fields, key)) is not None and count < 1:
            raise InvalidRequest(f"{key!r} is {count}; expected 1 or more.", param=key)
    options = {key: fields[key] for key in OPTIONS if fields.get(key) is not None}
    return Settings(
        model_options={**options, **(opt_object(fields, "model_options") or {})},
        model_metadata=opt_object(fields, "model_metadata") or {},
        tools=[_tool(tool, f"tools[{n}]") for n, tool in enumerate(opt_list(fields, "tools") or [])],
        tool_choice=_tool_choice(fields),
        user=opt_str(fields, "user"),
    )


def _tool(value: Any, at: str) -> ToolSpec:
    tool = need_object(value, at)
    kind = need_str(tool, "type", at=at)
    if kind != "function":
        raise Unsupported(
            f"'{at}.type' is {kind[:80]!r}; only function tools can be declared.",
            capability=f"tool:{kind[:80]}",
            param=f"{at}.type",
        )
    at = path(at, "function")
    function = need_object(tool.get("function"), at)
    return ToolSpec(
        name=need_str(function, "name", at=at),
        description=opt_str(function, "description", at=at),
        parameters=opt_object(function, "parameters", at=at),
        strict=opt_bool(function, "strict", at=at),
    )


def _tool_choice(fields: Json) -> Any:
    choice = fields.get("tool_choice")
    if choice is None or isinstance(choice, dict) or choice in ("none", "auto", "required"):
        return choice
    raise wrong_type(choice, "tool_choice", "none, auto, required or an object")


# -- messages


def items_from_messages(fields: Json) -> list[Item]:
    """The items of `messages`, numbered `in1`, `in2` ...; an assistant message with calls becomes several items.

    Raises:
        InvalidRequest: there are none, or one is malformed.
    """
    if fields.get("messages") is None:
        raise InvalidRequest("'messages' is missing.", param="messages", code="missing_required_parameter")
    messages = need_list(fields["messages"], "messages")
    if not messages:
        raise InvalidRequest("'messages' is empty; expected at least one message.", param="messages")
    reader = _Reader()
    for n, message in enumerate(messages):
        reader.read(need_object(message, f"messages[{n}]"), f"messages[{n}]")
    return reader.items


class _Reader:
    """Messages read so far; a tool message gets its tool's name from the call before it."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._names: dict[str, str] = {}

    def read(self, message: Json, at: str) -> None:
        """Add the items of one message."""
        match role := need_str(message, "role", at=at):
            case "user" | "system" | "developer":
                parts = parts_from_wire(message.get("content"), path(at, "content"))
                if not parts:
                    param = path(at, "content")
                    raise InvalidRequest(f"{param!r} is empty.", param=param, code="missing_required_parameter")
                author = opt_str(message, "name", at=at)
                self.items.append(Message(item_id=self._id(), role=role, parts=parts, author=author))
            case "assistant":
                self._assistant(message, at)
            case "tool":
                self._tool(message, at)
            case _:
                instead = "; use the role tool" if role == "function" else ""
                param = path(at, "role")
                raise InvalidRequest(
                    f"{param!r} is {role[:80]!r}; expected system, developer, user, assistant or tool{instead}.",
                    param=param,
                )

    def _id(self) -> str:
        return f"in{len(self.items) + 1}"

    def _assistant(self, message: Json, at: str) -> None:
        if message.get("function_call") is not None:
            param = path(at, "function_call")
            raise InvalidRequest(f"{param!r} is not supported; use tool_calls.", param=param)
        calls = opt_list(message, "tool_calls", at=at) or []
        if reasoning := opt_str(message, "reasoning_content", at=at):
            self.items.append(Reasoning(item_id=self._id(), text=reasoning))
        parts = parts_from_wire(message.get("content"), path(at, "content"))
        if refusal := opt_str(message, "refusal", at=at):
            parts.append(RefusalPart(text=refusal))
        if not calls or any(part != TextPart(text="") for part in parts):
            author = opt_str(message, "name", at=at)
            self.items.append(Message(item_id=self._id(), role="assistant", parts=parts, author=author))
        for n, call in enumerate(calls):
            self._call(call, f"{at}.tool_calls[{n}]")

    def _call(self, value: Any, at: str) -> None:
        call = need_object(value, at)
        if (opt_str(call, "type", at=at) or "function") != "function":
            param = path(at, "type")
            raise InvalidRequest(f"{param!r} is {call['type'][:80]!r}; expected function.", param=param)
        call_id = need_str(call, "id", at=at)
        at = path(at, "function")
        function = need_object(call.get("function"), at)
        name = need_str(function, "name", at=at)
        arguments = need_str(function, "arguments", at=at)
        self._names[call_id] = name
        self.items.append(
            ToolCall(item_id=self._id(), call_id=call_id, name=name, arguments=arguments, executor="client")
        )

    def _tool(self, message: Json, at: str) -> None:
        call_id = need_str(message, "tool_call_id", at=at)
        parts = parts_from_wire(message.get("content"), path(at, "content"))
        reason = reason_of_failure(parts)
        self.items.append(
            ToolResult(
                item_id=self._id(),
                call_id=call_id,
                name=self._names.get(call_id) or opt_str(message, "name", at=at),
                output=parts if reason is None else [TextPart(text=reason)],
                is_error=reason is not None,
                executor="client",
            )
        )


def reason_of_failure(parts: list[Part]) -> str | None:
    """Why a tool failed, when its output is exactly `{"error": "<reason>"}`; None otherwise (backend contract, "OpenAI")."""
    match parts:
        case [TextPart(text=text)] if text.lstrip().startswith("{"):
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                return None
            match value:
                case {"error": str(reason), **others} if not others:
                    return reason
    return None
