"""Chat Completions: start, resume, read again; history. docs/protocols/chat.md says what each field means."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.responses import Response

from runstone.core.commands import Start
from runstone.core.ids import checked_run_id, checked_session_id
from runstone.core.runs import Run
from runstone.engine.engine import Started
from runstone.errors import InvalidRequest, NotFound
from runstone.protocols.base import Cursor, Header, cursor_from_text
from runstone.protocols.chat.encode import Answer, Encoder, echo_of
from runstone.protocols.chat.errors import error_body, failure_of
from runstone.protocols.chat.history import history_page
from runstone.protocols.chat.request import start_from_chat
from runstone.server.calls import DIALECT, RUN_ID, Call
from runstone.server.errors import JsonResponse
from runstone.server.routing import Route
from runstone.server.runs import (
    StoredBytes,
    begin,
    followed,
    header_of,
    leg_after,
    logged,
    marked,
    stop_with_connection,
)
from runstone.server.session_header import session_header, session_of_header
from runstone.server.streaming import EventStream

_PREFIX: Final = "chatcmpl-"
_LAST_EVENT_ID: Final = "last-event-id"
_MAX_PAGE: Final = 200


async def create(call: Call) -> Response:
    """Start a turn, or attach to the run that an equal request started."""
    body = await call.json()
    request = start_from_chat(_with_headers(call, body))
    start = call.started(request.start)
    cursor = _cursor(call)
    if cursor is not None:
        await _check_resumable(call, start)
    started = await begin(call, start)
    header = header_of(started.run, started.leg_index)
    if request.stream:
        return marked(await _stream(call, started, header, cursor), started)
    return marked(await _whole(call, started, header), started)


def _with_headers(call: Call, body: dict[str, Any]) -> dict[str, Any]:
    """The body, with the dialect that a header or the settings choose and the session that a client of Hermes names."""
    word = call.request.headers.get(DIALECT)
    if word is None and call.config.chat.dialect != "openai":
        word = call.config.chat.dialect
    session_id = session_of_header(call.request)
    said = {"dialect": word, "session_id": session_id}
    return {**{name: value for name, value in said.items() if value is not None}, **body}


def _cursor(call: Call) -> Cursor | None:
    """The place that the client has reached; None when it has none. An empty header is a cursor that nobody gave."""
    text = call.request.headers.get(_LAST_EVENT_ID)
    return None if text is None else cursor_from_text(text)


async def _check_resumable(call: Call, start: Start) -> None:
    if start.run_id is None:
        raise InvalidRequest(
            "Last-Event-ID resumes a run, so the run has to be named (Runstone-Run-Id); or use GET "
            "/v1/chat/completions/{id}?stream=true.",
            param=_LAST_EVENT_ID,
        )
    await call.engine.run(call.owner, start.run_id)


async def _stream(call: Call, started: Started, header: Header, cursor: Cursor | None) -> EventStream:
    run, after = started.run, cursor.seq if cursor is not None else 0
    reader = await call.engine.reader(call.owner, run.id, after=after)
    reader.cursor = 0
    echo = echo_of(header)
    stream = EventStream(
        reader,
        Encoder(header, include_usage=echo.include_usage, dialect=echo.dialect),
        run_id=run.id,
        ping_after=call.config.server.ping_after,
        headers={RUN_ID: run.id, **session_header(run.session_id)},
        on_gone=lambda: stop_with_connection(call, started),
    )
    if cursor is not None:
        try:
            await stream.skip_to(cursor)
        except BaseException:
            stream.close()
            raise
    return stream


async def _whole(call: Call, started: Started, header: Header) -> JsonResponse:
    """The answer as one body, when the run has ended or waits."""
    answer = Answer(header)
    reader = await call.engine.reader(call.owner, started.run.id)
    await followed(call, started, reader, answer.feed, answer)
    return _answered(answer, started.run)


def _answered(answer: Answer, run: Run) -> JsonResponse:
    named = {RUN_ID: run.id, **session_header(run.session_id)}
    if answer.ended is not None and answer.ended.outcome != "completed":
        failed = error_body(failure_of(answer.ended))
        return JsonResponse(failed.body, status=failed.status, headers={**failed.headers, **named})
    return JsonResponse(answer.body(), headers=named)


async def retrieve(call: Call) -> Response:
    """A completion again: its stream from the start or from `Last-Event-ID`, or its body, when there is one."""
    run = await _run(call)
    cursor = _cursor(call)
    leg = leg_after(run, cursor.seq if cursor is not None else 0)
    started = Started(run=run, leg_index=leg, attached=True)
    if call.flag("stream"):
        return await _stream(call, started, header_of(run, leg), cursor)
    newest = len(run.legs) - 1
    header = header_of(run, newest)
    if run.is_active:
        return await _whole(call, Started(run=run, leg_index=newest, attached=True), header)
    answer = Answer(header)
    await logged(call, run, answer.feed, answer)
    return _answered(answer, run)


async def _run(call: Call) -> Run:
    """The run behind the id in the path, which is that of a completion or of the run itself.

    Raises:
        NotFound: the owner has none of that id, or nothing of it was kept.
    """
    id = call.params["id"]
    run_id = checked_run_id(id.removeprefix(_PREFIX), param="id")
    try:
        run = await call.engine.run(call.owner, run_id)
    except NotFound as e:
        raise NotFound("completion", id) from e
    if not run.legs:
        raise NotFound("completion", id)
    return run


async def messages(call: Call) -> JsonResponse:
    """A page of a session's history: the newest messages, or those before the cursor `before`."""
    session_id = checked_session_id(call.params["session_id"])
    limit = call.number("limit", default=50, most=_MAX_PAGE)
    session = await call.engine.directory.get(call.owner, session_id)
    page = await call.engine.history(
        call.owner, session_id, before=call.request.query_params.get("before"), limit=limit
    )
    head = None if session.head is None else await call.engine.run(call.owner, session.head)
    stored = StoredBytes(call.engine, call.owner)
    await stored.fetch([*(row.item for row in page.rows), *page.open_items])
    return JsonResponse(msgspec.to_builtins(history_page(page, session, head, blobs=stored)))


ROUTES: Final = [
    Route(method="POST", path="/v1/chat/completions", handler=create, errors=error_body),
    Route(method="GET", path="/v1/chat/completions/{id}", handler=retrieve, errors=error_body),
    Route(method="GET", path="/v1/chat/sessions/{session_id}/messages", handler=messages, errors=error_body),
]
