"""A process that dies or ends: what the next one makes of the runs that it finds."""

from __future__ import annotations

import asyncio

import pytest

from runstone.core.events import AttemptStarted, RunEnded, RunPaused, TextDelta, ToolProgress
from runstone.core.runs import RunRequest
from runstone.errors import StorageUnavailable
from runstone.runners.base import RunContext
from runstone.runners.compose import Composer
from runstone.testing import ScriptedRunner
from tests.engine.support import (
    OWNER,
    Held,
    World,
    ask,
    bounded,
    check_numbers,
    echo,
    ended,
    function,
    kinds,
    read_all,
    read_until,
    settle,
    text_in,
    turn,
)
from tests.engine.test_approvals import Gatekeeper, careful, decided, paused
from tests.engine.test_start import Line, queued


async def test_running_run_is_interrupted(world: World) -> None:
    """What a client saw is in the log; the run is interrupted(worker_lost); numbering goes on; the next turn works (o-sto-01)."""
    engine = world.engine(Held())
    await engine.open()
    started = await engine.start(OWNER, ask("q", session_id="s"))
    seen = await read_until(engine, started.run.id, TextDelta)
    await world.crash(engine)
    async with world.running(echo) as engine:
        run = await engine.run(OWNER, started.run.id)
        assert (run.outcome, run.reason) == ("interrupted", "worker_lost")
        assert run.error is not None
        assert run.error.code == "interrupted"
        events = await read_all(engine, run.id)
        check_numbers(events)
        assert events[: len(seen)] == seen
        assert [type(event.body) for event in events].count(RunEnded) == 1
        assert (await engine.history(OWNER, "s")).active is None
        assert (await engine.stop(OWNER, run.id)).outcome == "interrupted"
        following = await turn(engine, "next", session_id="s")
        assert text_in(await read_all(engine, following.id)) == "next after 2"
        assert (await read_all(engine, following.id))[0].position > events[-1].position


async def test_outcome_is_in_the_store_when_open_returns(world: World) -> None:
    """Nothing is left to be written later: a second crash right after opening finds nothing unfinished."""
    engine = world.engine(Held())
    await engine.open()
    for n in range(5):
        started = await engine.start(OWNER, ask(session_id=f"s{n}"))
        await read_until(engine, started.run.id, TextDelta)
    await world.crash(engine)
    engine = world.engine(Held())
    await engine.open()
    assert await world.store.unfinished() == []
    await world.crash(engine)
    async with world.running(echo) as engine:
        events = await read_all(engine, started.run.id)
        assert kinds(events).count("RunEnded") == 1


class Attempts:
    """An agent whose first attempts never end."""

    def __init__(self, *, ends_in: int) -> None:
        self.requests: list[RunRequest] = []
        self._ends_in = ends_in

    async def __call__(self, request: RunRequest, context: RunContext) -> None:
        """Run."""
        self.requests.append(request)
        composer = Composer(context)
        composer.text(f"attempt {context.attempt} ")
        composer.tool_call("t", {}, f"c{context.attempt}")
        if context.attempt < self._ends_in:
            await asyncio.Event().wait()
        composer.tool_result(f"c{context.attempt}", "r")
        composer.text("done")
        composer.close()


async def test_retry_begins_the_work_again(world: World) -> None:
    """Under `retry` the run goes on as a new attempt; what the first one said counts no longer, but stays in the log."""
    agent = Attempts(ends_in=2)
    engine = world.engine(agent)
    await engine.open()
    started = await engine.start(OWNER, ask("q", session_id="s", recovery="retry"))
    seen = await read_until(engine, started.run.id, TextDelta)
    await world.crash(engine)
    async with world.running(agent) as engine:
        run = await ended(engine, started.run.id)
        assert (run.outcome, run.attempt) == ("completed", 2)
        events = await read_all(engine, run.id)
        check_numbers(events)
        assert events[: len(seen)] == seen
        restarts = [event.body for event in events if isinstance(event.body, AttemptStarted)]
        assert [(body.attempt, body.reason, body.discard_after_seq) for body in restarts] == [(2, "worker_lost", 1)]
        assert [event.attempt for event in events] == sorted(event.attempt for event in events)
        items = [type(row.item).__name__ for row in (await engine.history(OWNER, "s")).rows]
        assert items == ["Message", "Message", "ToolCall", "ToolResult", "Message"]
        assert [request.attempt for request in agent.requests] == [1, 2]
        assert agent.requests[1].transcript == []
        restart = next(event for event in events if isinstance(event.body, AttemptStarted))
        assert [leg.first_seq for leg in run.legs] == [1, restart.seq]


async def test_attempts_are_limited(world: World) -> None:
    """After the third attempt the run is interrupted(attempts_exhausted)."""
    agent = Attempts(ends_in=99)
    engine = world.engine(agent)
    await engine.open()
    started = await engine.start(OWNER, ask(recovery="retry"))
    for attempt in (1, 2, 3):
        if attempt > 1:
            engine = world.engine(agent)
            await engine.open()
        while len(agent.requests) < attempt:
            await bounded(settle(1))
        await settle(50)
        await world.crash(engine)
    async with world.running(agent) as engine:
        run = await engine.run(OWNER, started.run.id)
        assert (run.outcome, run.reason, run.attempt) == ("interrupted", "attempts_exhausted", 3)
        check_numbers(await read_all(engine, run.id))
        assert len(agent.requests) == 3


async def test_queue_survives(world: World) -> None:
    """Queued runs of a crashed process run in the next one, in their order, after the first was interrupted."""
    line = Line()
    engine = world.engine(line)
    await engine.open()
    await queued(engine, "a", "b", "c")
    while line.began != ["a"]:
        await bounded(settle(1))
    await settle(50)
    await world.crash(engine)
    line = Line()
    async with world.running(line) as engine:
        for run_id in "bc":
            line.gate(run_id).set()
            assert (await ended(engine, run_id)).outcome == "completed"
        assert line.began == ["b", "c"]
        assert (await engine.run(OWNER, "a")).reason == "worker_lost"
        assert line.most == 1


async def test_queue_behind_a_waiting_run_survives(world: World) -> None:
    """A run queued behind one that waits for people still waits after a restart, and runs when that has ended."""
    keeper = Gatekeeper("a1")
    engine = world.engine(keeper)
    await engine.open()
    run = await paused(engine, session_id="s")
    second = await engine.start(OWNER, ask("later", session_id="s", busy="queue"))
    third = await engine.start(OWNER, ask("last", session_id="s", busy="queue"))
    await engine.stop(OWNER, second.run.id)
    await world.crash(engine)
    keeper = Gatekeeper("a1")
    async with world.running(keeper) as engine:
        await settle(50)
        assert keeper.requests == []
        await engine.decide(OWNER, run.id, decided("a1"))
        assert (await ended(engine, run.id)).outcome == "completed"
        await read_until(engine, third.run.id, RunPaused)
        assert [request.run_id for request in keeper.requests] == [run.id, third.run.id]
        await engine.stop(OWNER, third.run.id)


async def test_waiting_run_survives_where_its_agent_can(world: World) -> None:
    """An agent with durable approvals goes on after a restart with the decision that was given then (o-hit-02)."""
    engine = world.engine(Gatekeeper("a1"))
    await engine.open()
    run = await paused(engine, session_id="s")
    await world.crash(engine)
    keeper = Gatekeeper("a1")
    async with world.running(keeper) as engine:
        assert (await engine.run(OWNER, run.id)).status == "waiting"
        page = await engine.history(OWNER, "s")
        assert page.active is not None
        assert (page.active.status, page.active.seq) == ("waiting", run.last_seq)
        await engine.decide(OWNER, run.id, decided("a1", arguments='{"path": "b"}'))
        assert (await ended(engine, run.id)).outcome == "completed"
        assert keeper.ran == ['{"path": "b"}']
        check_numbers(await read_all(engine, run.id))


async def test_pause_inside_a_call_is_lost(world: World) -> None:
    """An agent whose pause lives in the process ends as interrupted(pause_lost), its approval withdrawn."""
    engine = world.engine(function(careful))
    await engine.open()
    run = await paused(engine)
    await world.crash(engine)
    async with world.running(function(careful)) as engine:
        run = await engine.run(OWNER, run.id)
        assert (run.outcome, run.reason) == ("interrupted", "pause_lost")
        assert run.approvals == []
        assert kinds(await read_all(engine, run.id))[-2:] == ["ApprovalDecided", "RunEnded"]


async def test_agent_that_is_gone(world: World) -> None:
    """Runs of an agent that the new process does not have are interrupted(agent_gone), queued ones too."""
    engine = world.engine({"old": Held()})
    await engine.open()
    first = await engine.start(OWNER, ask(session_id="s"))
    second = await engine.start(OWNER, ask(session_id="s", busy="queue"))
    await settle(50)
    await world.crash(engine)
    async with world.running({"new": echo}) as engine:
        runs = [await engine.run(OWNER, run_id) for run_id in (first.run.id, second.run.id)]
        assert [(run.outcome, run.reason) for run in runs] == [("interrupted", "agent_gone")] * 2


async def test_crash_before_the_first_event(world: World) -> None:
    """A run that was stored but never begun runs in the next process (o-run-13)."""
    engine = world.engine(echo)
    await engine.open()
    world.store.hold = asyncio.Event()
    started = await engine.start(OWNER, ask("q"))
    await world.crash(engine)
    async with world.running(echo) as engine:
        assert (await ended(engine, started.run.id)).outcome == "completed"
        assert text_in(await read_all(engine, started.run.id)) == "q after 0"


async def test_open_call_of_a_crashed_run_is_closed(world: World) -> None:
    """A tool that ran when the process died has an error result, and the next turn is told so."""
    told: list[RunRequest] = []

    async def tool(request: RunRequest, context: RunContext) -> None:
        told.append(request)
        if len(told) == 1:
            composer = Composer(context)
            call = composer.tool_call("rm", {}, "c1")
            composer.tool_progress(call, 1)
            await asyncio.Event().wait()

    engine = world.engine(tool)
    await engine.open()
    started = await engine.start(OWNER, ask(session_id="s"))
    await read_until(engine, started.run.id, ToolProgress)
    await world.crash(engine)
    async with world.running(tool) as engine:
        await turn(engine, session_id="s")
        assert [type(item).__name__ for item in told[1].history] == ["Message", "ToolCall", "ToolResult"]


async def test_graceful_end_interrupts_what_runs(world: World) -> None:
    """`close` interrupts running runs with `shutdown`, cancels their agents, and leaves queued ones to the next process."""
    held = Held()
    engine = world.engine(held)
    await engine.open()
    first = await engine.start(OWNER, ask(session_id="s"))
    await held.started.wait()
    second = await engine.start(OWNER, ask("later", session_id="s", busy="queue"))
    await bounded(engine.close())
    assert held.was_cancelled
    assert len(held.requests) == 1
    async with world.running(echo) as engine:
        run = await engine.run(OWNER, first.run.id)
        assert (run.outcome, run.reason) == ("interrupted", "shutdown")
        assert (await ended(engine, second.run.id)).outcome == "completed"


async def test_graceful_end_lets_runs_end(world: World) -> None:
    """With a drain timeout a run that ends in time is completed; its readers get everything."""
    held = Held()
    engine = world.engine(held)
    await engine.open()
    started = await engine.start(OWNER, ask())
    reading = asyncio.create_task(read_all(engine, started.run.id))
    await held.started.wait()
    closing = asyncio.create_task(engine.close(drain_timeout=5.0))
    await settle()
    held.release.set()
    await bounded(closing)
    assert text_in(await bounded(reading)) == "one two"


async def test_readers_of_what_is_left_for_the_next_process(world: World) -> None:
    """At the end those who follow a queued or a waiting run are told to come again, and do not hold the process up."""
    engine = world.engine({"agent": Held(), "keeper": Gatekeeper("a1")})
    await engine.open()
    first = await engine.start(OWNER, ask(session_id="s"))
    second = await engine.start(OWNER, ask(session_id="s", busy="queue"))
    runs = [first.run, second.run, await paused(engine, agent="keeper")]
    reading = [asyncio.create_task(read_all(engine, run.id)) for run in runs]
    await settle()
    await bounded(engine.end_runs())
    ends = await bounded(asyncio.gather(*reading, return_exceptions=True))
    assert isinstance(ends[0][-1].body, RunEnded)
    assert [type(end) for end in ends[1:]] == [StorageUnavailable] * 2
    assert {end.code for end in ends[1:]} == {"draining"}
    await bounded(engine.close())


async def test_graceful_end_with_an_agent_that_never_unwinds(world: World) -> None:
    """`close` returns although an agent ignores its cancellation."""
    release = asyncio.Event()

    async def stubborn(request: RunRequest, context: RunContext) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    engine = world.engine(stubborn, stop_after=0.05)
    await engine.open()
    started = await engine.start(OWNER, ask())
    await settle(50)
    await bounded(engine.close())
    release.set()
    async with world.running(echo) as engine:
        assert (await engine.run(OWNER, started.run.id)).reason == "shutdown"


async def test_runners_are_closed_even_if_one_raises(world: World) -> None:
    """A runner that fails to close does not keep the others, or the store, from closing."""

    class Failing(ScriptedRunner):
        async def close(self) -> None:
            raise ValueError("x")

    good = ScriptedRunner([])
    engine = world.engine({"bad": Failing([]), "good": good})
    await engine.open()
    await engine.close()
    assert good.is_closed
    async with world.running(echo) as engine:
        assert (await turn(engine)).outcome == "completed"


@pytest.mark.parametrize("rounds", range(0, 40, 3))
async def test_crash_at_any_moment(world: World, rounds: int) -> None:
    """Whenever the process dies: nothing a reader saw is gone, the log is legal, no run stays running."""

    async def busy(request: RunRequest, context: RunContext) -> None:
        composer = Composer(context)
        for n in range(50):
            composer.text(f"{n} ")
            call = composer.tool_call("t", {"n": n})
            await context.wait()
            composer.tool_result(call, "r")
        composer.close()

    engine = world.engine(busy)
    await engine.open()
    started = [await engine.start(OWNER, ask(session_id=f"s{n}")) for n in range(4)]
    readers = [await engine.reader(OWNER, one.run.id) for one in started]
    seen: dict[str, list[object]] = {one.run.id: [] for one in started}

    async def follow(n: int) -> None:
        while found := await readers[n].read():
            seen[started[n].run.id] += found

    tasks = [asyncio.create_task(follow(n)) for n in range(4)]
    await settle(rounds)
    await world.crash(engine)
    assert all(task.done() for task in tasks)
    async with world.running(echo) as engine:
        for one in started:
            run = await ended(engine, one.run.id)
            events = await read_all(engine, run.id)
            check_numbers(events)
            assert events[: len(seen[run.id])] == seen[run.id]
            assert [type(event.body) for event in events].count(RunEnded) == 1
            following = await turn(engine, "next", session_id=run.session_id)
            assert following.outcome == "completed"
        assert await world.store.unfinished() == []
