"""Input items of a request, and items that a client puts into a conversation, as ours.

Rule: an item of unknown type or role is refused, with its path. What a client replays from an earlier output is taken as it
was sent: ids and statuses of the wire mean nothing here, except for an unfinished message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from runstone.core.content import Part, TextPart
from runstone.core.items import Item, Message, Reasoning, Role, ToolCall, ToolResult
from runstone.core.lifecycle import NOT_FINISHED
from runstone.core.runs import Decision
from runstone.errors import InvalidRequest
from runstone.protocols.fields import Json, need_object, need_str, opt_bool, opt_list, opt_str, path, wrong_type
from runstone.protocols.parts import parts_from_wire
from runstone.protocols.responses.items import OPAQUE_PROVIDER

ROLES: Final[dict[str, Role]] = {role: role for role in ("user", "assistant", "system", "developer")}
#: Output items that say nothing to the agent; taken and left out.
LEFT_OUT: Final = frozenset({"mcp_approval_request", "mcp_list_tools"})
_ID: Final = ""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """An item of an earlier response, named by its id; it belongs before the item `at` of those that were read."""

    at: int
    id: str


class Place(NamedTuple):
    """Where something stands in a request: how many items and references come before it."""

    items: int
    references: int


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of input items says. The items' ids are empty. `decided_at`: the place of each of `decisions`."""

    items: list[Item] = []
    decisions: list[Decision] = []
    decided_at: list[Place] = []
    references: list[Reference] = []


def input_from_wire(value: object, at: str = "input") -> Input:
    """A text, one message or a list of items.

    Raises:
        InvalidRequest: an item is malformed, or of unknown type or role; `param` is its path.
    """
    match value:
        case None | "":
            return Input()
        case str():
            return Input(items=[Message(item_id=_ID, role="user", parts=[TextPart(text=value)])])
        case dict():
            return _read([value], lambda n: at)
        case list():
            return _read(value, lambda n: f"{at}[{n}]")
        case _:
            raise wrong_type(value, at, "a string, a message or an array of items")


def _read(values: list[Any], where: Callable[[int], str]) -> Input:
    items: list[Item] = []
    decisions: list[Decision] = []
    decided_at: list[Place] = []
    references: list[Reference] = []
    asked = _approvals_in(values)
    for n, value in enumerate(values):
        at = where(n)
        fields = need_object(value, at)
        kind = opt_str(fields, "type", at=at) or ("message" if "role" in fields else None)
        if kind == "mcp_approval_response":
            decisions.append(decision_from_wire(fields, at))
            decided_at.append(Place(len(items), len(references)))
        elif kind == "item_reference" or (kind is None and set(fields) == {"id"}):
            id = need_str(fields, "id", at=at)
            if id not in asked:
                references.append(Reference(at=len(items), id=id))
        elif kind not in LEFT_OUT:
            items += items_from_wire(fields, kind, at, f"call_{len(items) + 1}")
    return Input(items=items, decisions=decisions, decided_at=decided_at, references=references)


def _approvals_in(values: list[Any]) -> set[str]:
    """The approvals that are decided in a request: a reference to such a question says no more than the answer does."""
    responses = [v for v in values if isinstance(v, dict) and v.get("type") == "mcp_approval_response"]
    ids = [response.get("approval_request_id") for response in responses]
    return {id for id in ids if isinstance(id, str)}


def items_from_wire(fields: Json, kind: str | None, at: str, call_id: str) -> list[Item]:
    """The items that one item of the wire is: two for a server-run call, which carries its result; `call_id` is its id."""
    match kind:
        case "message":
            return [_message(fields, at)]
        case "function_call":
            return [_call(fields, at)]
        case "function_call_output":
            return [_output(fields, at)]
        case "reasoning":
            return [_reasoning(fields, at)]
        case "mcp_call":
            return _server_call(fields, at, call_id)
        case None:
            need_str(fields, "type", at=at)
    expected = "message, function_call, function_call_output, reasoning, mcp_call or mcp_approval_response"
    param = path(at, "type")
    raise InvalidRequest(f"{param!r} is {str(kind)[:80]!r}; expected {expected}.", param=param, code="invalid_value")


def _message(fields: Json, at: str) -> Message:
    word = need_str(fields, "role", at=at)
    if word not in ROLES:
        param = path(at, "role")
        raise InvalidRequest(
            f"{param!r} is {word[:80]!r}; expected {', '.join(ROLES)}.", param=param, code="invalid_value"
        )
    where = path(at, "content")
    if "content" not in fields:
        raise InvalidRequest(f"{where!r} is missing.", param=where, code="missing_required_parameter")
    parts = parts_from_wire(fields["content"], where)
    is_cut = opt_str(fields, "status", at=at) == "incomplete"
    return Message(item_id=_ID, role=ROLES[word], parts=parts, status="incomplete" if is_cut else "completed")


def _call(fields: Json, at: str) -> ToolCall:
    return ToolCall(
        item_id=_ID,
        call_id=need_str(fields, "call_id", at=at),
        name=need_str(fields, "name", at=at),
        arguments=need_str(fields, "arguments", at=at),
        executor="client",
    )


def _output(fields: Json, at: str) -> ToolResult:
    """A result of the client. When it answers a pause it is the agent's resume value, so a plain one is kept as it came."""
    where = path(at, "output")
    if "output" not in fields:
        raise InvalidRequest(f"{where!r} is missing.", param=where, code="missing_required_parameter")
    value = fields["output"]
    return ToolResult(
        item_id=_ID,
        call_id=need_str(fields, "call_id", at=at),
        output=parts_from_wire(value, where),
        executor="client",
        native={"responses": fields} if isinstance(value, str) else None,
    )


def _reasoning(fields: Json, at: str) -> Reasoning:
    """Its text, the summary where there is no other; a sealed one keeps its seal."""
    texts = [_texts(fields, key, at) for key in ("content", "summary")]
    sealed = opt_str(fields, "encrypted_content", at=at)
    return Reasoning(
        item_id=_ID,
        text=texts[0] or texts[1],
        opaque=None if sealed is None else {OPAQUE_PROVIDER: sealed},
    )


def _texts(fields: Json, key: str, at: str) -> str:
    where = path(at, key)
    blocks = [need_object(one, f"{where}[{n}]") for n, one in enumerate(opt_list(fields, key, at=at) or [])]
    return "\n\n".join(need_str(block, "text", at=f"{where}[{n}]") for n, block in enumerate(blocks))


def _server_call(fields: Json, at: str, call_id: str) -> list[Item]:
    name = need_str(fields, "name", at=at)
    call_id = opt_str(fields, "id", at=at) or call_id
    error = fields.get("error")
    output = opt_str(fields, "output", at=at)
    text = output if output is not None else NOT_FINISHED if error is None else _error_text(error)
    call = ToolCall(item_id=_ID, call_id=call_id, name=name, arguments=need_str(fields, "arguments", at=at))
    parts: list[Part] = [TextPart(text=text)]
    result = ToolResult(
        item_id=_ID,
        call_id=call_id,
        name=name,
        output=parts,
        is_error=output is None,
        synthetic=output is None and error is None,
    )
    return [call, result]


def _error_text(error: object) -> str:
    """The words of an error of either age: a text, or an object with `content` or `message`."""
    match error:
        case str():
            return error
        case {"content": [{"text": str(text)}, *_]} | {"message": str(text)}:
            return text
        case _:
            return msgspec.json.encode(error).decode()


def decision_from_wire(fields: Json, at: str) -> Decision:
    """The decision that a `mcp_approval_response` is, the item itself in `native`."""
    approve = opt_bool(fields, "approve", at=at)
    if approve is None:
        approve = opt_bool(fields, "approved", at=at)
    if approve is None:
        param = path(at, "approve")
        raise InvalidRequest(
            f"{param!r} is missing; expected true or false.", param=param, code="missing_required_parameter"
        )
    return Decision(
        approval_id=need_str(fields, "approval_request_id", at=at),
        decision="approved" if approve else "denied",
        reason=opt_str(fields, "reason", at=at),
        native=fields,
    )


def named(items: list[Item]) -> list[Item]:
    """`items` with the ids `in1`, `in2` ... that the items of a turn have."""
    return [msgspec.structs.replace(item, item_id=f"in{n}") for n, item in enumerate(items, 1)]
