"""Ids on this wire and what they stand for.

A response is one leg of a run and an item one item of it, so both ids are made from ours and lead back to them. Nothing is
looked up: where an id can be read in two ways, both readings are given, the likelier first.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, assert_never

from runstone.core.items import ApprovalItem, FileItem, Item, Message, Reasoning, ToolCall, ToolResult

_RESPONSE: Final = "resp_"
_LEG: Final = re.compile(r"(.+)_([1-9][0-9]{0,5})")
_ITEM: Final = re.compile(r"(?:msg|rs|fc|fco|mcp)_(.+)_([^_]+)")
_ESCAPES: Final = (("~", "~0"), ("_", "~1"), ("/", "~2"))
_APPROVAL_RESPONSE: Final = "mcpa_"


class LegRef(NamedTuple):
    """A leg of a run."""

    run_id: str
    leg: int


class ItemRef(NamedTuple):
    """An item of a run, or with `run_id` None one that a client put there, or an approval."""

    run_id: str | None
    item_id: str


def response_id(run_id: str, leg: int = 0) -> str:
    """The id of the response that leg `leg` of the run is."""
    return f"{_RESPONSE}{run_id}_{leg}" if leg else f"{_RESPONSE}{run_id}"


def legs_from_response_id(id: str) -> list[LegRef]:
    """What `id` may stand for, in the order to try; empty when it is no response id.

    A client may have chosen a run id that ends like a leg (`job_2`), so the first leg of the whole id comes first.
    """
    run_id = id.removeprefix(_RESPONSE)
    if run_id == id or not run_id:
        return []
    match = _LEG.fullmatch(run_id)
    return [LegRef(run_id, 0)] + ([LegRef(match[1], int(match[2]))] if match else [])


def item_id_of(run_id: str | None, item: Item) -> str:
    """The id of `item` on the wire: that of its run and its own, or just its own when no run made it.

    A server-run call and its result are one `mcp_call` on the wire; that has the id of the result.
    """
    if isinstance(item, ApprovalItem):
        return item.approval_id
    return item.item_id if run_id is None else wire_item_id(prefix_of(item), run_id, item.item_id)


def wire_item_id(prefix: str, run_id: str, item_id: str) -> str:
    """`<prefix>_<run>_<item>`; underscores of the item's id are escaped, so that the last one divides."""
    if "_" in item_id or "~" in item_id or "/" in item_id:
        for plain, escape in _ESCAPES:
            item_id = item_id.replace(plain, escape)
    return f"{prefix}_{run_id}_{item_id}"


def prefix_of(item: Item) -> str:
    """The first word of the id of `item`."""
    match item:
        case Message() | FileItem():
            return "msg"
        case Reasoning():
            return "rs"
        case ToolCall():
            return "fc"
        case ToolResult():
            return "mcp" if item.executor == "server" else "fco"
        case ApprovalItem():
            return "mcpr"
        case _:
            assert_never(item)


def refs_from_item_id(id: str) -> list[ItemRef]:
    """What `id` may stand for, in the order to try: an item of a client or an approval, then an item of a run."""
    match = _ITEM.fullmatch(id)
    own = ItemRef(None, id.removeprefix(_APPROVAL_RESPONSE))
    if match is None:
        return [own]
    item_id = match[2]
    for plain, escape in reversed(_ESCAPES):
        item_id = item_id.replace(escape, plain)
    return [own, ItemRef(match[1], item_id)]


def approval_response_id(approval_id: str) -> str:
    """The id of the item that shows the decision of an approval."""
    return f"{_APPROVAL_RESPONSE}{approval_id}"
