"""Turns of a session as Hermes starts them: one body, or a stream that can be read on."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from runstone.core.ids import checked_run_id
from runstone.errors import InvalidRequest, NotFound
from runstone.protocols.base import Cursor
from runstone.protocols.hermes.encode import Answer
from runstone.protocols.hermes.errors import error_body, failure_of
from runstone.protocols.hermes.request import turn_from_chat
from runstone.server.calls import RUN_ID, Call
from runstone.server.errors import JsonResponse
from runstone.server.hermes import (
    LAST_EVENT_ID,
    accepted,
    headers_of,
    place_of,
    prepared,
    read_on,
    session_words,
    stream_of,
)
from runstone.server.routes.hermes_sessions import session_of
from runstone.server.routing import Route
from runstone.server.runs import begin, followed, header_of


async def chat(call: Call) -> Response:
    """One turn, and its answer as a body."""
    session = await session_of(call)
    request = turn_from_chat(await call.json(), session.id)
    started = await begin(call, prepared(call, request.start, session))
    if request.accepted_only:
        return accepted(started)
    answer = Answer(header_of(started.run, 0))
    reader = await call.engine.reader(call.owner, started.run.id)
    await followed(call, started, reader, answer.feed, answer)
    headers = headers_of(started)
    if answer.ended is not None and answer.ended.outcome != "completed":
        failed = error_body(failure_of(answer.ended))
        return JsonResponse(failed.body, status=failed.status, headers={**failed.headers, **headers})
    return JsonResponse(answer.body(), headers=headers)


async def chat_stream(call: Call) -> Response:
    """One turn as a stream. With `Last-Event-ID`, the rest of the stream of the run that the request names."""
    session = await session_of(call)
    request = turn_from_chat(await call.json(), session.id)
    start = prepared(call, request.start, session)
    place = place_of(call)
    if call.request.headers.get(LAST_EVENT_ID):
        if start.run_id is None and start.idempotency_key is None:
            raise InvalidRequest(
                f"Last-Event-ID goes on with a run: name it (run_id, {RUN_ID} or Idempotency-Key), or use GET.",
                param=LAST_EVENT_ID,
            )
        if start.run_id is not None:
            await call.engine.run(call.owner, start.run_id)
    started = await begin(call, start)
    if request.accepted_only:
        return accepted(started)
    if started.after and place == Cursor(0):
        place = Cursor(started.after)
    return await stream_of(call, started, session_words, place)


async def read_stream(call: Call) -> Response:
    """A turn's stream again, from the start or after `Last-Event-ID`: of `run_id`, else of the session's newest run."""
    session = await session_of(call)
    run_id = call.request.query_params.get("run_id") or session.head
    if run_id is None:
        raise NotFound("run", "the newest")
    run = await call.engine.run(call.owner, checked_run_id(run_id))
    if run.session_id != session.id:
        raise NotFound("run", run_id)
    return await read_on(call, run, session_words, place_of(call))


_CHAT: Final = "/api/sessions/{session_id}/chat"
ROUTES: Final = [
    Route(method="POST", path=_CHAT, handler=chat, errors=error_body),
    Route(method="POST", path=f"{_CHAT}/stream", handler=chat_stream, errors=error_body),
    Route(method="GET", path=f"{_CHAT}/stream", handler=read_stream, errors=error_body),
]
