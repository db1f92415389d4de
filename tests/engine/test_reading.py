"""Reading runs: cursors, the resume law, many readers, back-pressure, what is too large for memory."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runstone.core.events import Body, Custom, Event, RunCreated, RunEnded, RunStarted, TextDelta
from runstone.core.runs import RunRequest
from runstone.engine.engine import Engine
from runstone.errors import CursorExpired, CursorUnknown, NotFound
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
    ended,
    kinds,
    read_all,
    read_until,
    settle,
    speaking,
    stored,
    text_in,
    turn,
)
from tests.protocols.strategies import Shape, runs

#: What only the engine says; the rest of a random run is what its agent said.
SAID_BY_ENGINE = {"RunCreated", "RunStarted", "RunEnded"}
PLAIN = Shape(approvals=False, steering=False, attempts=False, client_tools=False, open_end=False)


async def test_stream_of_a_simple_run(world: World) -> None:
    """A run is created, started, says its words, and ends; numbers have no gaps."""
    async with world.running(speaking("a", "b")) as engine:
        run = await turn(engine)
        events = await read_all(engine, run.id)
        check_numbers(events)
        assert kinds(events) == [
            "RunCreated",
            "RunStarted",
            "StepStarted",
            "ItemStarted",
            "TextDelta",
            "TextDelta",
            "ItemEnded",
            "StepEnded",
            "RunEnded",
        ]
        assert run.last_seq == len(events)
        assert await world.store.last_seq(OWNER, run.id) == len(events)


def script_of(events: list[Event]) -> list[Body]:
    """What an agent has to say so that a run of these events comes out."""
    return [event.body for event in events if type(event.body).__name__ not in SAID_BY_ENGINE]


@settings(max_examples=15)
@given(events=runs(PLAIN), page=st.integers(1, 5), ring=st.integers(1, 6))
def test_resume_law(events: list[Event], page: int, ring: int) -> None:
    """For every cursor of a random run, live or stored, what follows it is the tail of the whole: each event once (o-run-02)."""
    script = script_of(events)

    async def check(world: World) -> None:
        async with world.running(ScriptedRunner(script), ring_events=ring, page_events=page) as engine:
            started = await engine.start(OWNER, ask())
            live = await read_all(engine, started.run.id)
            assert [event.body for event in live[2:]][: len(script)] == script
            check_numbers(live)
        async with world.running(ScriptedRunner([]), page_events=page) as engine:
            for cursor in range(len(live) + 1):
                assert await read_all(engine, started.run.id, after=cursor) == live[cursor:]

    asyncio.run(check(World("memory", Path("unused"))))


async def test_resume_at_every_cursor_of_a_stored_run(world: World) -> None:
    """After a restart every cursor gives exactly what follows it, the newest one nothing, at once (o-run-02)."""
    async with world.running(speaking(*"abcdefgh"), ring_events=3, page_events=2) as engine:
        run = await turn(engine)
        whole = await read_all(engine, run.id)
    async with world.running(speaking(), page_events=3) as engine:
        for cursor in range(len(whole) + 1):
            assert await read_all(engine, run.id, after=cursor) == whole[cursor:]


@pytest.mark.parametrize("is_ended", [False, True])
async def test_cursor_that_is_no_event_of_the_run(world: World, is_ended: bool) -> None:
    """A cursor below 0 or above the newest visible event is refused, and leaves nothing behind (o-run-03)."""
    held = Held()
    async with world.running(held) as engine:
        started = await engine.start(OWNER, ask())
        run_id = started.run.id
        seen = await read_until(engine, run_id, TextDelta)
        if is_ended:
            held.release.set()
            seen = await read_all(engine, run_id)
        for cursor in (-1, seen[-1].seq + 1, 10**12):
            with pytest.raises(CursorUnknown):
                await engine.reader(OWNER, run_id, after=cursor)
        with pytest.raises(NotFound):
            await engine.reader(OWNER, "nope")
        held.release.set()
        await ended(engine, run_id)


async def test_nothing_is_visible_before_it_is_stored(world: World) -> None:
    """While the store holds a batch back no reader sees it, and no cursor into it is valid."""
    async with world.running(Held()) as engine:
        started = await engine.start(OWNER, ask())
        reader = await engine.reader(OWNER, started.run.id)
        await bounded(reader.read())
        world.store.hold = asyncio.Event()
        stop = asyncio.create_task(engine.stop(OWNER, started.run.id))
        reading = asyncio.create_task(read_all(engine, started.run.id))
        await settle(200)
        assert not stop.done()
        assert not reading.done()
        world.store.hold.set()
        assert (await bounded(stop)).outcome == "cancelled"
        assert kinds(await bounded(reading))[-1] == "RunEnded"
        reader.close()


async def test_sixteen_readers_joining_at_random_moments(world: World) -> None:
    """Readers that join a fast run at any moment, at any cursor, some of them stalled, each get every event once, in order."""
    rng = random.Random(7)
    total = 3_000

    async with world.running(speaking(*(f"{n} " for n in range(total))), ring_events=200, page_events=50) as engine:
        started = await engine.start(OWNER, ask())
        run_id = started.run.id
        finished = asyncio.Event()

        async def follow(n: int) -> list[Event]:
            await settle(rng.randrange(60))
            seen = engine.live.recordings[(OWNER, run_id)].committed if (OWNER, run_id) in engine.live.recordings else 0
            after = rng.randrange(seen + 1)
            reader = await engine.reader(OWNER, run_id, after=after)
            events: list[Event] = []
            try:
                while found := await reader.read():
                    assert found[0].seq == (events[-1].seq if events else after) + 1
                    events += found
                    if n % 4 == 0 and len(events) < 400:
                        await finished.wait()
                    await settle(rng.randrange(3))
            finally:
                reader.close()
            return events

        followers = [asyncio.create_task(follow(n)) for n in range(16)]
        whole = await read_all(engine, run_id)
        finished.set()
        check_numbers(whole)
        for events in await bounded(asyncio.gather(*followers)):
            assert events == whole[events[0].seq - 1 :]


async def test_stalled_readers_neither_slow_the_run_nor_fill_memory(memory: World) -> None:
    """With 16 readers that never read on, the run ends, and of its events only a ring's worth stays in memory."""
    total = 20_000
    async with memory.running(speaking(*["word "] * total), ring_events=500) as engine:
        started = await engine.start(OWNER, ask())
        stalled = [await engine.reader(OWNER, started.run.id) for _ in range(16)]
        await ended(engine, started.run.id)
        recording = engine.live.recordings[(OWNER, started.run.id)]
        assert recording.committed == total + 7
        kept = sum(len(stretch.events) for stretch in recording._ring)
        assert kept <= 500 + 2 * engine.config.slice_events
        assert recording._waiters == []
        for reader in stalled:
            events: list[Event] = []
            while found := await reader.read():
                events += found
            assert [event.seq for event in events] == list(range(1, total + 8))
            reader.close()


async def test_agent_far_ahead_of_the_log_waits(memory: World) -> None:
    """An agent that is 2,000 events ahead of a slow store is held until the store has caught up."""
    said = 0

    async def fast(request: RunRequest, context: RunContext) -> None:
        nonlocal said
        composer = Composer(context)
        for _ in range(10_000):
            composer.text("x")
            said += 1
            if context.must_wait:
                await context.wait()
        composer.close()

    async with memory.running(fast) as engine:
        memory.store.hold = asyncio.Event()
        started = await engine.start(OWNER, ask())
        await settle(2_000)
        assert 2_000 <= said <= 2_000 + 2 * engine.config.slice_events
        memory.store.hold.set()
        assert (await ended(engine, started.run.id)).outcome == "completed"
        assert said == 10_000


async def test_agent_with_large_events_waits_for_bytes(memory: World) -> None:
    """The limit also counts bytes: a few megabytes that are not stored yet hold the agent."""
    said = 0

    async def large(request: RunRequest, context: RunContext) -> None:
        nonlocal said
        for _ in range(100):
            context.emit(Custom(name="blob", data="x" * 1_000_000))
            said += 1
            if context.must_wait:
                await context.wait()

    async with memory.running(large) as engine:
        memory.store.hold = asyncio.Event()
        started = await engine.start(OWNER, ask())
        await settle(500)
        assert said <= 10
        reader = await engine.reader(OWNER, started.run.id)
        memory.store.hold.set()
        count = 0
        while found := await bounded(reader.read()):
            count += len(found)
            recording = engine.live.recordings[(OWNER, started.run.id)]
            assert sum(stretch.size_bytes for stretch in recording._ring) <= 12_000_000
        assert count == 103
        reader.close()


async def test_one_huge_event(world: World) -> None:
    """An event of 5 MB passes live and from the store (o-sse-12)."""
    async with world.running(speaking("x" * 5_000_000, "y")) as engine:
        run = await turn(engine)
        events = await read_all(engine, run.id)
        assert len(text_in(events)) == 5_000_001
        assert (await read_all(engine, run.id, after=5))[0].body == TextDelta(item_id="i2", text="y")


async def test_stop_in_every_moment_reaches_all_readers_once(world: World) -> None:
    """Resuming exactly while a run ends gives its end exactly once and closes, in 200 tries (o-run-04, o-run-06)."""
    async with world.running(speaking("a", "b", "c")) as engine:
        for n in range(200):
            started = await engine.start(OWNER, ask())
            await settle(n % 23)
            recording = engine.live.recordings.get((OWNER, started.run.id))
            after = recording.committed if recording is not None else 10
            first, second = await bounded(
                asyncio.gather(read_all(engine, started.run.id, after=after), read_all(engine, started.run.id))
            )
            check_numbers(second)
            assert [type(event.body) for event in second].count(RunEnded) == 1
            assert first == second[after:]
        assert engine.live.recordings == {}


async def test_closed_and_cancelled_readers_leave_nothing(memory: World) -> None:
    """Readers that close or are cancelled while they wait are not kept by a run that says nothing."""
    held = Held()
    async with memory.running(held) as engine:
        started = await engine.start(OWNER, ask())
        await read_until(engine, started.run.id, TextDelta)
        recording = engine.live.recordings[(OWNER, started.run.id)]
        for _ in range(100):
            reader = await engine.reader(OWNER, started.run.id, after=recording.committed)
            reading = asyncio.create_task(reader.read())
            await settle(2)
            reading.cancel()
            await asyncio.wait({reading})
            reader.close()
            reader.close()
        reader = await engine.reader(OWNER, started.run.id, after=recording.committed)
        for _ in range(100):
            reading = asyncio.create_task(reader.read())
            await settle(2)
            reader.wake()
            assert await bounded(reading) is None
        assert recording._waiters == []
        assert recording.readers == 1
        reader.close()
        held.release.set()
        await ended(engine, started.run.id)


async def test_reader_of_a_run_that_is_just_being_created(world: World) -> None:
    """A reader that finds the run the moment it is stored reads it to its end, as does its starter."""
    async with world.running(speaking("a")) as engine:
        for n in range(50):
            run_id = f"r{n}"
            starting = asyncio.create_task(engine.start(OWNER, ask(run_id=run_id)))
            await stored(world, run_id)
            events = await bounded(read_all(engine, run_id))
            assert isinstance(events[0].body, RunCreated)
            assert isinstance(events[-1].body, RunEnded)
            await bounded(starting)


async def test_stop_of_a_run_that_is_just_being_created(world: World) -> None:
    """A run that is stopped the moment it is stored ends once, cancelled, and its agent is not begun afterwards."""
    async with world.running(speaking("a")) as engine:
        for n in range(50):
            run_id = f"r{n}"
            starting = asyncio.create_task(engine.start(OWNER, ask(run_id=run_id)))
            await stored(world, run_id)
            run = await bounded(engine.stop(OWNER, run_id))
            await bounded(starting)
            events = await read_all(engine, run_id)
            assert [type(event.body) for event in events].count(RunEnded) == 1
            assert (await engine.run(OWNER, run_id)).outcome == run.outcome


async def test_time_never_goes_back_in_a_run(world: World) -> None:
    """When the machine's clock goes back an hour, order, numbers and durations stay right, also after a restart (o-sto-10)."""
    now = [1_000_000.0]
    held = Held()
    async with world.running(held, clock=lambda: now[0]) as engine:
        started = await engine.start(OWNER, ask(session_id="s"))
        await read_until(engine, started.run.id, TextDelta)
        now[0] -= 3_600
        held.release.set()
        run = await ended(engine, started.run.id)
        events = await read_all(engine, run.id)
        check_numbers(events)
        assert run.started_at is not None
        assert run.ended_at is not None
        assert run.created_at <= run.started_at <= run.ended_at
        second = await turn(engine, session_id="s")
        assert (await read_all(engine, second.id))[0].position > events[-1].position
        rows = (await engine.history(OWNER, "s")).rows
        assert [row.run_id for row in rows] == [run.id, run.id, second.id, second.id]


async def test_positions_rise_through_the_session(world: World) -> None:
    """Positions rise over all runs of a session, also over a restart."""
    position = 0
    for _ in range(2):
        async with world.running(speaking("a", "b")) as engine:
            for _ in range(3):
                run = await turn(engine, session_id="s")
                events = await read_all(engine, run.id)
                assert events[0].position > position
                assert run.first_position == events[0].position
                position = events[-1].position


async def test_expired_cursor_while_reading(world: World) -> None:
    """A reader whose events are deleted under it is told so, instead of a stream that seems complete."""
    async with world.running(speaking(*"abcdef"), page_events=2) as engine:
        run = await turn(engine, session_id="s")
        reader = await engine.reader(OWNER, run.id)
        assert await reader.read()
        await world.store.compact(OWNER, run.id)
        with pytest.raises(CursorExpired):
            while await reader.read():
                pass
        reader.close()


async def check_session(engine: Engine, run_ids: list[str], events: list[tuple[str, Event]]) -> None:
    """Every event of the runs was seen once, in the order of positions."""
    whole = [(run_id, event) for run_id in run_ids for event in await read_all(engine, run_id)]
    whole.sort(key=lambda found: found[1].position)
    assert events == whole


async def test_session_reader_sees_all_runs_once(world: World) -> None:
    """A subscriber of a session gets each event of runs that go on side by side once, by position, their first ones too."""
    async with world.running(speaking(*"abcdefgh")) as engine:
        base = await turn(engine, session_id="s")
        reader = await engine.session_reader(OWNER, "s", after=0)
        started = await asyncio.gather(
            *(engine.start(OWNER, ask(continues=base.id, run_id=f"r{n}", busy="queue")) for n in range(8))
        )
        seen: list[tuple[str, Event]] = []
        ends = 0
        while ends < 9:
            found = await bounded(reader.read())
            assert found
            seen += [(event.run_id, event.event) for event in found]
            ends += sum(isinstance(event.event.body, RunEnded) for event in found)
        reader.close()
        await check_session(engine, [base.id, *(one.run.id for one in started)], seen)


async def test_session_reader_from_now_on_sees_the_start_of_the_next_run(world: World) -> None:
    """A subscriber from now on sees the next run from its first event."""
    async with world.running(speaking("a")) as engine:
        await turn(engine, session_id="s")
        reader = await engine.session_reader(OWNER, "s")
        run = await turn(engine, session_id="s")
        seen: list[Event] = []
        while not seen or not isinstance(seen[-1].body, RunEnded):
            seen += [found.event for found in await bounded(reader.read())]
        reader.close()
        assert seen == await read_all(engine, run.id)
        assert isinstance(seen[1].body, RunStarted)
