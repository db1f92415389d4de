"""Responses: start, read, resume, cancel, delete; input items. docs/protocols/responses.md says what each field means."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, get_args

import msgspec
from starlette.responses import Response

from runstone.core.commands import Start
from runstone.core.events import DELTAS, Event
from runstone.core.runs import Run
from runstone.engine.engine import Started
from runstone.errors import CursorExpired, InvalidRequest, NotFound
from runstone.protocols.base import Header
from runstone.protocols.responses.encode import Encoder
from runstone.protocols.responses.errors import error_body
from runstone.protocols.responses.history import deleted_response, input_items, page_of, page_query
from runstone.protocols.responses.ids import LegRef, legs_from_response_id, response_id
from runstone.protocols.responses.request import ResponsesRequest, start_from_responses, with_referenced
from runstone.protocols.responses.types import Dialect, Style
from runstone.server.calls import DIALECT, RUN_ID, Call
from runstone.server.errors import JsonResponse
from runstone.server.items import referenced_items
from runstone.server.repeated import placed
from runstone.server.routing import Route
from runstone.server.runs import StoredBytes, begin, followed, header_of, input_of, logged, marked, stop_with_connection
from runstone.server.streaming import EventStream

_MAX_SEQUENCE: Final = 10**12
#: `OpenAI/Python 3.57.0`, `ai-sdk/provider-utils/4.0.66`, `ai-sdk-provider-utils/5.0.81`
_OFFICIAL: Final = re.compile(r"^OpenAI/|\bai-sdk[/-]")


def style_of(call: Call) -> Style:
    """How this client wants to see a run: by header, else by setting, else by who it says it is.

    Raises:
        InvalidRequest: the header names no dialect.
    """
    config = call.config.responses
    return Style(dialect=_dialect(call), tools_as=config.tools, reasoning_as=config.reasoning)


def _dialect(call: Call) -> Dialect:
    headers, setting = call.request.headers, call.config.responses.dialect
    word = headers.get(DIALECT, setting)
    match word:
        case "openai" | "ksadk":
            return word
        case "auto":
            return "openai" if is_official_client(call) else "ksadk"
        case _:
            raise InvalidRequest(
                f"{DIALECT} is {word[:80]!r}; expected auto, {', '.join(get_args(Dialect))}.", param=DIALECT
            )


def is_official_client(call: Call) -> bool:
    """Whether the client says that it is an SDK of OpenAI's or Vercel's: those accept official events only."""
    headers = call.request.headers
    agent = headers.get("user-agent", "")
    return _OFFICIAL.search(agent) is not None or any(name.startswith("x-stainless-") for name in headers)


async def create(call: Call) -> Response:
    """Start a turn, answer a waiting run, or attach to the run that an equal request started."""
    request = await placed(call, start_from_responses(await call.json()))
    style = style_of(call)
    start = await _continued(call, call.started(request.start), request)
    if request.references:
        found = await referenced_items(call, request.references, start)
        request = with_referenced(msgspec.structs.replace(request, start=start), found)
        start = request.start
    started = await begin(call, start)
    header = header_of(started.run, started.leg_index)
    if request.stream:
        return marked(await _stream(call, started, header, style, after=-1), started)
    stored = StoredBytes(call.engine, call.owner)
    answer = _encoder(header, style, stored)
    if request.background:
        await logged(call, started.run, _fed(answer), answer, stored)
    else:
        reader = await call.engine.reader(call.owner, started.run.id)
        await followed(call, started, reader, _fed(answer), answer, stored)
    return marked(_shown(answer, started.run, header.leg_index), started)


async def _continued(call: Call, start: Start, request: ResponsesRequest) -> Start:
    """`start` after the run of its `previous_response_id`.

    Raises:
        NotFound: no response of that id was kept.
    """
    if request.previous_response_id is None:
        return start
    run, _ = await _leg(call, request.previous_response_id, request.previous, code="previous_response_not_found")
    return msgspec.structs.replace(start, continues=run.id)


def _encoder(header: Header, style: Style, stored: StoredBytes) -> Encoder:
    return Encoder(
        header, dialect=style.dialect, tools_as=style.tools_as, reasoning_as=style.reasoning_as, blobs=stored
    )


def _fed(encoder: Encoder) -> Callable[[Event], None]:
    """Feeds the encoder for its response's sake only, which needs no deltas."""

    def feed(event: Event) -> None:
        if type(event.body) not in DELTAS:
            encoder.encode(event)

    return feed


def _shown(answer: Encoder, run: Run, leg_index: int) -> JsonResponse:
    body = {**answer.response}
    if leg_index + 1 < len(run.legs):
        body["next_response_id"] = response_id(run.id, leg_index + 1)
    return JsonResponse(body, headers={RUN_ID: run.id})


async def _stream(call: Call, started: Started, header: Header, style: Style, *, after: int) -> EventStream:
    """The leg's stream after the frame numbered `after`."""
    run = started.run
    reader = await call.engine.reader(call.owner, run.id)
    stored = StoredBytes(call.engine, call.owner)
    stream = EventStream(
        reader,
        _encoder(header, style, stored),
        run_id=run.id,
        ping_after=call.config.server.ping_after,
        headers={RUN_ID: run.id},
        prepare=stored.prepare,
        on_gone=lambda: stop_with_connection(call, started),
    )
    try:
        await stream.skip_frames(after + 1)
    except BaseException:
        stream.close()
        raise
    return stream


async def _leg(call: Call, id: str, legs: list[LegRef], *, code: str = "response_not_found") -> tuple[Run, int]:
    """The run and the leg that a response id stands for.

    Raises:
        NotFound: the owner has no such response, or it was not to be kept.
    """
    for ref in legs:
        try:
            run = await call.engine.run(call.owner, ref.run_id)
        except NotFound:
            continue
        if run.store and ref.leg < len(run.legs):
            return run, ref.leg
    param = "previous_response_id" if code == "previous_response_not_found" else None
    raise NotFound("response", id, param=param, code=code)


async def _named(call: Call) -> tuple[Run, int]:
    id = call.params["id"]
    return await _leg(call, id, legs_from_response_id(id))


async def retrieve(call: Call) -> Response:
    """The response as it stands, or with `stream=true` its events after `starting_after`."""
    run, leg = await _named(call)
    style = style_of(call)
    after = call.number("starting_after", default=-1, least=0, most=_MAX_SEQUENCE)
    header = header_of(run, leg)
    if call.flag("stream"):
        try:
            return await _stream(call, Started(run=run, leg_index=leg, attached=True), header, style, after=after)
        except CursorExpired as e:
            raise CursorExpired(str(max(after, 0)), oldest=e.oldest) from e
    if after >= 0:
        raise InvalidRequest("'starting_after' needs 'stream'.", param="starting_after")
    return await _whole(call, run, header, style)


async def _whole(call: Call, run: Run, header: Header, style: Style) -> JsonResponse:
    stored = StoredBytes(call.engine, call.owner)
    answer = _encoder(header, style, stored)
    await logged(call, run, _fed(answer), answer, stored)
    return _shown(answer, run, header.leg_index)


async def cancel(call: Call) -> JsonResponse:
    """Stop the response's run; the response as it is then. On a run that is over nothing changes."""
    run, leg = await _named(call)
    run = await call.engine.stop(call.owner, run.id)
    return await _whole(call, run, header_of(run, leg), style_of(call))


async def delete(call: Call) -> JsonResponse:
    """Delete the response's run with all of its legs; one that is going on is stopped first."""
    run, _ = await _named(call)
    await call.engine.delete_run(call.owner, run.id)
    return JsonResponse(deleted_response(call.params["id"]))


async def list_input_items(call: Call) -> JsonResponse:
    """What the response was given."""
    run, leg = await _named(call)
    query = page_query(call.request.query_params)
    events: list[Event] = []
    stored = StoredBytes(call.engine, call.owner)

    def keep(event: Event) -> None:
        if type(event.body) not in DELTAS:
            events.append(event)

    await logged(call, run, keep)
    await stored.fetch([item for event in events for item in input_of(event)])
    items = input_items(header_of(run, leg), events, style=style_of(call), blobs=stored)
    return JsonResponse(page_of(items, query))


ROUTES: Final = [
    Route(method="POST", path="/v1/responses", handler=create, errors=error_body),
    Route(method="GET", path="/v1/responses/{id}", handler=retrieve, errors=error_body),
    Route(method="DELETE", path="/v1/responses/{id}", handler=delete, errors=error_body),
    Route(method="POST", path="/v1/responses/{id}/cancel", handler=cancel, errors=error_body),
    Route(method="GET", path="/v1/responses/{id}/input_items", handler=list_input_items, errors=error_body),
]
