"""What Hermes' routes have in common: starts with what its headers say, receipts, streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from runstone.core.commands import Start
from runstone.core.runs import Run, Session
from runstone.engine.engine import Started
from runstone.errors import CursorExpired
from runstone.protocols.base import Cursor, Encoder, Header
from runstone.protocols.hermes.encode import Encoder as HermesEncoder
from runstone.protocols.hermes.objects import started as receipt
from runstone.protocols.hermes.request import checked_idempotency_key
from runstone.protocols.hermes.sessions import FrameCount, place_from_request, with_session_defaults
from runstone.protocols.hermes.types import REPLAYED_HEADER
from runstone.protocols.native.encode import Encoder as NativeEncoder
from runstone.server.calls import RUN_ID, Call
from runstone.server.errors import JsonResponse
from runstone.server.runs import header_of, is_replayed, stop_with_connection
from runstone.server.session_header import session_header
from runstone.server.streaming import EventStream

LAST_EVENT_ID: Final = "last-event-id"
MakeEncoder = Callable[[Header], Encoder]


def session_words(header: Header) -> HermesEncoder:
    """The vocabulary of `/chat/stream`."""
    return HermesEncoder(header, vocabulary="session")


def runs_words(header: Header) -> HermesEncoder:
    """The vocabulary of `/v1/runs/{id}/events`."""
    return HermesEncoder(header, vocabulary="runs")


def native_words(header: Header) -> NativeEncoder:
    """The events as the log has them."""
    return NativeEncoder(header)


def prepared(call: Call, start: Start, session: Session | None) -> Start:
    """`start` with what the headers and the session say.

    Raises:
        InvalidRequest: a header is none of ours, or contradicts the body.
    """
    key = call.request.headers.get("idempotency-key")
    if key is not None:
        checked_idempotency_key(key)
    start = call.started(start)
    if session is None:
        return start
    start = with_session_defaults(start, session)
    if start.agent is None and session.agent != call.engine.default_agent and session.agent in call.engine.agents:
        start = msgspec.structs.replace(start, agent=session.agent)
    return start


def names_of(run: Run) -> dict[str, str]:
    """What every answer about a run says of it."""
    return {RUN_ID: run.id, **session_header(run.session_id)}


def headers_of(started: Started) -> dict[str, str]:
    """What the answer to a start says."""
    named = names_of(started.run)
    return {**named, REPLAYED_HEADER: "true"} if is_replayed(started) else named


def accepted(started: Started) -> JsonResponse:
    """The receipt of a start, or of an input that a running run took."""
    body: dict[str, Any] = {**receipt(started.run, attached=started.attached), "replayed": is_replayed(started)}
    if started.after:
        body |= {"steered": True, "last_event_id": str(started.after)}
    return JsonResponse(body, status=202, headers=headers_of(started))


def place_of(call: Call) -> Cursor | FrameCount:
    """How far the reader has come.

    Raises:
        CursorUnknown, InvalidRequest: it is no place.
    """
    text = call.request.headers.get(LAST_EVENT_ID)
    return place_from_request(text, call.request.query_params)


async def read_on(
    call: Call, run: Run, make: MakeEncoder, place: Cursor | FrameCount, *, before: bytes = b"", after: bytes = b""
) -> EventStream:
    """`stream_of` for a reader that started nothing."""
    started = Started(run=run, attached=True)
    return await stream_of(call, started, make, place, headers=names_of(run), before=before, after=after)


async def stream_of(
    call: Call,
    started: Started,
    make: MakeEncoder,
    place: Cursor | FrameCount,
    *,
    headers: dict[str, str] | None = None,
    before: bytes = b"",
    after: bytes = b"",
) -> EventStream:
    """The run as a stream, after what the reader has.

    Raises:
        CursorUnknown: the stream has no such place.
        CursorExpired: what follows is no longer kept.
    """
    run = started.run
    if not run.legs:
        raise CursorExpired("0", oldest=None)
    seq = place.seq if isinstance(place, Cursor) else 0
    reader = await call.engine.reader(call.owner, run.id, after=seq)
    reader.cursor = 0
    stream = EventStream(
        reader,
        make(header_of(run, 0)),
        run_id=run.id,
        ping_after=call.config.server.ping_after,
        headers=headers or headers_of(started),
        on_gone=lambda: stop_with_connection(call, started),
        before=before,
        after=after,
    )
    try:
        if isinstance(place, FrameCount):
            await stream.skip_frames(place.seq + 1)
        else:
            await stream.skip_to(place)
    except BaseException:
        stream.close()
        raise
    return stream


async def as_it_is(call: Call, run: Run) -> Run:
    """The run with the newest event that can be read and the approvals that can be decided now."""
    newest = await call.engine.store.last_seq(call.owner, run.id)
    return msgspec.structs.replace(
        run, last_seq=max(newest, run.last_seq) if run.outcome else newest, approvals=call.engine.pending(run)
    )
