"""What a run leaves behind in memory: nothing, without any help of the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from runstone.core.events import RunPaused
from runstone.core.lifecycle import RunState
from runstone.core.runs import RunRequest
from runstone.engine.context import EngineContext
from runstone.engine.engine import Engine
from runstone.engine.execution import Execution
from runstone.engine.reader import Reader
from runstone.engine.recording import Recording
from runstone.engine.sessions import LiveSession
from runstone.runners.base import RunContext
from tests.engine.support import (
    OWNER,
    Held,
    World,
    ask,
    bounded,
    ended,
    function,
    read_until,
    settle,
    turn,
)
from tests.engine.test_approvals import Gatekeeper, decided

KINDS = (Recording, Execution, EngineContext, Reader, LiveSession, RunState)


def alive() -> Counter[str]:
    """How many objects of a run's life there are."""
    return Counter(type(found).__name__ for found in gc.get_objects() if type(found) in KINDS)


@pytest.fixture
def before() -> Iterator[Counter[str]]:
    """What earlier tests left. Nothing is collected during the test: what is freed is freed because nobody holds it."""
    gc.collect()
    gc.disable()
    yield alive()
    gc.enable()


async def check_gone(engine: Engine, before: Counter[str]) -> None:
    """Nothing of the engine's runs is in memory, and only its upkeep is a task."""
    assert await engine.live.wait_idle(5)
    await settle(5)
    assert alive() - before == Counter()
    assert (engine.live.recordings, engine.live.executions, engine.live._followers) == ({}, {}, {})
    assert dict(engine.live._loading) == {}
    assert dict(engine.live.sessions._live) == {}
    names = {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    assert {name for name in names if name.startswith(("run ", "agent "))} == set()


async def plain(messages: list[Any], context: Any) -> Any:
    """Talks and uses a tool."""
    for _ in range(30):
        yield "word "
    async with context.tool("t", {}) as call:
        call.result("r")


async def test_completed_runs(world: World, before: Counter[str]) -> None:
    """Runs that completed, with readers, are gone."""
    async with world.running(function(plain)) as engine:
        for n in range(10):
            await turn(engine, session_id=f"s{n % 3}")
        await engine.history(OWNER, "s1")
        await check_gone(engine, before)


async def test_stopped_and_queued_runs(world: World, before: Counter[str]) -> None:
    """Runs that were stopped, running or queued, are gone."""
    async with world.running(Held()) as engine:
        for n in range(5):
            first = await engine.start(OWNER, ask(session_id=f"s{n}"))
            second = await engine.start(OWNER, ask(session_id=f"s{n}", busy="queue"))
            third = await engine.start(OWNER, ask(session_id=f"s{n}", busy="queue"))
            for run in (second.run, first.run, third.run):
                await bounded(engine.stop(OWNER, run.id))
        await check_gone(engine, before)


async def test_waiting_and_decided_runs(world: World, before: Counter[str]) -> None:
    """Runs that wait are not in memory, and gone when they were decided."""
    async with world.running(Gatekeeper("a1")) as engine:
        run_ids = [(await engine.start(OWNER, ask())).run.id for _ in range(5)]
        for run_id in run_ids:
            await read_until(engine, run_id, RunPaused)
        await check_gone(engine, before)
        for run_id in run_ids:
            await engine.decide(OWNER, run_id, decided("a1"))
            await ended(engine, run_id)
        await check_gone(engine, before)


async def test_failed_runs(world: World, before: Counter[str], caplog: pytest.LogCaptureFixture) -> None:
    """Runs whose agents raised are gone after a collection: their exceptions hold the frames that raised them."""

    async def raising(request: RunRequest, context: RunContext) -> None:
        raise ValueError("x")

    # What captures the log would hold the exceptions.
    caplog.set_level(logging.CRITICAL, logger="runstone.engine")
    async with world.running(raising) as engine:
        for _ in range(5):
            await turn(engine)
        gc.collect()
        await check_gone(engine, before)


async def test_session_readers(world: World, before: Counter[str]) -> None:
    """Sessions that were followed are gone when their readers have closed."""
    async with world.running(function(plain)) as engine:
        await turn(engine, session_id="s")
        reader = await engine.session_reader(OWNER, "s", after=0)
        while await bounded(reader.read()):
            if reader.cursor >= (await world.store.last_position(OWNER, "s")):
                break
        reading = asyncio.create_task(reader.read())
        await settle()
        reader.wake()
        assert await bounded(reading) is None
        reader.close()
        del reader, reading
        await check_gone(engine, before)
