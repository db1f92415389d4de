"""Errors on Hermes' routes.

Rule: one table from our tree to Hermes' codes, in the envelope `{"error": {message, type, param, code}}`; a conflict with a
run names it in `run_id`, an expired cursor the oldest one that works in `oldest`. A turn that did not complete is never
answered with 200 (Hermes itself does).
Source: the Hermes agent API server as measured.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from runstone.core import events
from runstone.errors import (
    BODY_LIMIT,
    RATE_LIMIT,
    AlreadyDecided,
    Conflict,
    CursorExpired,
    CursorUnknown,
    IdempotencyConflict,
    InvalidRequest,
    LimitExceeded,
    NotAllowed,
    NotFound,
    RunActive,
    RunEnded,
    RunnerError,
    RunstoneError,
    StorageUnavailable,
    Unsupported,
)
from runstone.protocols.base import ErrorBody

#: What was asked of a run, where the same conflict has another name for each.
Verb = Literal["steer", "approval", "delete"]
_FIXED: Final = "The server had an error while processing the request."
_CONFLICT_OF_VERB: Final[dict[Verb, str]] = {
    "steer": "run_not_accepting_steer",
    "approval": "approval_not_active",
    "delete": "session_active_turn",
}
_WORDS: Final = {
    "failed": "The agent failed.",
    "cancelled": "The run was stopped.",
    "interrupted": "The run was interrupted.",
}


def error_object(
    message: str, *, type: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The `error` of a body."""
    return {"message": message, "type": type, "param": param, "code": code}


def error_body(error: RunstoneError, *, verb: Verb | None = None) -> ErrorBody:
    """`error` in Hermes' words; `verb` is what was asked of a run, if it was that."""
    message = error.message
    match error:
        case InvalidRequest():
            return _answer(400, message, param=error.param, code=_own(error, InvalidRequest))
        case NotAllowed() if error.code == "forbidden":
            return _answer(403, message, type="permission_error", code="forbidden")
        case NotAllowed():
            return _answer(401, message, type="gateway_auth_error", code="gateway_auth_failed")
        case NotFound():
            return _answer(404, message, param=error.param, code=error.code)
        case Conflict():
            return _answer(409, message, code=_conflict(error, verb), run_id=error.run_id)
        case CursorUnknown():
            return _answer(400, message, code=error.code)
        case CursorExpired():
            return _answer(410, message, code=error.code, oldest=error.oldest)
        case LimitExceeded():
            return _limit(error)
        case Unsupported():
            return _answer(400, message, param=error.param, code=f"unsupported_{error.capability}"[:80])
        case StorageUnavailable() if error.code == "draining":
            return _answer(503, message, code="gateway_draining", headers={"retry-after": "1"})
        case StorageUnavailable():
            message = "The store cannot be used now; try again later."
            return _answer(503, message, type="server_error", code=error.code, headers={"retry-after": "2"})
        case RunnerError():
            return _answer(500, message, type="server_error", code=error.code)
        case _:
            return _answer(500, _FIXED, type="server_error", code="internal_error")


def _conflict(error: Conflict, verb: Verb | None) -> str:
    match error:
        case AlreadyDecided():
            return "approval_not_pending"
        case IdempotencyConflict():
            return "idempotency_key_conflict"
        case RunActive() | RunEnded() if verb is not None:
            return _CONFLICT_OF_VERB[verb]
        case RunActive():
            return "run_already_active"
        case RunEnded():
            return "run_not_active"
        case _:
            return error.code


def _limit(error: LimitExceeded) -> ErrorBody:
    if error.limit == BODY_LIMIT:
        return _answer(413, error.message, code="body_too_large")
    if error.limit == RATE_LIMIT:
        return _answer(
            429, error.message, type="rate_limit_error", code="rate_limit_exceeded", headers={"retry-after": "1"}
        )
    return _answer(400, error.message, code=error.code)


def _answer(
    status: int,
    message: str,
    *,
    type: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
    run_id: str | None = None,
    oldest: str | None = None,
    headers: dict[str, str] | None = None,
) -> ErrorBody:
    error = error_object(message, type=type, param=param, code=code)
    ours = {"run_id": run_id, "oldest": oldest}
    body = {"error": error | {key: value for key, value in ours.items() if value is not None}}
    return ErrorBody(status=status, body=body, headers=headers or {})


def _own(error: RunstoneError, kind: type[RunstoneError]) -> str | None:
    """The error's code, None when it is only the general one of its kind."""
    return None if error.code == kind.code else error.code


def failure_of(ended: events.RunEnded) -> RunnerError:
    """The error to answer `/chat` with when the turn did not complete; its code is the failure's, or the outcome."""
    message = ended.error.message if ended.error is not None else _WORDS[ended.outcome]
    if ended.outcome != "failed":
        return RunnerError(message, code=ended.outcome)
    return RunnerError(message, code=ended.error.code if ended.error is not None else "agent_error")
