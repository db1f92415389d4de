"""Runs as Hermes has them: start, read, follow, stop, steer, decide; and ours: regenerate, alternatives, tool outputs, list."""

from __future__ import annotations

import functools
from typing import Any, Final

import msgspec
from starlette.responses import Response

from runstone.core.commands import Start
from runstone.core.events import RunEnded
from runstone.core.ids import checked_run_id
from runstone.core.items import ApprovalItem
from runstone.core.runs import Run
from runstone.errors import AlreadyDecided, CursorExpired, InvalidRequest, NotFound
from runstone.errors import RunEnded as AlreadyEnded
from runstone.protocols.base import Cursor
from runstone.protocols.hermes import objects
from runstone.protocols.hermes.commands import (
    ApprovalReply,
    approval_from_body,
    decisions_of,
    regenerate_from_body,
    runs_query,
    steer_from_body,
    stop_reason,
    tool_outputs_from_body,
)
from runstone.protocols.hermes.encode import pending_steer, truncated
from runstone.protocols.hermes.errors import error_body
from runstone.protocols.hermes.history import last_answer, rows_of
from runstone.protocols.hermes.request import turn_from_runs, with_history
from runstone.protocols.hermes.types import CLOSED, OPENED
from runstone.protocols.hermes.vocabulary import choice_of
from runstone.protocols.sse import HEADERS, MEDIA_TYPE, to_bytes
from runstone.server.calls import Call
from runstone.server.errors import JsonResponse
from runstone.server.hermes import (
    LAST_EVENT_ID,
    MakeEncoder,
    accepted,
    as_it_is,
    names_of,
    native_words,
    place_of,
    prepared,
    read_on,
    runs_words,
    session_words,
    stream_of,
)
from runstone.server.routing import Route
from runstone.server.runs import begin
from runstone.server.session_header import session_of_header

_FORMATS: Final[dict[str, MakeEncoder]] = {"runs": runs_words, "hermes": session_words, "native": native_words}
_PAGE: Final = 1_000


async def run_of(call: Call) -> Run:
    """The run in the path.

    Raises:
        NotFound: the owner has no such run.
    """
    return await call.engine.durable_run(call.owner, checked_run_id(call.params["run_id"]))


async def create(call: Call) -> Response:
    """Start a turn; the receipt. Without a session the run gets one of its own, with the id of the run."""
    request = turn_from_runs(await call.json())
    start = request.start
    named = session_of_header(call.request)
    if start.session_id is None and start.continues is None and named:
        start = msgspec.structs.replace(start, session_id=named)
        request = msgspec.structs.replace(request, start=start)
    session = None if start.session_id is None else await call.engine.store.session(call.owner, start.session_id)
    if request.history and (session is None or session.head is None):
        start = with_history(request)
    start = prepared(call, start, session)
    if start.session_id is None and start.continues is None:
        run_id = start.run_id or call.engine.ids.new("run")
        start = msgspec.structs.replace(start, run_id=run_id, session_id=run_id)
    return accepted(await begin(call, start))


async def list_runs(call: Call) -> JsonResponse:
    """Runs, newest first; of one session, of some statuses."""
    query = runs_query(call.request.query_params)
    found = await call.engine.store.runs(
        call.owner,
        session_id=query.session_id,
        statuses=None if query.statuses is None else list(query.statuses),
        limit=query.limit + 1,
        before=query.before,
    )
    runs = [await call.engine.durable_run(call.owner, run.id) for run in found[: query.limit]]
    shown = [run for run in runs if query.statuses is None or run.status in query.statuses]
    has_more = len(found) > query.limit
    return JsonResponse(objects.runs_page(shown, cursor=runs[-1].id if has_more else None))


async def retrieve(call: Call) -> JsonResponse:
    """The run as it is now."""
    return JsonResponse(await _shown(call, await run_of(call)))


async def _shown(call: Call, run: Run) -> Any:  # noqa: ANN401
    rows = await call.engine.store.run_rows(call.owner, run.id)
    return objects.run_object(
        await as_it_is(call, run),
        rows,
        pending_steer=await _pending_steer(call, run),
        is_stopping=call.engine.is_stopping(call.owner, run.id),
    )


async def _pending_steer(call: Call, run: Run) -> str | None:
    """The steering that an ended run gave back; its last event says whether there is any."""
    if run.outcome is None:
        return None
    store, seq = call.engine.store, 0
    last = await store.events(call.owner, run.id, after=run.last_seq - 1, limit=1)
    if not last or not isinstance(last[-1].body, RunEnded) or not last[-1].body.returned:
        return None
    texts = []
    while events := await store.events(call.owner, run.id, after=seq, limit=_PAGE):
        texts += events
        seq = events[-1].seq
    return pending_steer(texts)


async def events(call: Call) -> Response:
    """The run's stream: all of it, or what follows `Last-Event-ID` or `last_seq`."""
    run = await run_of(call)
    word = call.request.query_params.get("format", "runs")
    if word not in _FORMATS:
        raise InvalidRequest(f"'format' is {word[:80]!r}; expected one of {', '.join(_FORMATS)}.", param="format")
    place = place_of(call)
    before, after = (OPENED, CLOSED) if word == "runs" else (b"", b"")
    try:
        return await read_on(call, run, _FORMATS[word], place, before=before, after=after)
    except CursorExpired:
        # A reader that says what it has is told that the rest is gone; another one gets what is left.
        if word != "runs" or place != Cursor(0) or call.request.headers.get(LAST_EVENT_ID):
            raise
    rows = await call.engine.store.run_rows(call.owner, run.id)
    output = last_answer(rows_of((row for row in rows if not row.is_input), run.session_id))
    frames = truncated(run, output=output, pending_steer=await _pending_steer(call, run))
    body = b"".join([OPENED, *(to_bytes(frame) for frame in frames), CLOSED])
    return Response(body, media_type=MEDIA_TYPE, headers={**HEADERS, **names_of(run)})


async def stop(call: Call) -> JsonResponse:
    """Ask the run to end, and answer at once; a run that has ended is answered with itself."""
    run = await run_of(call)
    reason = stop_reason(await call.optional_json())
    if run.outcome is not None:
        return JsonResponse(await _shown(call, run))
    call.engine.begin_stop(call.owner, run.id, reason=reason)
    return JsonResponse(objects.stopping(run.id), headers=names_of(run))


async def steer(call: Call) -> JsonResponse:
    """New input for a run that goes on; the receipt. What becomes of it stands in the stream, in history and in the run."""
    run = await run_of(call)
    request = steer_from_body(await call.json())
    receipt = await call.engine.steer(call.owner, run.id, request.content, by=call.owner)
    return JsonResponse(objects.steered(run.id, receipt.input_id), headers=names_of(run))


async def approve(call: Call) -> JsonResponse:
    """Answer one approval that is pending, or all of them."""
    run = await run_of(call)
    reply = approval_from_body(await call.json())
    if run.outcome is not None:
        raise await _too_late(call, run, reply)
    decisions = decisions_of(reply, call.engine.pending(run), by=call.owner)
    run = await call.engine.decide(call.owner, run.id, decisions)
    choice = choice_of(decisions[0].decision, decisions[0].scope)
    return JsonResponse(objects.approval_response(run, choice, resolved=len(decisions)), headers=names_of(run))


async def _too_late(call: Call, run: Run, reply: ApprovalReply) -> Exception:
    """Why an ended run takes no answer: the approval that is named has one, or nothing is asked any more."""
    for row in await call.engine.store.run_rows(call.owner, run.id):
        if isinstance(row.item, ApprovalItem) and row.item.approval_id == reply.approval_id:
            word = f"The approval {reply.approval_id!r} has its decision already: {row.item.decision}."
            return AlreadyDecided(word, run_id=run.id, code="approval_not_pending")
    return AlreadyEnded(f"The run {run.id!r} has ended.", run_id=run.id)


async def regenerate(call: Call) -> Response:
    """Answer the run's turn once more: a new run, with the settings of the old one where the request has none."""
    old = await run_of(call)
    request = regenerate_from_body(await call.optional_json(), old.id)
    start = _with_settings_of(prepared(call, request.start, None), old)
    started = await call.engine.regenerate(call.owner, old.id, start)
    if request.accepted_only:
        return accepted(started)
    return await stream_of(call, started, session_words, Cursor(0))


def _with_settings_of(start: Start, old: Run) -> Start:
    given = {name: value for name, value in msgspec.structs.asdict(start.settings).items() if value}
    return msgspec.structs.replace(
        start,
        settings=msgspec.structs.replace(old.settings, **given),
        metadata=start.metadata or old.metadata,
        recovery=start.recovery or old.policies.recovery,
    )


async def alternatives(call: Call) -> JsonResponse:
    """The runs that answer the same turn, oldest first, and which of them the session shows."""
    run = await run_of(call)
    runs = await call.engine.alternatives(call.owner, run.id)
    session = await call.engine.store.session(call.owner, run.session_id)
    chain = [] if session is None or session.head is None else await call.engine.store.chain(call.owner, session.head)
    current = next((shown.id for shown in chain if shown.turn == run.turn), None)
    return JsonResponse(objects.alternatives(runs, current=current))


async def tool_outputs(call: Call) -> Response:
    """What the client's tools gave: the waiting run goes on, or the next run of the chain begins."""
    run = await run_of(call)
    start = tool_outputs_from_body(await call.json(), run.id)
    session = await call.engine.store.session(call.owner, run.session_id)
    if session is None:
        raise NotFound("session", run.session_id)
    return accepted(await begin(call, prepared(call, start, session)))


_ONE: Final = "/v1/runs/{run_id}"
ROUTES: Final = [
    Route(method="POST", path="/v1/runs", handler=create, errors=error_body),
    Route(method="GET", path="/v1/runs", handler=list_runs, errors=error_body),
    Route(method="GET", path=_ONE, handler=retrieve, errors=error_body),
    Route(method="GET", path=f"{_ONE}/events", handler=events, errors=error_body),
    Route(method="POST", path=f"{_ONE}/stop", handler=stop, errors=error_body),
    Route(method="POST", path=f"{_ONE}/steer", handler=steer, errors=functools.partial(error_body, verb="steer")),
    Route(
        method="POST", path=f"{_ONE}/approval", handler=approve, errors=functools.partial(error_body, verb="approval")
    ),
    Route(method="POST", path=f"{_ONE}/regenerate", handler=regenerate, errors=error_body),
    Route(method="GET", path=f"{_ONE}/alternatives", handler=alternatives, errors=error_body),
    Route(method="POST", path=f"{_ONE}/tool_outputs", handler=tool_outputs, errors=error_body),
]
