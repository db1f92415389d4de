"""Stopping: exactly one outcome, whoever is faster."""

from __future__ import annotations

import asyncio

import pytest

from runstone.core.events import RunEnded
from runstone.core.runs import RunRequest
from runstone.errors import NotFound
from runstone.runners.base import RunContext
from runstone.runners.compose import Composer
from tests.engine.support import (
    OWNER,
    Held,
    World,
    ask,
    bounded,
    ended,
    function,
    read_all,
    settle,
    speaking,
    text_in,
    turn,
)


async def test_stop_keeps_what_was_said(world: World) -> None:
    """A stopped run is cancelled, its agent's code too; its partial text is in the log and in history."""
    held = Held()
    async with world.running(held) as engine:
        started = await engine.start(OWNER, ask(session_id="s"))
        await held.started.wait()
        run = await bounded(engine.stop(OWNER, started.run.id, reason="user"))
        assert (run.outcome, run.reason) == ("cancelled", "user")
        assert held.was_cancelled
        assert text_in(await read_all(engine, run.id)) == "one "
        assert (await engine.history(OWNER, "s")).active is None


async def test_stop_at_the_moment_of_completion(world: World) -> None:
    """200 stops at about the last event: one end each, the same in log, record and answer, and it never changes (o-run-05)."""
    outcomes = set()
    async with world.running(speaking(*["word "] * 40)) as engine:
        for n in range(200):
            started = await engine.start(OWNER, ask(session_id=f"s{n}"))
            await settle(n % 16)
            answer = await bounded(engine.stop(OWNER, started.run.id))
            events = await read_all(engine, started.run.id)
            ends = [event.body for event in events if isinstance(event.body, RunEnded)]
            assert len(ends) == 1
            assert events[-1].body == ends[0]
            stored = await world.store.run(OWNER, started.run.id)
            assert answer.outcome == ends[0].outcome == stored.outcome
            assert answer.last_seq == stored.last_seq == events[-1].seq
            assert (await engine.stop(OWNER, started.run.id)).outcome == answer.outcome
            page = await engine.history(OWNER, f"s{n}")
            assert [run.outcome for run in page.runs] == [answer.outcome]
            outcomes.add(answer.outcome)
        assert outcomes == {"cancelled", "completed"}


async def test_many_stops_at_once_give_one_end(world: World) -> None:
    """Ten stops at the same time all return the one outcome."""
    held = Held()
    async with world.running(held) as engine:
        started = await engine.start(OWNER, ask())
        await held.started.wait()
        stopped = await bounded(asyncio.gather(*(engine.stop(OWNER, started.run.id) for _ in range(10))))
        assert {run.outcome for run in stopped} == {"cancelled"}
        events = await read_all(engine, started.run.id)
        assert [type(event.body) for event in events].count(RunEnded) == 1


async def test_stop_of_an_ended_run_returns_it_as_it_is(world: World) -> None:
    """Stopping what has its outcome changes nothing, also after a restart."""
    async with world.running(speaking("x")) as engine:
        run = await turn(engine)
        assert await engine.stop(OWNER, run.id) == run
    async with world.running(speaking("x")) as engine:
        assert await engine.stop(OWNER, run.id) == run


async def test_stop_of_an_unknown_run(world: World) -> None:
    """It is not found."""
    async with world.running(speaking("x")) as engine:
        with pytest.raises(NotFound):
            await engine.stop(OWNER, "nope")


async def test_stop_of_a_queued_run(world: World) -> None:
    """A queued run that is stopped never reaches its agent and has a log of creation and end."""
    held = Held()
    async with world.running(held) as engine:
        first = await engine.start(OWNER, ask(session_id="s"))
        second = await engine.start(OWNER, ask(session_id="s", busy="queue"))
        run = await bounded(engine.stop(OWNER, second.run.id))
        assert run.outcome == "cancelled"
        events = await read_all(engine, run.id)
        assert [type(event.body).__name__ for event in events] == ["RunCreated", "RunEnded"]
        held.release.set()
        await ended(engine, first.run.id)
        await settle()
        assert len(held.requests) == 1


async def test_stop_in_the_middle_of_a_tool(world: World) -> None:
    """A tool that runs is closed with an error result that no tool said."""
    running = asyncio.Event()

    async def agent(messages: list[object], context: object) -> None:
        async with context.tool("search", {"q": 1}):  # type: ignore[attr-defined]
            running.set()
            await asyncio.Event().wait()

    async with world.running(function(agent)) as engine:
        started = await engine.start(OWNER, ask(session_id="s"))
        await running.wait()
        assert (await bounded(engine.stop(OWNER, started.run.id))).outcome == "cancelled"
        result = (await engine.history(OWNER, "s")).rows[-1].item
        assert result.is_error  # type: ignore[union-attr]
        assert result.synthetic  # type: ignore[union-attr]


async def test_agent_that_ends_well_while_it_is_stopped(world: World) -> None:
    """An agent that swallows the cancellation and returns is still cancelled, with its last words."""

    async def polite(request: RunRequest, context: RunContext) -> None:
        composer = Composer(context)
        composer.text("hello ")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            composer.text("bye")
            composer.close()

    async with world.running(polite) as engine:
        started = await engine.start(OWNER, ask())
        await settle()
        assert (await bounded(engine.stop(OWNER, started.run.id))).outcome == "cancelled"
        assert text_in(await read_all(engine, started.run.id)) == "hello bye"


async def test_agent_that_raises_while_it_is_stopped(world: World) -> None:
    """An agent that raises during its cancellation is cancelled, not failed."""

    async def rude(request: RunRequest, context: RunContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("x")

    async with world.running(rude) as engine:
        started = await engine.start(OWNER, ask())
        await settle()
        run = await bounded(engine.stop(OWNER, started.run.id))
        assert (run.outcome, run.error) == ("cancelled", None)


async def test_stopping_without_waiting(world: World) -> None:
    """`stopping` returns at once; the run is cancelled soon after."""
    held = Held()
    async with world.running(held) as engine:
        started = await engine.start(OWNER, ask())
        await held.started.wait()
        engine.stopping(OWNER, started.run.id, reason="disconnected")
        run = await ended(engine, started.run.id)
        assert (run.outcome, run.reason) == ("cancelled", "disconnected")
        engine.stopping(OWNER, started.run.id)
