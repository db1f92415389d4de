"""Sessions and their messages as Hermes has them. docs/protocols/hermes.md says what each field means."""

from __future__ import annotations

import functools
from typing import Any, Final

import msgspec

from runstone.core.ids import checked_session_id
from runstone.core.runs import Run, Session
from runstone.core.transcript import HistoryRow, Page
from runstone.errors import Conflict, NotFound
from runstone.protocols.hermes.errors import error_body
from runstone.protocols.hermes.history import messages_page, place_of, rows_of
from runstone.protocols.hermes.objects import (
    SessionFacts,
    deleted,
    facts_of,
    listed_session,
    preview_of,
    session_body,
    session_object,
    sessions_page,
)
from runstone.protocols.hermes.sessions import (
    MessagesQuery,
    SessionsQuery,
    fork_from_body,
    matches,
    messages_query,
    patch_from_body,
    patched,
    session_from_body,
    sessions_query,
    title_taken,
)
from runstone.server.calls import Call
from runstone.server.errors import JsonResponse
from runstone.server.routing import Route
from runstone.server.runs import StoredBytes

#: Rows of a session that are counted for its `message_count`; longer ones are not counted.
_COUNTED_ROWS: Final = 1_000
_PAGE: Final = 200


async def session_of(call: Call) -> Session:
    """The session in the path.

    Raises:
        NotFound: the owner has no such session.
    """
    id = call.params["session_id"]
    return await call.engine.directory.get(call.owner, checked_session_id(id))


async def head_of(call: Call, session: Session) -> Run | None:
    """The newest run of the session's chain, as it is now."""
    if session.head is None:
        return None
    try:
        return await call.engine.durable_run(call.owner, session.head)
    except NotFound:
        # Deleted since the session was read.
        return None


async def _shown(call: Call, session: Session) -> dict[str, Any]:
    """One session with its counts, when it is not too long to count."""
    rows = await call.engine.store.rows(call.owner, session.id, limit=_COUNTED_ROWS + 1, after=(0, -1))
    is_whole = len(rows) <= _COUNTED_ROWS
    facts = facts_of(rows, session.id) if is_whole else SessionFacts(preview=preview_of(rows))
    return session_body(session_object(session, await head_of(call, session), facts))


async def create(call: Call) -> JsonResponse:
    """A new session; its id may be the client's."""
    new = session_from_body(await call.optional_json())
    try:
        session = await call.engine.directory.create(
            call.owner,
            session_id=new.id,
            agent=new.model if new.model in call.engine.agents else None,
            title=new.title,
            metadata=new.metadata,
        )
    except Conflict as e:
        raise await _title_taken(call, e, new.title) from e
    return JsonResponse(await _shown(call, session), status=201)


async def _title_taken(call: Call, error: Conflict, title: str | None) -> Exception:
    """Hermes says with the code of a wrong request that a title is taken, and by which session."""
    if error.code != "invalid_title" or title is None:
        return error
    found = await call.engine.store.sessions(call.owner, limit=_PAGE, search=title)
    return title_taken(title, next((session.id for session in found if session.title == title), ""))


async def list_sessions(call: Call) -> JsonResponse:
    """A page of the sessions, newest activity first."""
    query = sessions_query(call.request.query_params)
    sessions = await _matching(call, query)
    shown = sessions[query.offset : query.offset + query.limit]
    wires = [listed_session(session, await head_of(call, session), await _facts(call, session)) for session in shown]
    has_more = len(sessions) > query.offset + query.limit
    return JsonResponse(sessions_page(wires, limit=query.limit, offset=query.offset, has_more=has_more))


async def _matching(call: Call, query: SessionsQuery) -> list[Session]:
    """The sessions that the query asks for, up to one more than it shows."""
    wanted, offset = query.offset + query.limit + 1, 0
    found: list[Session] = []
    while len(found) < wanted:
        page = await call.engine.store.sessions(
            call.owner, limit=_PAGE, offset=offset, search=query.search or query.title
        )
        found += [session for session in page if matches(session, query)]
        if len(page) < _PAGE:
            break
        offset += _PAGE
    return found[:wanted]


async def _facts(call: Call, session: Session) -> SessionFacts:
    rows = await call.engine.store.rows(call.owner, session.id, limit=2, after=(0, -1))
    return SessionFacts(preview=preview_of(rows))


async def retrieve(call: Call) -> JsonResponse:
    """One session."""
    return JsonResponse(await _shown(call, await session_of(call)))


async def update(call: Call) -> JsonResponse:
    """The session with another title, metadata or flags."""
    session = await session_of(call)
    patch = patch_from_body(await call.json())
    now = call.engine.clock()
    try:
        session = await call.engine.directory.change(
            call.owner, session.id, lambda before: patched(before, patch, now=now)
        )
    except Conflict as e:
        raise await _title_taken(call, e, patch.title) from e
    return JsonResponse(await _shown(call, session))


async def delete(call: Call) -> JsonResponse:
    """Delete it with its runs; refused while one is active, unless `stop=true`."""
    session = await session_of(call)
    await call.engine.directory.delete(call.owner, session.id, stop=call.flag("stop"))
    return JsonResponse(deleted(session.id))


async def fork(call: Call) -> JsonResponse:
    """A new session that begins as a copy of this one, whole or up to a message."""
    session = await session_of(call)
    new = fork_from_body(await call.optional_json())
    until = None if new.until is None else await _end_of_message(call, session, new.until)
    try:
        copy = await call.engine.directory.fork(call.owner, session.id, until=until, new_id=new.id, title=new.title)
    except Conflict as e:
        raise await _title_taken(call, e, new.title) from e
    return JsonResponse(await _shown(call, copy), status=201)


async def _end_of_message(call: Call, session: Session, id: int) -> tuple[int, int]:
    """The place of the last item of a message: what one step said is several items.

    Raises:
        NotFound: the session shows no such message.
    """
    rows = await call.engine.store.chain_rows(call.owner, session.id, session.head)
    ids = [row["id"] for row in rows_of(rows, session.id)]
    if id not in ids:
        raise NotFound("message", str(id))
    following = [other for other in ids if other > id]
    end = place_of(min(following)) if following else None
    places = [(row.position, row.ordinal) for row in rows]
    return max(place for place in places if end is None or place < end)


async def messages(call: Call) -> JsonResponse:
    """A page of the session's history."""
    session = await session_of(call)
    query = messages_query(call.request.query_params)
    page = await call.engine.history(call.owner, session.id, before=query.before, limit=query.items)
    is_cut = False
    if query.order == "oldest":
        page, is_cut = await _forward(call, session, query, page)
    stored = StoredBytes(call.engine, call.owner)
    await stored.fetch([*(row.item for row in page.rows), *page.open_items])
    session = await session_of(call)
    head = await head_of(call, session)
    return JsonResponse(messages_page(page, session, head, query, is_cut=is_cut, blobs=stored))


async def _forward(call: Call, session: Session, query: MessagesQuery, newest: Page) -> tuple[Page, bool]:
    """The page from the query's place on, and whether newer rows follow it. `newest` is the session's last page."""
    start = query.start or (0, 0)
    first = (newest.rows[0].position, newest.rows[0].ordinal) if newest.rows else start
    if not newest.has_more or start >= first:
        rows = [row for row in newest.rows if (row.position, row.ordinal) >= start]
        has_older = newest.has_more or len(rows) < len(newest.rows)
        return msgspec.structs.replace(newest, rows=rows, before="older" if has_older else None), False
    rows = await call.engine.store.rows(call.owner, session.id, limit=query.items, after=(start[0], start[1] - 1))
    runs = [await call.engine.run(call.owner, id) for id in _run_ids(rows)]
    return Page(rows=rows, runs=runs, before="older" if query.start else None), True


def _run_ids(rows: list[HistoryRow]) -> list[str]:
    return list(dict.fromkeys(row.run_id for row in rows if row.run_id is not None))


_ONE: Final = "/api/sessions/{session_id}"
ROUTES: Final = [
    Route(method="POST", path="/api/sessions", handler=create, errors=error_body),
    Route(method="GET", path="/api/sessions", handler=list_sessions, errors=error_body),
    Route(method="GET", path=_ONE, handler=retrieve, errors=error_body),
    Route(method="PATCH", path=_ONE, handler=update, errors=error_body),
    Route(method="DELETE", path=_ONE, handler=delete, errors=functools.partial(error_body, verb="delete")),
    Route(method="POST", path=f"{_ONE}/fork", handler=fork, errors=error_body),
    Route(method="GET", path=f"{_ONE}/messages", handler=messages, errors=error_body),
]
