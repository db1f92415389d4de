"""What nobody asks for: deleting what must not be stored, compaction."""

from __future__ import annotations

import pytest

from runstone.core.items import Message
from runstone.engine.engine import Engine
from runstone.errors import CursorExpired, NotFound
from runstone.testing import ManualClock
from tests.engine.support import (
    OWNER,
    Held,
    World,
    ask,
    bounded,
    echo,
    ended,
    kinds,
    read_all,
    speaking,
    text_in,
    turn,
)

DAY = 24 * 3600.0


async def gone(world: World, engine: Engine, run_id: str) -> None:
    """The run's content has been deleted, its outcome has not."""
    await bounded(engine.live.wait_idle(5))
    assert await world.store.events(OWNER, run_id, after=0, limit=10) == []
    assert await world.store.run_rows(OWNER, run_id) == []
    run = await engine.run(OWNER, run_id)
    assert run.outcome == "completed"
    with pytest.raises(CursorExpired):
        await engine.reader(OWNER, run_id)


async def test_unstored_run_goes_soon_after_its_end(world: World) -> None:
    """With `store` off the run can be read, and read again after a lost connection, for a minute; then its outcome is left."""
    held, clock = Held(), ManualClock()
    async with world.running(held, clock=clock) as engine:
        started = await engine.start(OWNER, ask("secret", store=False, metadata={"k": "v"}))
        first = await engine.reader(OWNER, started.run.id)
        second = await engine.reader(OWNER, started.run.id)
        held.release.set()
        for reader in (first, second):
            while await bounded(reader.read()):
                pass
        first.close()
        clock.advance(59)
        await engine._upkeep.sweep()
        assert text_in(await read_all(engine, started.run.id)) != ""
        clock.advance(2)
        await engine._upkeep.sweep()
        assert await world.store.events(OWNER, started.run.id, after=0, limit=1) != []
        second.close()
        await engine._upkeep.sweep()
        await gone(world, engine, started.run.id)
        assert (await engine.run(OWNER, started.run.id)).metadata == {}


async def test_unstored_runs_go_however_many_they_are(world: World) -> None:
    """One sweep deletes all that are due, also those that nobody ever read."""
    clock = ManualClock()
    async with world.running(echo, clock=clock) as engine:
        runs = [(await turn(engine, store=False)).id for _ in range(220)]
        clock.advance(61)
        await engine._upkeep.sweep()
        assert await world.store.ended(stored=False, before=clock.now, limit=10) == []
        await gone(world, engine, runs[0])


async def test_unstored_run_goes_after_ten_minutes_although_it_is_read(world: World) -> None:
    """A reader that never leaves does not keep an unstored run longer than its time; it is told that the rest is gone."""
    clock = ManualClock()
    async with world.running(speaking(*["x "] * 500), clock=clock, ring_events=10, page_events=10) as engine:
        started = await engine.start(OWNER, ask(store=False))
        reader = await engine.reader(OWNER, started.run.id)
        await reader.read()
        await bounded(engine.live.wait_idle(5))
        clock.advance(601)
        await engine._upkeep.sweep()
        with pytest.raises(CursorExpired):
            while await bounded(reader.read()):
                pass
        reader.close()
        await gone(world, engine, started.run.id)


async def test_crash_does_not_keep_unstored_runs(world: World) -> None:
    """What a crash left of an unstored run goes with a later sweep."""
    clock = ManualClock()
    engine = world.engine(Held(), clock=clock)
    await engine.open()
    started = await engine.start(OWNER, ask(store=False))
    await world.crash(engine)
    async with world.running(echo, clock=clock) as engine:
        await ended(engine, started.run.id)
        await bounded(engine.live.wait_idle(5))
        clock.advance(601)
        await engine._upkeep.sweep()
        assert await world.store.events(OWNER, started.run.id, after=0, limit=1) == []


async def test_compaction(world: World) -> None:
    """A day after its end a run's deltas go; its history and record stay, its stream is expired, and a sweep finds it done."""
    clock = ManualClock()
    async with world.running(speaking("a", "b"), clock=clock) as engine:
        run = await turn(engine, session_id="s")
        before = await engine.history(OWNER, "s")
        clock.advance(DAY - 1)
        await engine._upkeep.sweep()
        assert text_in(await read_all(engine, run.id)) == "ab"
        clock.advance(2)
        await engine._upkeep.sweep()
        with pytest.raises(CursorExpired):
            await engine.reader(OWNER, run.id, after=3)
        page = await engine.history(OWNER, "s")
        assert page.rows == before.rows
        kept = await world.store.events(OWNER, run.id, after=0, limit=100)
        assert "TextDelta" not in kinds(kept)
        assert kept[-1].seq == run.last_seq
        assert await world.store.ended(stored=True, before=clock.now, limit=10) == []
        second = await turn(engine, session_id="s")
        assert second.first_position > kept[-1].position
        message = (await engine.history(OWNER, "s")).rows[-1].item
        assert isinstance(message, Message)


async def test_sweep_goes_through_many_runs(world: World) -> None:
    """More runs than one sweep takes are done by the next ones."""
    clock = ManualClock()
    async with world.running(echo, clock=clock) as engine:
        for n in range(45):
            await turn(engine, run_id=f"r{n}")
        clock.advance(DAY + 1)
        for _ in range(3):
            await engine._upkeep.sweep()
        assert await world.store.ended(stored=True, before=clock.now, limit=10) == []


async def test_sweep_of_an_empty_store(world: World) -> None:
    """It does nothing."""
    async with world.running(echo) as engine:
        await engine._upkeep.sweep()
        with pytest.raises(NotFound):
            await engine.run(OWNER, "r")
