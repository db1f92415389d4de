"""A store that fails: for a while nothing is lost, for longer the runs concerned are given up and closed later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runstone.core.events import RunEnded, RunPaused, TextDelta
from runstone.core.runs import Decision, RunRequest
from runstone.engine.engine import Engine
from runstone.errors import AppendConflict, NotStorable, StorageError, StorageUnavailable
from runstone.runners.base import RunContext
from runstone.runners.compose import Composer
from tests.engine.support import (
    OWNER,
    Held,
    World,
    ask,
    bounded,
    check_numbers,
    echo,
    ended,
    kinds,
    read_all,
    read_until,
    settle,
    speaking,
    text_in,
    turn,
)
from tests.engine.test_approvals import Gatekeeper, decided, paused

FAST: dict[str, Any] = {"storage_retry_after": 0.001, "storage_patience": 0.05}
PATIENT: dict[str, Any] = {"storage_retry_after": 0.001, "storage_patience": 60.0}


async def failures(world: World, count: int) -> None:
    """Return when the store has refused that many batches more."""
    target = world.store.failures + count
    while world.store.failures < target:
        await asyncio.wait({asyncio.ensure_future(settle(1))}, timeout=1)


async def test_short_trouble_loses_nothing(world: World) -> None:
    """Batches that failed are written when the store works again: no event lost, none twice, readers see no gap."""
    async with world.running(speaking(*(f"{n} " for n in range(500))), **PATIENT) as engine:
        world.store.fail()
        started_task = asyncio.create_task(engine.start(OWNER, ask(session_id="s")))
        started = await bounded(started_task)
        await failures(world, 5)
        reading = asyncio.create_task(read_all(engine, started.run.id))
        await settle()
        world.store.heal()
        events = await bounded(reading)
        check_numbers(events)
        assert text_in(events) == "".join(f"{n} " for n in range(500))
        assert (await engine.run(OWNER, started.run.id)).outcome == "completed"


async def test_trouble_again_and_again(world: World) -> None:
    """A store that fails every other moment still takes everything, in order."""
    async with world.running(speaking(*(f"{n} " for n in range(3_000))), **PATIENT) as engine:
        started = await engine.start(OWNER, ask())
        for _ in range(20):
            world.store.fail()
            await settle(3)
            world.store.heal()
            await settle(3)
        events = await bounded(read_all(engine, started.run.id))
        check_numbers(events)
        assert text_in(events) == "".join(f"{n} " for n in range(3_000))


async def give_up(world: World, engine: Engine, run_id: str) -> None:
    """Let the store fail until the run's stream is cut."""
    reader = await engine.reader(OWNER, run_id)
    world.store.fail(only=run_id)
    with pytest.raises(StorageError):
        while events := await bounded(reader.read()):
            assert not any(isinstance(event.body, RunEnded) for event in events)
    reader.close()


async def test_long_trouble_cuts_the_stream_and_the_sweep_closes_the_run(world: World) -> None:
    """After `storage_patience` the agent is cancelled and its stream cut without an end; the sweep ends it (o-sto-09)."""
    cancelled = asyncio.Event()

    async def endless(request: RunRequest, context: RunContext) -> None:
        composer = Composer(context)
        try:
            while True:
                composer.text("x")
                await context.wait()
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with world.running({"endless": endless, "echo": echo}, **FAST) as engine:
        started = await engine.start(OWNER, ask(session_id="s"))
        run_id = started.run.id
        seen = await read_until(engine, run_id, TextDelta)
        await give_up(world, engine, run_id)
        await bounded(cancelled.wait())
        await bounded(engine.live.wait_idle(5))
        assert engine.live.recordings == {}
        world.store.heal()
        await engine._upkeep.sweep()
        run = await engine.run(OWNER, run_id)
        assert (run.outcome, run.reason) == ("interrupted", "storage")
        events = await read_all(engine, run_id)
        check_numbers(events)
        assert events[: len(seen)] == seen
        assert [type(event.body) for event in events].count(RunEnded) == 1
        assert engine.live.given_up == set()
        assert (await turn(engine, agent="echo", session_id="s")).outcome == "completed"


async def test_others_go_on_while_one_run_cannot_be_stored(world: World) -> None:
    """Trouble with one run's batches does not touch another run."""
    held = Held()
    async with world.running({"held": held, "echo": echo}, **FAST) as engine:
        started = await engine.start(OWNER, ask())
        await read_until(engine, started.run.id, TextDelta)
        world.store.fail(only=started.run.id)
        held.release.set()
        assert (await turn(engine, agent="echo")).outcome == "completed"
        await failures(world, 2)
        world.store.heal()
        assert text_in(await read_all(engine, started.run.id)) == "one two"


@pytest.mark.parametrize("error", [AppendConflict("numbers"), NotStorable("value"), StorageError("odd")])
async def test_refusal_by_the_store_gives_the_run_up_at_once(world: World, error: StorageError) -> None:
    """What trying again cannot mend is not tried again: the stream is cut, and the sweep ends the run."""
    held = Held()
    async with world.running(held, **PATIENT) as engine:
        started = await engine.start(OWNER, ask())
        await read_until(engine, started.run.id, TextDelta)
        world.store.failing = error
        held.release.set()
        with pytest.raises(StorageError):
            await read_all(engine, started.run.id)
        assert world.store.failures == 1
        world.store.heal()
        await bounded(engine.live.wait_idle(5))
        await engine._upkeep.sweep()
        run = await engine.run(OWNER, started.run.id)
        assert (run.outcome, run.reason) == ("interrupted", "storage")


async def test_sweep_waits_for_the_store(world: World) -> None:
    """A sweep in the middle of the trouble fails, keeps the run on its list, and the next one closes it."""
    async with world.running(Held(), **FAST) as engine:
        started = await engine.start(OWNER, ask())
        await read_until(engine, started.run.id, TextDelta)
        world.store.fail()
        with pytest.raises(StorageError):
            await engine.stop(OWNER, started.run.id)
        with pytest.raises(StorageError):
            await engine._upkeep.sweep()
        assert engine.live.given_up == {(OWNER, started.run.id)}
        world.store.heal()
        await engine._upkeep.sweep()
        assert (await engine.run(OWNER, started.run.id)).outcome == "interrupted"


async def test_stop_during_trouble_is_refused_and_works_later(world: World) -> None:
    """A stop whose outcome cannot be stored says so instead of answering with an outcome that may be lost."""
    async with world.running(Held(), **FAST) as engine:
        started = await engine.start(OWNER, ask())
        await read_until(engine, started.run.id, TextDelta)
        world.store.fail()
        with pytest.raises(StorageError):
            await bounded(engine.stop(OWNER, started.run.id))
        world.store.heal()
        run = await bounded(engine.stop(OWNER, started.run.id))
        assert run.outcome == "cancelled"
        events = await read_all(engine, started.run.id)
        assert [type(event.body) for event in events].count(RunEnded) == 1


async def test_run_behind_one_that_was_given_up(world: World) -> None:
    """A queued run begins when the one before it has been closed, not before."""
    held = Held()
    async with world.running(held, **FAST) as engine:
        first = await engine.start(OWNER, ask(session_id="s"))
        await held.started.wait()
        second = await engine.start(OWNER, ask("later", session_id="s", busy="queue"))
        await settle()
        world.store.fail(only=first.run.id)
        held.release.set()
        with pytest.raises(StorageError):
            await read_all(engine, first.run.id)
        await settle(50)
        assert len(held.requests) == 1
        world.store.heal()
        await engine._upkeep.sweep()
        assert (await ended(engine, second.run.id)).outcome == "completed"
        assert (await engine.run(OWNER, first.run.id)).reason == "storage"


async def test_decision_that_cannot_be_stored(world: World) -> None:
    """A decision during trouble is refused and runs nothing; before the sweep it can be given again."""
    keeper = Gatekeeper("a1")
    async with world.running(keeper, **FAST) as engine:
        run = await paused(engine)
        world.store.fail()
        with pytest.raises(StorageError):
            await bounded(engine.decide(OWNER, run.id, decided("a1")))
        await bounded(engine.live.wait_idle(5))
        world.store.heal()
        await engine.decide(OWNER, run.id, decided("a1"))
        await engine._upkeep.sweep()
        run = await ended(engine, run.id)
        assert run.outcome == "completed"
        assert kinds(await read_all(engine, run.id)).count("ApprovalDecided") == 1


async def test_waiting_run_that_nobody_drives_is_given_up_too(world: World) -> None:
    """A paused run whose partial decision could not be stored is closed by the sweep."""
    async with world.running(Gatekeeper("a1", "a2"), **FAST) as engine:
        run = await paused(engine)
        world.store.fail()
        with pytest.raises(StorageError):
            await bounded(engine.decide(OWNER, run.id, [Decision(approval_id="a1", decision="approved")]))
        world.store.heal()
        await engine._upkeep.sweep()
        run = await engine.run(OWNER, run.id)
        assert (run.outcome, run.reason) == ("interrupted", "storage")
        assert kinds(await read_all(engine, run.id))[-1] == "RunEnded"


async def test_reader_that_comes_between_trouble_and_sweep(world: World) -> None:
    """A reader of a run that was given up gets its end from the sweep."""
    async with world.running(Held(), **FAST) as engine:
        started = await engine.start(OWNER, ask())
        await read_until(engine, started.run.id, TextDelta)
        world.store.fail()
        with pytest.raises(StorageError):
            await bounded(engine.stop(OWNER, started.run.id))
        world.store.heal()
        reading = asyncio.create_task(read_all(engine, started.run.id))
        await settle(100)
        await engine._upkeep.sweep()
        assert isinstance((await bounded(reading))[-1].body, RunEnded)


async def test_failing_start_creates_nothing(world: World) -> None:
    """When the store refuses to create the run the caller is told, and nothing is held."""
    async with world.running(echo) as engine:

        async def refuse(new: object) -> None:
            raise StorageUnavailable("locked")

        world.store.instead["create_run"] = refuse
        with pytest.raises(StorageUnavailable):
            await engine.start(OWNER, ask(run_id="r1", session_id="s", idempotency_key="k"))
        world.store.instead.clear()
        assert engine.live.recordings == {}
        run = await turn(engine, run_id="r1", session_id="s", idempotency_key="k")
        assert run.outcome == "completed"


async def test_failing_read_is_not_a_missing_session(world: World) -> None:
    """A store that cannot be read answers with its error; no empty session takes the place of the old one (o-sto-05)."""
    async with world.running(echo) as engine:
        await turn(engine, session_id="s")

        async def refuse(*args: object) -> None:
            raise StorageUnavailable("locked")

        world.store.instead["session"] = refuse
        with pytest.raises(StorageUnavailable):
            await engine.start(OWNER, ask(session_id="s"))
        with pytest.raises(StorageUnavailable):
            await engine.history(OWNER, "s")
        world.store.instead.clear()
        assert text_in(await read_all(engine, (await turn(engine, "q", session_id="s")).id)) == "q after 2"


async def test_history_that_cannot_be_read_for_the_agent(world: World) -> None:
    """When what the agent is to be told cannot be read, the run is interrupted(storage), not failed by its agent."""
    async with world.running(echo) as engine:

        async def refuse(*args: object) -> None:
            raise StorageUnavailable("locked")

        await turn(engine, session_id="s")
        world.store.instead["chain_rows"] = refuse
        run = await turn(engine, session_id="s")
        assert (run.outcome, run.reason) == ("interrupted", "storage")


async def test_pause_during_trouble(world: World) -> None:
    """A run that pauses while the store fails is waiting once the store has taken it."""
    async with world.running(Gatekeeper("a1"), **PATIENT) as engine:
        world.store.fail()
        started = await engine.start(OWNER, ask())
        await failures(world, 3)
        world.store.heal()
        await read_until(engine, started.run.id, RunPaused)
        await bounded(engine.live.wait_idle(5))
        assert (await world.store.run(OWNER, started.run.id)).status == "waiting"
        await engine.stop(OWNER, started.run.id)
