"""What is asked of a run that is there: steer, stop, regenerate, decide.

Source: the Hermes agent API server, as measured; regenerate is ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from runstone.core.commands import Start
from runstone.core.content import TextPart
from runstone.core.ids import checked_run_id, checked_session_id
from runstone.core.items import Item, ToolResult
from runstone.core.runs import Decision, DecisionWord, PendingApproval, RunStatus
from runstone.errors import AlreadyDecided, InvalidRequest
from runstone.protocols.hermes.request import (
    first_of,
    is_blank,
    need_body,
    opt_bool,
    opt_str,
    parts_of,
    start_of,
    user_message,
    wrong_type,
)


class SteerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """New input for a run that goes on."""

    content: list[Item]


def steer_from_body(body: object) -> SteerRequest:
    """What `/v1/runs/{id}/steer` asks for: `input`, `message` or `text`.

    Raises:
        InvalidRequest: there is nothing in it (code `invalid_steer_input`).
    """
    fields = need_body(body)
    key, value = first_of(fields, "input", "message", "text")
    parts = parts_of(value, key)
    if is_blank(parts):
        raise InvalidRequest(
            "Missing non-empty steer text; expected 'input', 'message', or 'text'.",
            param=key,
            code="invalid_steer_input",
        )
    return SteerRequest(content=[user_message(parts, fields)])


def stop_reason(body: object) -> str | None:
    """The reason in the body of `/v1/runs/{id}/stop`; the body may be empty."""
    return opt_str(need_body({} if body is None else body), "reason")


class RegenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a run's turn once more; `start.input` is empty when the turn's own input is to be used. Ours."""

    start: Start
    accepted_only: bool = True


def regenerate_from_body(body: object, run_id: str) -> RegenerateRequest:
    """What `/v1/runs/{id}/regenerate` asks for; the body may be empty. `input` edits the turn.

    Raises:
        InvalidRequest: a field is wrong; `input` is there and says nothing.
    """
    fields = need_body({} if body is None else body)
    key, value = first_of(fields, "input", "message")
    parts = parts_of(value, key)
    if value is not None and is_blank(parts):
        raise InvalidRequest(f"{key!r} says nothing; leave it out to keep the turn's input.", param=key)
    items: list[Item] = [user_message(parts, fields)] if parts else []
    accepted = opt_bool(fields, "accepted_only")
    start = start_of(fields, items, {"route": "regenerate", "regenerates": run_id}, instructions="system_message")
    return RegenerateRequest(start=start, accepted_only=True if accepted is None else accepted)


def tool_outputs_from_body(body: object, run_id: str) -> Start:
    """What `/v1/runs/{id}/tool_outputs` asks for: what the client's tools gave. Ours.

    `tool_outputs` is an array of `{tool_call_id, output}`, `error: true` beside the reason of one that failed. They answer the
    approvals that a waiting run asked for them with, or go on after a run that ended with calls for the client.

    Raises:
        InvalidRequest: there are none, or one is malformed.
    """
    fields = need_body(body)
    key, outputs = first_of(fields, "tool_outputs", "outputs")
    if not isinstance(outputs, list) or not outputs:
        raise InvalidRequest(f"{key!r} must be a non-empty array.", param=key, code="missing_tool_outputs")
    items = [_tool_result(output, f"{key}[{n}]", n) for n, output in enumerate(outputs, 1)]
    start = start_of(fields, items, {"route": "tool_outputs", "continues": run_id})
    return msgspec.structs.replace(start, continues=run_id)


def _tool_result(output: object, at: str, number: int) -> Item:
    match output:
        case {"tool_call_id": str(call_id), "output": value} if call_id:
            fields = need_body(output)
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            return ToolResult(
                item_id=f"in{number}",
                call_id=call_id,
                output=[TextPart(text=text)],
                is_error=bool(opt_bool(fields, "error")),
                executor="client",
            )
        case _:
            raise InvalidRequest(
                f"{at} must have 'tool_call_id' and 'output' fields", param=at, code="invalid_tool_output"
            )


class RunsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first; `before` is the run at the end of the page before. Ours."""

    limit: int = 50
    session_id: str | None = None
    statuses: list[RunStatus] | None = None
    before: str | None = None


def runs_query(query_params: Mapping[str, str]) -> RunsQuery:
    """The query of `GET /v1/runs`; `status` may be several, by commas.

    Raises:
        InvalidRequest: a word is no status, an id is none, or `limit` is not from 1 to 200.
    """
    limit, session_id, before = (query_params.get(key) for key in ("limit", "session_id", "before"))
    if limit is not None and (re.fullmatch("[0-9]{1,3}", limit) is None or not 1 <= int(limit) <= 200):
        raise wrong_type(limit, "limit", "1 to 200")
    words = query_params["status"].split(",") if "status" in query_params else None
    if words is not None and not set(words) <= _STATUSES.keys():
        raise wrong_type(query_params["status"], "status", f"some of {', '.join(_STATUSES)}")
    return RunsQuery(
        limit=50 if limit is None else int(limit),
        session_id=None if session_id is None else checked_session_id(session_id),
        statuses=None if words is None else [_STATUSES[word] for word in words],
        before=None if before is None else checked_run_id(before, param="before"),
    )


_STATUSES: Final[dict[str, RunStatus]] = {
    "waiting_for_approval" if status == "waiting" else status: status for status in get_args(RunStatus)
}

# -- approvals


class ApprovalReply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer before it is known what it answers. `choice` is the word as it was sent, in lower case."""

    choice: str | None = None
    approval_id: str | None = None
    is_for_all: bool = False
    arguments: str | None = None
    value: Any = None
    has_value: bool = False
    reason: str | None = None


#: Word -> decision and scope. Hermes' words first, then its aliases and ours.
CHOICES: Final[dict[str, tuple[DecisionWord, str | None]]] = {
    "once": ("approved", None),
    "session": ("approved", "session"),
    "always": ("approved", "always"),
    "deny": ("denied", None),
    "approve": ("approved", None),
    "approved": ("approved", None),
    "allow": ("approved", None),
    "denied": ("denied", None),
    "reject": ("denied", None),
    "answer": ("answered", None),
    "answered": ("answered", None),
}


def approval_from_body(body: object) -> ApprovalReply:
    """What `/v1/runs/{id}/approval` says: `choice` (or `decision`), `request_id` (or `approval_id`), `all`, and ours.

    Raises:
        InvalidRequest: there is neither a choice nor a value (code `invalid_approval_choice`).
    """
    fields = need_body(body)
    key, _ = first_of(fields, "choice", "decision")
    choice = opt_str(fields, key, code="invalid_approval_choice")
    has_value = "value" in fields
    if choice is None and not has_value:
        raise _wrong_choice(None, key)
    _, arguments = first_of(fields, "arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return ApprovalReply(
        choice=None if choice is None else choice.strip(),
        # Clients that know no id send an empty one.
        approval_id=opt_str(fields, "request_id") or opt_str(fields, "approval_id") or None,
        is_for_all=bool(opt_bool(fields, "all") or opt_bool(fields, "resolve_all")),
        arguments=arguments,
        value=first_of(fields, "value")[1],
        has_value=has_value,
        reason=opt_str(fields, "reason"),
    )


def decisions_of(reply: ApprovalReply, pending: list[PendingApproval], *, by: str | None = None) -> list[Decision]:
    """The decisions that `reply` means for a run whose `pending` approvals these are.

    With an id, that one, also when it is not in `pending` (the engine knows what became of it); with `all`, every one;
    else the only one.

    Raises:
        AlreadyDecided: nothing is pending (code `approval_not_pending`).
        InvalidRequest: several are pending and none is named, or the choice is no word for it.
    """
    if reply.approval_id is not None:
        asked = [one for one in pending if one.approval_id == reply.approval_id]
        return [_decision(reply, reply.approval_id, asked[0] if asked else None, by)]
    if not pending:
        raise AlreadyDecided("Run has no pending approval.", code="approval_not_pending")
    if len(pending) > 1 and not reply.is_for_all:
        ids = ", ".join(repr(one.approval_id) for one in pending)
        raise InvalidRequest(
            f"{len(pending)} approvals are pending; name one in 'request_id' ({ids}), or say 'all'.",
            param="request_id",
            code="approval_ambiguous",
        )
    return [_decision(reply, one.approval_id, one, by) for one in pending]


def _decision(reply: ApprovalReply, approval_id: str, asked: PendingApproval | None, by: str | None) -> Decision:
    decision: DecisionWord = "answered"
    scope, value = None, reply.value
    if reply.choice is not None:
        own = (asked.choices if asked is not None else None) or []
        if reply.choice.lower() in CHOICES and reply.choice not in own:
            decision, scope = CHOICES[reply.choice.lower()]
        elif reply.choice in own:
            value = value if reply.has_value else reply.choice
        else:
            raise _wrong_choice(reply.choice, "choice", [*CHOICES_SHOWN, *own])
    return Decision(
        approval_id=approval_id,
        decision=decision,
        arguments=reply.arguments,
        value=value,
        scope=scope,
        reason=reply.reason,
        by=by,
    )


#: The words of Hermes' own that an error names.
CHOICES_SHOWN: Final = ("once", "session", "always", "deny")


def _wrong_choice(choice: str | None, param: str, words: list[str] | None = None) -> InvalidRequest:
    said = "" if choice is None else f" {choice[:80]!r}"
    expected = ", ".join(words or CHOICES_SHOWN)
    return InvalidRequest(
        f"Invalid approval choice{said}; expected one of: {expected}", param=param, code="invalid_approval_choice"
    )
