"""From a run to its answers: readers, legs, stored bytes. What all surfaces need and no protocol knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
from starlette.responses import Response

from runstone.core.commands import Start
from runstone.core.events import Event, ItemEnded, RunCreated
from runstone.core.items import Item
from runstone.core.runs import Run
from runstone.engine.engine import Engine, Started
from runstone.engine.reader import Reader
from runstone.errors import CursorExpired
from runstone.protocols.base import Header
from runstone.protocols.hermes.types import REPLAYED_HEADER
from runstone.protocols.parts import blobs_of
from runstone.server.calls import Call
from runstone.server.limits import Gone
from runstone.server.streaming import listening

_R = TypeVar("_R", bound=Response)


async def begin(call: Call, start: Start) -> Started:
    """Start what is asked for; a request that a client repeats by itself is answered by the run of the first."""
    engine, owner, retries = call.engine, call.owner, call.retries
    before = retries.run_of(owner, start, call.request)
    if before is not None and not (await engine.run(owner, before)).compacted:
        return await engine.start(owner, msgspec.structs.replace(start, run_id=before))
    started = await engine.start(owner, start)
    retries.note(owner, start, call.request, started.run.id)
    return started


def is_replayed(started: Started) -> bool:
    """Whether an equal request began the run before; a steered run is not the answer of one."""
    return started.attached and started.after == 0


def marked(response: _R, started: Started) -> _R:
    """The answer to a start, with a header when an equal request began the run before."""
    if is_replayed(started):
        response.raw_headers.append((REPLAYED_HEADER.lower().encode(), b"true"))
    return response


def header_of(run: Run, leg_index: int) -> Header:
    """What an encoder has to know of the leg."""
    return Header(run=run, leg=run.legs[leg_index], leg_index=leg_index)


def leg_after(run: Run, seq: int) -> int:
    """The leg in which what follows event `seq` belongs, as far as it is there."""
    return max(n for n, leg in enumerate(run.legs) if n == 0 or leg.first_seq <= seq + 1)


class StoredBytes(dict[str, bytes]):
    """The stored bytes that showing a run needs, fetched as its events come."""

    def __init__(self, engine: Engine, owner: str) -> None:
        super().__init__()
        self._engine = engine
        self._owner = owner

    def __bool__(self) -> bool:
        """True also while it is empty: who holds it must not take it for nothing."""
        return True

    async def prepare(self, events: list[Event]) -> None:
        """Fetch what `events` refer to."""
        items = [event.body.item for event in events if type(event.body) is ItemEnded]
        if items:
            await self.fetch(items)

    async def fetch(self, items: list[Item]) -> None:
        """Fetch what `items` refer to."""
        wanted = blobs_of(items) - self.keys()
        if wanted:
            self.update(await self._engine.blobs.contents(self._owner, wanted))


class Answering(Protocol):
    """Builds the answer of one leg."""

    is_over: bool


async def followed(
    call: Call,
    started: Started,
    reader: Reader,
    take: Callable[[Event], object],
    answer: Answering,
    stored: StoredBytes | None = None,
) -> None:
    """Feed the leg's events to `take` until `answer` is over.

    Raises:
        Gone: the client left before.
        StorageError: the run was given up by the store.
    """
    is_gone = False

    def gone() -> None:
        nonlocal is_gone
        is_gone = True
        reader.wake()
        stop_with_connection(call, started)

    try:
        async with listening(call.request.receive, gone):
            while not answer.is_over:
                events = await reader.read()
                if is_gone:
                    raise Gone
                if events is None:
                    continue
                if not events:
                    return
                if stored is not None:
                    await stored.prepare(events)
                for event in events:
                    take(event)
                    if answer.is_over:
                        return
                await asyncio.sleep(0)
    finally:
        reader.close()


def stop_with_connection(call: Call, started: Started) -> None:
    """What happens to a run when the connection that started it is lost: nothing, or it is asked to stop."""
    run = started.run
    if run.policies.disconnect == "stop" and not started.attached:
        call.engine.stopping(call.owner, run.id, reason="disconnected")


async def logged(
    call: Call,
    run: Run,
    take: Callable[[Event], object],
    answer: Answering | None = None,
    stored: StoredBytes | None = None,
) -> None:
    """Feed to `take` what the log has of the run now, until `answer` is over.

    Raises:
        CursorExpired: nothing is kept of it.
    """
    store, seq = call.engine.store, 0
    while answer is None or not answer.is_over:
        events = await store.events(call.owner, run.id, after=seq, limit=call.engine.config.page_events)
        if not events:
            break
        if stored is not None:
            await stored.prepare(events)
        for event in events:
            take(event)
            if answer is not None and answer.is_over:
                break
        seq = events[-1].seq
        await asyncio.sleep(0)
    if seq == 0:
        raise CursorExpired("0", oldest=None)


def input_of(event: Event) -> list[Item]:
    """The items that a run was started with, when the event says so."""
    return event.body.input if isinstance(event.body, RunCreated) else []
