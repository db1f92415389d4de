"""What Responses and Chat share beside fields and parts: usage, finish reasons, errors.

Source: OpenAI API reference, "Responses", "Chat", "Errors"; the types of openai-python.
"""

from __future__ import annotations

from typing import Final, Literal

from runstone.core.runs import Usage
from runstone.errors import (
    BODY_LIMIT,
    RATE_LIMIT,
    Conflict,
    CursorExpired,
    CursorUnknown,
    InvalidRequest,
    LimitExceeded,
    NotAllowed,
    NotFound,
    RunActive,
    RunnerError,
    RunstoneError,
    StorageUnavailable,
    Unsupported,
)
from runstone.protocols.base import ErrorBody
from runstone.protocols.fields import (
    Json,
)

# -- usage and finish reasons


def chat_usage(usage: Usage | None) -> Json | None:
    """`usage` in Chat's words; None when it does not say both the input and the output tokens."""
    counts = _counts(usage)
    if counts is None or usage is None:
        return None
    prompt, completion, total = counts
    wire: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    if usage.cached_tokens is not None:
        wire["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        wire["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return wire


def responses_usage(usage: Usage | None) -> Json | None:
    """`usage` in Responses' words; None as in `chat_usage`. Its detail counts are required: 0 where nobody said."""
    counts = _counts(usage)
    if counts is None or usage is None:
        return None
    given, made, total = counts
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": total,
    }


def known_usage(usage: Usage) -> Json:
    """What `usage` says, in Chat's words; what nobody counted is absent."""
    counts = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total,
    }
    return {key: count for key, count in counts.items() if count is not None}


def _counts(usage: Usage | None) -> tuple[int, int, int] | None:
    """Input, output and total tokens, one computed from the other two where it is missing."""
    if usage is None:
        return None
    given, made, total = usage.input_tokens, usage.output_tokens, usage.total_tokens
    if made is None and given is not None and total is not None:
        made = total - given
    if given is None and made is not None and total is not None:
        given = total - made
    if given is None or made is None:
        return None
    return given, made, given + made if total is None else total


def usage_from_wire(value: object) -> Usage | None:
    """Usage of either protocol; what is absent or no whole number stays unknown."""
    if not isinstance(value, dict):
        return None

    def count(*keys: str, details: str = "") -> int | None:
        fields = value.get(details) if details else value
        found = [fields.get(key) for key in keys] if isinstance(fields, dict) else []
        return next((n for n in found if isinstance(n, int) and not isinstance(n, bool)), None)

    cached = count("cached_tokens", details="prompt_tokens_details")
    reasoning = count("reasoning_tokens", details="completion_tokens_details")
    usage = Usage(
        input_tokens=count("prompt_tokens", "input_tokens"),
        output_tokens=count("completion_tokens", "output_tokens"),
        total_tokens=count("total_tokens"),
        cached_tokens=count("cached_tokens", details="input_tokens_details") if cached is None else cached,
        reasoning_tokens=count("reasoning_tokens", details="output_tokens_details") if reasoning is None else reasoning,
    )
    return None if usage == Usage() else usage


FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
#: Reason of a completed run -> Chat's `finish_reason`; any other reason, and none, is `stop`.
FINISH_OF_REASON: Final[dict[str, FinishReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "client_tools": "tool_calls",
}
REASON_OF_FINISH: Final = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "tool_calls": "client_tools",
    "function_call": "client_tools",
}

# -- errors

_FIXED: Final = "The server had an error while processing the request."
#: Name of the limit on a request's body; going over it is 413, over any other 400.
_NO_RETRY: Final = {"x-should-retry": "false"}


def error_object(
    message: str, *, type: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> Json:
    """The `error` of a body or of a stream's error frame."""
    return {"message": message, "type": type, "param": param, "code": code}


def error_body(error: RunstoneError) -> ErrorBody:
    """`error` as OpenAI's error body.

    A conflict is 400 and an agent's failure forbids a retry: the official clients send 408, 409, 429 and 5xx again by
    themselves, which would run the agent three times.
    """
    message = error.message
    match error:
        case InvalidRequest():
            return _answer(400, message, param=error.param, code=_own(error, InvalidRequest))
        case NotAllowed() if error.code == "forbidden":
            return _answer(403, message, type="permission_error", code="forbidden")
        case NotAllowed():
            return _answer(401, message, type="authentication_error", code="invalid_api_key")
        case NotFound():
            status = 400 if error.code == "previous_response_not_found" else 404
            return _answer(status, message, param=error.param, code=error.code)
        case RunActive():
            return _answer(400, message, param="conversation", code="conversation_locked", run_id=error.run_id)
        case Conflict():
            return _answer(400, message, code=error.code, run_id=error.run_id)
        case CursorUnknown() | CursorExpired():
            return _answer(400, message, code=error.code)
        case LimitExceeded(limit=limit) if limit == RATE_LIMIT:
            busy = error_object(message, type="rate_limit_error", code=error.code)
            return ErrorBody(status=429, body={"error": busy}, headers={"retry-after": "1"})
        case LimitExceeded():
            return _answer(413 if error.limit == BODY_LIMIT else 400, message, code=error.code)
        case Unsupported():
            return _answer(400, message, param=error.param, code="unsupported_parameter")
        case StorageUnavailable():
            why = message if error.code == "draining" else "The store cannot be used now; try again later."
            busy = error_object(why, type="server_error", code=error.code)
            return ErrorBody(status=503, body={"error": busy}, headers={"retry-after": "2"})
        case RunnerError():
            return ErrorBody(
                status=500,
                body={"error": error_object(message, type="server_error", code=error.code)},
                headers=_NO_RETRY,
            )
        case _:
            fixed = error_object(_FIXED, type="server_error", code="internal_error")
            return ErrorBody(status=500, body={"error": fixed}, headers=_NO_RETRY)


def _answer(
    status: int,
    message: str,
    *,
    type: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
    run_id: str | None = None,
) -> ErrorBody:
    error = error_object(message, type=type, param=param, code=code)
    return ErrorBody(status=status, body={"error": error if run_id is None else {**error, "run_id": run_id}})


def _own(error: RunstoneError, kind: type[RunstoneError]) -> str | None:
    """The error's code, None when it is only the general one of its kind."""
    return None if error.code == kind.code else error.code
