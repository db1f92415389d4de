"""Items that a client names by their id on the wire."""

from __future__ import annotations

from runstone.core.commands import Start
from runstone.core.items import ApprovalItem, Item, ToolCall, ToolResult
from runstone.core.transcript import HistoryRow
from runstone.errors import NotFound
from runstone.protocols.responses.history import calls_missing
from runstone.protocols.responses.ids import refs_from_item_id
from runstone.protocols.responses.input import Reference
from runstone.server.calls import Call


async def row_of(call: Call, session_id: str, id: str) -> HistoryRow | None:
    """The row of the session that an item's id stands for, None when there is none."""
    for ref in refs_from_item_id(id):
        row = await call.engine.store.row(call.owner, session_id, run_id=ref.run_id, item_id=ref.item_id)
        if row is not None:
            return row
    return None


async def calls_of(call: Call, rows: list[HistoryRow]) -> list[Item]:
    """The items of the runs that have the calls of results among `rows`, where `rows` do not have them."""
    known: list[Item] = []
    for run_id in sorted(calls_missing(rows)):
        known += [row.item for row in await call.engine.store.run_rows(call.owner, run_id)]
    return known


async def row_of_call(call: Call, row: HistoryRow) -> HistoryRow | None:
    """The row of the call that a row's result answers: a server-run call and its result are one item on the wire."""
    result = row.item
    if row.run_id is None or not isinstance(result, ToolResult):
        return None
    rows = await call.engine.store.run_rows(call.owner, row.run_id)
    return next((r for r in rows if isinstance(r.item, ToolCall) and r.item.call_id == result.call_id), None)


async def referenced_items(call: Call, references: list[Reference], start: Start) -> dict[str, list[Item]]:
    """The items that a request names instead of repeating them, by their id.

    Raises:
        NotFound: the owner has no such item.
    """
    found: dict[str, list[Item]] = {}
    for reference in references:
        row = await _referenced(call, reference.id, start)
        if row is None:
            raise NotFound("item", reference.id, param="input")
        before = await row_of_call(call, row)
        # A question says nothing to the agent, as when it is repeated in full.
        shown: list[Item] = [] if isinstance(row.item, ApprovalItem) else [row.item]
        found[reference.id] = shown if before is None else [before.item, *shown]
    return found


async def _referenced(call: Call, id: str, start: Start) -> HistoryRow | None:
    """A run's item is found by its run; one that a client put somewhere, only in the session of the request."""
    store, owner = call.engine.store, call.owner
    for ref in refs_from_item_id(id):
        session_id = start.session_id
        named = ref.run_id or start.continues
        if named is not None and (run := await store.run(owner, named)) is not None and run.store:
            session_id = run.session_id
        if session_id is None:
            continue
        row = await store.row(owner, session_id, run_id=ref.run_id, item_id=ref.item_id)
        if row is not None:
            return row
    return None
