"""Everything that happens in a session, apart from any one request: `/api/sessions/{id}/events`, SSE and WebSocket."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from runstone.errors import Unsupported
from runstone.protocols.base import Header
from runstone.protocols.chat.encode import Encoder as ChatEncoder
from runstone.protocols.chat.encode import echo_of
from runstone.protocols.hermes.errors import error_body
from runstone.protocols.native.encode import MakeEncoder
from runstone.protocols.native.request import Subscription, subscription_from_query
from runstone.server.calls import Call
from runstone.server.hermes import LAST_EVENT_ID, native_words, session_words
from runstone.server.routes.hermes_sessions import session_of
from runstone.server.routing import SOCKET, Route
from runstone.server.session_header import session_header
from runstone.server.subscribing import SUBPROTOCOL, Feed, SessionSocket, SessionStream


def formats(call: Call) -> dict[str, MakeEncoder]:
    """The formats that are served."""

    def chat_words(header: Header) -> ChatEncoder:
        return ChatEncoder(header, include_usage=echo_of(header).include_usage, dialect=call.config.chat.dialect)

    return {"native": native_words, "hermes": session_words, "chat": chat_words}


async def _feed(call: Call) -> Feed:
    """What the request asks to follow.

    Raises:
        NotFound: the owner has no such session.
        CursorUnknown, CursorExpired: the stream cannot begin where the reader is.
        Unsupported: the format is not served.
    """
    session = await session_of(call)
    request = call.request
    wanted = subscription_from_query(request.query_params, request.headers.get(LAST_EVENT_ID))
    make = formats(call).get(wanted.format)
    if make is None:
        raise Unsupported(
            f"The format {wanted.format!r} is not served; expected one of {', '.join(formats(call))}.",
            capability="format",
            param="format",
        )
    reader = await call.engine.session_reader(call.owner, session.id, after=_position(wanted))
    feed = Feed(call.engine, call.owner, reader, make, wanted.cursor)
    try:
        await feed.check_cursor()
    except BaseException:
        feed.close()
        raise
    return feed


def _position(wanted: Subscription) -> int | None:
    """The newest event that the reader has as a whole."""
    cursor = wanted.cursor
    if cursor is None:
        return None
    return cursor.seq if cursor.k is None else max(cursor.seq - 1, 0)


async def stream(call: Call) -> Response:
    """As an event stream."""
    feed = await _feed(call)
    headers = session_header(call.params["session_id"])
    return SessionStream(feed, headers=headers, ping_after=call.config.server.ping_after)


async def socket(call: Call) -> Response:
    """As a WebSocket."""
    scope = call.request.scope
    chosen = SUBPROTOCOL if "subprotocols" in scope and SUBPROTOCOL in scope["subprotocols"] else None
    feed = await _feed(call)
    return SessionSocket(feed, headers=session_header(call.params["session_id"]), subprotocol=chosen)


_PATH: Final = "/api/sessions/{session_id}/events"
ROUTES: Final = [
    Route(method="GET", path=_PATH, handler=stream, errors=error_body),
    Route(method=SOCKET, path=_PATH, handler=socket, errors=error_body),
]
