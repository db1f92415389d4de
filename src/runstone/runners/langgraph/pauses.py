"""Interrupts as approvals, decisions as what a graph is resumed with.

Rules: an approval's id is made from its interrupt's, so that the same pause has the same id in every process. A graph gets
the client's own item when there is one, and otherwise what such an item would say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from langgraph.types import Interrupt

from runstone.core.runs import ApprovalKind, Decision, PendingApproval
from runstone.core.serde import to_json
from runstone.errors import RunnerError
from runstone.runners.langgraph.stream import plain

PREFIX: Final = "apr_"
BREAKPOINT: Final = "apr_breakpoint_"
_PROMPT_KEYS: Final = ("prompt", "question", "message", "query", "description")
_CHOICE_KEYS: Final = ("choices", "options")

OpenCall = tuple[str, str, Any]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """An approval to be asked for."""

    kind: ApprovalKind
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    prompt: str | None = None
    choices: list[str] | None = None
    schema: dict[str, Any] | None = None


def approval_id(interrupt_id: str, part: int, asked: Mapping[str, Any]) -> str:
    """The id of the `part`-th approval of an interrupt; another one when `asked` has it: the graph asks the same again."""
    id = base = f"{PREFIX}{interrupt_id}_{part}"
    again = 1
    while id in asked:
        again += 1
        id = f"{base}_{again}"
    return id


def interrupt_of(approval_id: str) -> str:
    """The id of the interrupt that an approval was made from."""
    return approval_id.removeprefix(PREFIX).partition("_")[0]


def _part_of(approval_id: str) -> int:
    return int(approval_id.removeprefix(PREFIX).split("_")[1])


def asks(interrupt: Interrupt, calls: Sequence[OpenCall]) -> list[Ask]:
    """What to ask for an interrupt: one confirmation per action of a middleware's request, otherwise one thing."""
    value = interrupt.value
    actions = _actions(value)
    if actions is not None:
        return [_confirmation(action, calls) for action in actions]
    call_id = calls[0][0] if len(calls) == 1 else None
    schema = getattr(interrupt, "response_schema", None)
    match value:
        case {"tool_name": str(name)}:
            arguments = value.get("tool_args", value.get("arguments", value.get("args", {})))
            return [Ask(kind="confirm", call_id=call_id, name=name, arguments=_text(arguments), prompt=_prompt(value))]
        case _:
            return [
                Ask(
                    kind="input",
                    call_id=call_id,
                    name=calls[0][1] if len(calls) == 1 else None,
                    arguments=_text(value),
                    prompt=_prompt(value),
                    choices=_choices(value),
                    schema=schema if isinstance(schema, dict) else None,
                )
            ]


def _actions(value: Any) -> list[dict[str, Any]] | None:
    match value:
        case {"action_requests": [dict(), *_] as actions}:
            return list(actions)
        case _:
            return None


def _confirmation(action: Mapping[str, Any], calls: Sequence[OpenCall]) -> Ask:
    name, arguments = str(action.get("name") or action.get("action")), action.get("args", action.get("arguments", {}))
    same = [call_id for call_id, called, given in calls if called == name and given == arguments]
    return Ask(
        kind="confirm",
        call_id=same[0] if same else None,
        name=name,
        arguments=_text(arguments),
        prompt=action.get("description") if isinstance(action.get("description"), str) else None,
    )


def _text(value: Any) -> str:
    return to_json(plain(value)).decode()


def _prompt(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return next((value[key] for key in _PROMPT_KEYS if isinstance(value.get(key), str)), None)
    return None


def _choices(value: Any) -> list[str] | None:
    if not isinstance(value, Mapping):
        return None
    for key in _CHOICE_KEYS:
        choices = value.get(key)
        if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
            return list(choices)
    return None


# -- decisions


def resume_values(
    interrupts: Sequence[Interrupt], decisions: Sequence[Decision], asked: Mapping[str, PendingApproval]
) -> dict[str, Any]:
    """Interrupt id to what the graph is given there, for the interrupts that are fully decided.

    Raises:
        RunnerError: a decision is for an interrupt that the graph does not wait at.
    """
    pending = {interrupt.id: interrupt for interrupt in interrupts}
    by_interrupt: dict[str, list[Decision]] = {}
    for decision in decisions:
        id = interrupt_of(decision.approval_id)
        if id not in pending:
            raise RunnerError("the graph does not wait for this decision any more: its checkpoint is gone")
        by_interrupt.setdefault(id, []).append(decision)
    return {id: _resume_value(pending[id].value, given, asked) for id, given in by_interrupt.items()}


def undecided(
    decisions: Sequence[Decision], asked: Mapping[str, PendingApproval], interrupts: Sequence[Interrupt]
) -> list[str]:
    """Approvals of the interrupts in `decisions` that still lack their decision: a middleware wants all of its own at once."""
    have = {decision.approval_id for decision in decisions}
    missing = []
    for interrupt in interrupts:
        actions = _actions(interrupt.value) or []
        mine = [id for id in asked if interrupt_of(id) == interrupt.id][-len(actions) :] if len(actions) > 1 else []
        if have.intersection(mine):
            missing += [id for id in mine if id not in have]
    return missing


def _resume_value(value: Any, decisions: Sequence[Decision], asked: Mapping[str, PendingApproval]) -> Any:
    if _actions(value) is not None:
        first = decisions[0].native
        if isinstance(first, Mapping) and "decisions" in first:
            return first
        in_order = sorted(decisions, key=lambda decision: _part_of(decision.approval_id))
        return {"decisions": [_middleware_decision(decision, asked) for decision in in_order]}
    decision = decisions[0]
    if decision.native is not None:
        return decision.native
    return decision.value if decision.decision == "answered" else _response(decision, asked)


def _middleware_decision(decision: Decision, asked: Mapping[str, PendingApproval]) -> dict[str, Any]:
    if decision.decision != "approved":
        return {"type": "reject", "message": decision.reason or _reason(decision)}
    request = asked.get(decision.approval_id)
    if request is None or decision.arguments in (None, request.arguments):
        return {"type": "approve"}
    return {"type": "edit", "edited_action": {"name": request.name, "args": json.loads(decision.arguments or "{}")}}


def _response(decision: Decision, asked: Mapping[str, PendingApproval]) -> dict[str, Any]:
    """A decision in the words of `mcp_approval_response`, the item that a client of Responses would have sent."""
    response: dict[str, Any] = {
        "type": "mcp_approval_response",
        "approval_request_id": decision.approval_id,
        "approve": decision.decision == "approved",
        "reason": decision.reason or _reason(decision),
    }
    request = asked.get(decision.approval_id)
    if request is not None and request.kind == "confirm" and decision.arguments is not None:
        response["tool_args"] = json.loads(decision.arguments)
    return response


def _reason(decision: Decision) -> str | None:
    return None if decision.decision in ("approved", "answered") else f"The request was {decision.decision}."
