"""Conversations: sessions by their OpenAI name, and the items in them."""

from __future__ import annotations

from typing import Final

import msgspec

from runstone.core.ids import checked_session_id
from runstone.core.runs import Session
from runstone.core.transcript import HistoryRow
from runstone.errors import NotFound
from runstone.protocols.hermes.sessions import shown_metadata, with_metadata
from runstone.protocols.responses.errors import error_body
from runstone.protocols.responses.history import (
    PageQuery,
    conversation_from_wire,
    conversation_object,
    deleted_conversation,
    item_list,
    items_from_body,
    items_from_rows,
    items_page,
    metadata_from_wire,
    page_query,
)
from runstone.protocols.responses.types import OutputItem
from runstone.server.calls import Call
from runstone.server.errors import JsonResponse
from runstone.server.items import calls_of, row_of, row_of_call
from runstone.server.routes.responses import style_of
from runstone.server.routing import Route
from runstone.server.runs import StoredBytes

#: Rows that are looked through for an item whose id does not say where it is (an approval).
_SEARCHED_ROWS: Final = 1_000


async def create(call: Call) -> JsonResponse:
    """A new conversation, with what the client puts there."""
    new = conversation_from_wire(await call.optional_json(), lambda: call.engine.ids.new("x")[2:])
    session = await call.engine.directory.create(call.owner, metadata=new.metadata, items=new.items, prefix="conv")
    return _object(session)


def _object(session: Session) -> JsonResponse:
    """The conversation without what other surfaces keep in its metadata for themselves."""
    return JsonResponse(conversation_object(msgspec.structs.replace(session, metadata=shown_metadata(session))))


async def _session(call: Call) -> Session:
    id = checked_session_id(call.params["id"], param="conversation_id")
    try:
        return await call.engine.directory.get(call.owner, id)
    except NotFound as e:
        raise NotFound("conversation", id) from e


async def retrieve(call: Call) -> JsonResponse:
    """The conversation."""
    return _object(await _session(call))


async def update(call: Call) -> JsonResponse:
    """The conversation with other metadata."""
    session = await _session(call)
    metadata = metadata_from_wire(await call.json())

    def change(before: Session) -> Session:
        return msgspec.structs.replace(before, metadata=with_metadata(before, metadata))

    return _object(await call.engine.directory.change(call.owner, session.id, change))


async def delete(call: Call) -> JsonResponse:
    """Delete it with its runs and items; a run that is going on is stopped first."""
    session = await _session(call)
    await call.engine.directory.delete(call.owner, session.id, stop=True)
    return JsonResponse(deleted_conversation(session.id))


async def create_items(call: Call) -> JsonResponse:
    """Put items at the end."""
    session = await _session(call)
    items = items_from_body(await call.json(), lambda: call.engine.ids.new("x")[2:])
    rows = await call.engine.directory.add_items(call.owner, session.id, items)
    return JsonResponse(item_list(await _shown(call, rows)))


async def list_items(call: Call) -> JsonResponse:
    """A page of its items."""
    session, query = await _session(call), page_query(call.request.query_params)
    count = query.rows
    while True:
        rows, has_more = await _rows(call, session, query, count)
        stored = StoredBytes(call.engine, call.owner)
        await stored.fetch([row.item for row in rows])
        known = await calls_of(call, rows)
        page = items_page(rows, query, has_more_rows=has_more, style=style_of(call), blobs=stored, known=known)
        if page["data"] or not has_more:
            return JsonResponse(page)
        # All of these rows are shown elsewhere (calls, with their results): look further.
        count = 4 * count


async def _rows(call: Call, session: Session, query: PageQuery, count: int) -> tuple[list[HistoryRow], bool]:
    """`count - 1` rows next to the cursor, oldest first, and whether there are more beyond them.

    Raises:
        NotFound: the cursor is no item of the conversation.
    """
    store, place = call.engine.store, None
    if query.after is not None:
        row = await _find(call, session, query.after)
        place = (row.position, row.ordinal)
    if query.order == "asc":
        rows = await store.rows(call.owner, session.id, limit=count, after=place or (0, -1))
        return rows[: count - 1], len(rows) == count
    rows = await store.rows(call.owner, session.id, limit=count, before=place)
    return rows[-(count - 1) :], len(rows) == count


async def _shown(call: Call, rows: list[HistoryRow]) -> list[OutputItem]:
    stored = StoredBytes(call.engine, call.owner)
    await stored.fetch([row.item for row in rows])
    return items_from_rows(rows, style=style_of(call), blobs=stored, known=await calls_of(call, rows))


async def _find(call: Call, session: Session, id: str) -> HistoryRow:
    """The row behind an item's id.

    Raises:
        NotFound: the conversation has no such item.
    """
    row = await row_of(call, session.id, id)
    if row is not None:
        return row
    for candidate in await call.engine.store.rows(call.owner, session.id, limit=_SEARCHED_ROWS):
        if any(item["id"] == id for item in items_from_rows([candidate], style=style_of(call))):
            return candidate
    raise NotFound("item", id)


async def retrieve_item(call: Call) -> JsonResponse:
    """One item."""
    session, id = await _session(call), call.params["item_id"]
    row = await _find(call, session, id)
    for item in await _shown(call, [row]):
        if item["id"] == id:
            return JsonResponse(item)
    raise NotFound("item", id)


async def delete_item(call: Call) -> JsonResponse:
    """Take one item away, from the agent's view too; the conversation."""
    session = await _session(call)
    row = await _find(call, session, call.params["item_id"])
    answered = await row_of_call(call, row)
    await call.engine.directory.delete_item(call.owner, session.id, row)
    if answered is not None:
        await call.engine.directory.delete_item(call.owner, session.id, answered)
    return _object(session)


_ROOT: Final = "/v1/conversations"
_ITEM: Final = "/v1/conversations/{id}/items/{item_id}"
ROUTES: Final = [
    Route(method="POST", path=_ROOT, handler=create, errors=error_body),
    Route(method="GET", path=f"{_ROOT}/{{id}}", handler=retrieve, errors=error_body),
    Route(method="POST", path=f"{_ROOT}/{{id}}", handler=update, errors=error_body),
    Route(method="DELETE", path=f"{_ROOT}/{{id}}", handler=delete, errors=error_body),
    Route(method="POST", path=f"{_ROOT}/{{id}}/items", handler=create_items, errors=error_body),
    Route(method="GET", path=f"{_ROOT}/{{id}}/items", handler=list_items, errors=error_body),
    Route(method="GET", path=_ITEM, handler=retrieve_item, errors=error_body),
    Route(method="DELETE", path=_ITEM, handler=delete_item, errors=error_body),
]
