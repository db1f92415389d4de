"""Rows of a session as items of the wire, page by page, and a client's items as ours.

Rule: an item has the same id and the same fields here as in the output of its response. A server-run call and its result are
two rows and, as `mcp_call`, one item: that of the result. Items are listed newest first unless asked otherwise.
Source: OpenAI API reference, "List input items", "Conversations".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from runstone.core.events import ApprovalDecided, ApprovalRequested, Event, RunContinued, RunCreated, RunEnded
from runstone.core.items import ApprovalItem, FileItem, Item, Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import Session
from runstone.core.transcript import HistoryRow, approval_item
from runstone.errors import InvalidRequest, LimitExceeded, NotFound
from runstone.protocols.base import Header
from runstone.protocols.fields import need_list, need_object, opt_object
from runstone.protocols.parts import Blobs, json_text
from runstone.protocols.responses.ids import approval_response_id, item_id_of, prefix_of, wire_item_id
from runstone.protocols.responses.input import input_from_wire
from runstone.protocols.responses.items import (
    approval_request_item,
    approval_response_item,
    file_item,
    function_call_item,
    function_output_item,
    mcp_result_item,
    message_item,
    reasoning_item,
)
from runstone.protocols.responses.types import (
    ConversationObject,
    DeletedObject,
    ItemList,
    OutputItem,
    Style,
)

Order = Literal["asc", "desc"]
MAX_ITEMS: Final = 20
MAX_LIMIT: Final = 100
#: Rows to read for a page of `limit` items: two rows may be one item, and one more says whether there are more.
ROWS_PER_ITEM: Final = 2


# -- ours to wire


class Shower:
    """Shows items of a session in order. `known`: items before them, which may hold the call of a result."""

    def __init__(self, *, style: Style, blobs: Blobs, known: Iterable[Item] = ()) -> None:
        self._style = style
        self._blobs = blobs
        self._calls: dict[str, ToolCall] = {}
        self._approvals: dict[str, ApprovalItem] = {}
        for item in known:
            self.note(item)

    def note(self, item: Item) -> None:
        """Remember what a later item may need."""
        if isinstance(item, ToolCall):
            self._calls[item.call_id] = item
        elif isinstance(item, ApprovalItem) and item.call_id is not None and item.decision is not None:
            self._approvals[item.call_id] = item

    def show(self, run_id: str | None, item: Item) -> list[OutputItem]:
        """What the wire has for `item`: nothing, one item, or for a decided approval two."""
        self.note(item)
        id = item_id_of(run_id, item)
        match item:
            case Message():
                return [message_item(id, item, self._blobs)]
            case FileItem():
                return [file_item(id, item, self._blobs)]
            case Reasoning():
                return [reasoning_item(id, item, self._style)]
            case ToolCall():
                is_shown = item.executor == "client" or self._style.tools == "function_pair"
                return [function_call_item(id, item)] if is_shown else []
            case ToolResult():
                return self._result(id, run_id, item)
            case ApprovalItem():
                answer = approval_response_item(item)
                return [approval_request_item(item), *([] if answer is None else [answer])]

    def _result(self, id: str, run_id: str | None, result: ToolResult) -> list[OutputItem]:
        call = self._calls.get(result.call_id)
        executor = result.executor if call is None else call.executor
        name = result.name or (call.name if call else None)
        if executor == "client":
            return [function_output_item(id, result, self._blobs)]
        match self._style.tools:
            case "hidden":
                return []
            case "function_pair":
                own = id if run_id is None else wire_item_id("fco", run_id, result.item_id)
                return [function_output_item(own, result, self._blobs, name=name)]
            case "mcp_call":
                asked = self._approvals.get(result.call_id)
                ran = call or ToolCall(item_id="", call_id=result.call_id, name=name or "", arguments="")
                if asked is not None and asked.arguments is not None:
                    ran = msgspec.structs.replace(ran, arguments=asked.arguments)
                approval_id = None if asked is None else asked.approval_id
                return [mcp_result_item(id, ran, result, self._blobs, approval_id)]


def calls_missing(rows: Iterable[HistoryRow]) -> set[str]:
    """Ids of the runs whose results are among `rows` and whose calls are not: their rows are to be given as `known`."""
    there = {row.item.call_id for row in rows if isinstance(row.item, ToolCall)}
    return {
        row.run_id
        for row in rows
        if row.run_id is not None and isinstance(row.item, ToolResult) and row.item.call_id not in there
    }


def items_from_rows(
    rows: Iterable[HistoryRow], *, style: Style | None = None, blobs: Blobs | None = None, known: Iterable[Item] = ()
) -> list[OutputItem]:
    """The items of `rows`, which are oldest first, in their order."""
    shower = Shower(style=style or Style(), blobs=blobs or {}, known=known)
    return [item for row in rows for item in shower.show(row.run_id, row.item)]


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which page of items is wanted."""

    limit: int = 20
    order: Order = "desc"
    after: str | None = None

    @property
    def rows(self) -> int:
        """How many rows to read for it."""
        return ROWS_PER_ITEM * self.limit + 1


def page_query(params: Mapping[str, str]) -> PageQuery:
    """The page that the query of a list route asks for.

    Raises:
        InvalidRequest: `limit` is not 1 to 100, or `order` not `asc` or `desc`.
    """
    limit, order = params.get("limit", "20"), params.get("order", "desc")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= MAX_LIMIT):
        raise InvalidRequest(f"'limit' is {limit[:80]!r}; expected 1 to {MAX_LIMIT}.", param="limit")
    match order:
        case "asc" | "desc":
            return PageQuery(limit=int(limit), order=order, after=params.get("after"))
        case _:
            raise InvalidRequest(f"'order' is {order[:80]!r}; expected 'asc' or 'desc'.", param="order")


def items_page(
    rows: Sequence[HistoryRow],
    query: PageQuery,
    *,
    has_more_rows: bool,
    style: Style | None = None,
    blobs: Blobs | None = None,
    known: Iterable[Item] = (),
) -> ItemList:
    """A page of a conversation's items, from `rows` (oldest first) next to the cursor in the order of `query`.

    The items of a row are never divided, since the cursor after it is the row's.
    """
    shower = Shower(style=style or Style(), blobs=blobs or {}, known=known)
    shown = [shower.show(row.run_id, row.item) for row in rows]
    if query.order == "desc":
        shown = [items[::-1] for items in reversed(shown)]
    taken: list[OutputItem] = []
    for n, items in enumerate(shown):
        if taken and len(taken) + len(items) > query.limit:
            rest = any(shown[n:])
            return item_list(taken, has_more=rest or has_more_rows)
        taken += items
    return item_list(taken, has_more=has_more_rows)


def page_of(items: Sequence[OutputItem], query: PageQuery) -> ItemList:
    """A page of `items`, all there are, oldest first.

    Raises:
        NotFound: `after` is none of them.
    """
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    start = 0
    if query.after is not None:
        ids = [item["id"] for item in ordered]
        if query.after not in ids:
            raise NotFound("item", query.after, param="after")
        start = ids.index(query.after) + 1
    rest = ordered[start:]
    return item_list(rest[: query.limit], has_more=len(rest) > query.limit)


def item_list(items: list[OutputItem], *, has_more: bool = False) -> ItemList:
    """The list object. The ids of an empty one are empty: the official clients want texts there."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else ("", "")
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more}


def input_items(
    header: Header, events: Iterable[Event], *, style: Style | None = None, blobs: Blobs | None = None
) -> list[OutputItem]:
    """The input of the leg, oldest first: that of the run, or the decisions that a later leg began with.

    `events` begin with the run's first; deltas may be missing.
    """
    run_id, first_seq = header.run.id, header.leg.first_seq
    shower = Shower(style=style or Style(), blobs=blobs or {})
    asked: dict[str, ApprovalRequested] = {}
    found: list[OutputItem] = []
    for event in events:
        match event.body:
            case RunCreated(input=items) if header.leg_index == 0:
                return [shown for item in items for shown in shower.show(run_id, item)]
            case ApprovalRequested(approval_id=id):
                asked[id] = event.body
            case ApprovalDecided(approval_id=id) if event.seq >= first_seq and id in asked:
                found += _decision(asked[id], event.body)
            case RunContinued() | RunEnded() if event.seq >= first_seq:
                break
    return found


def _decision(asked: ApprovalRequested, decided: ApprovalDecided) -> list[OutputItem]:
    """An answer to a call is shown as its output, any other decision as a response."""
    if decided.decision == "answered" and asked.call_id is not None:
        value = decided.value
        return [
            {
                "type": "function_call_output",
                "id": approval_response_id(asked.approval_id),
                "call_id": asked.call_id,
                "output": value if isinstance(value, str) else json_text(value),
                "status": "completed",
            }
        ]
    answer = approval_response_item(approval_item(asked, decided))
    return [] if answer is None else [answer]


def conversation_object(session: Session) -> ConversationObject:
    """A session as a conversation."""
    return {
        "id": session.id,
        "object": "conversation",
        "created_at": int(session.created_at),
        "metadata": session.metadata,
    }


def deleted_conversation(id: str) -> DeletedObject:
    """The answer to deleting a conversation."""
    return {"id": id, "object": "conversation.deleted", "deleted": True}


def deleted_response(id: str) -> DeletedObject:
    """The answer to deleting a response."""
    return {"id": id, "object": "response", "deleted": True}


# -- wire to ours


class NewConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What a client wants in a new conversation."""

    metadata: dict[str, Any] = {}
    items: list[Item] = []


def conversation_from_wire(body: object, make_id: Callable[[], str]) -> NewConversation:
    """The conversation that the body of a create asks for; `make_id` gives a new word without underscores each time.

    Raises:
        InvalidRequest: metadata is no object, or an item is malformed.
        LimitExceeded: there are more than 20 items.
    """
    fields = need_object(body, "")
    items = rows_from_items(fields["items"], make_id) if fields.get("items") is not None else []
    return NewConversation(metadata=opt_object(fields, "metadata") or {}, items=items)


def metadata_from_wire(body: object) -> dict[str, Any]:
    """The metadata that the body of an update sets.

    Raises:
        InvalidRequest: it is missing or no object.
    """
    fields = need_object(body, "")
    metadata = opt_object(fields, "metadata")
    if metadata is None:
        raise InvalidRequest("'metadata' is missing.", param="metadata", code="missing_required_parameter")
    return metadata


def items_from_body(body: object, make_id: Callable[[], str]) -> list[Item]:
    """The items that the body of an item create brings."""
    fields = need_object(body, "")
    if "items" not in fields:
        raise InvalidRequest("'items' is missing.", param="items", code="missing_required_parameter")
    return rows_from_items(fields["items"], make_id)


def rows_from_items(value: object, make_id: Callable[[], str]) -> list[Item]:
    """A client's items, each with a new id of its kind.

    Raises:
        InvalidRequest: one is malformed, or is no item of a conversation (a decision, a reference).
        LimitExceeded: there are more than 20.
    """
    values = need_list(value, "items")
    if len(values) > MAX_ITEMS:
        raise LimitExceeded(
            f"'items' has {len(values)} items; at most {MAX_ITEMS} are taken at once.", limit="items", value=MAX_ITEMS
        )
    said = input_from_wire(values, "items")
    if said.decisions or said.references:
        raise InvalidRequest("'items' has a decision or a reference; send those to a response.", param="items")
    return [msgspec.structs.replace(item, item_id=f"{prefix_of(item)}_{make_id()}") for item in said.items]
