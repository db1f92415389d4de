"""The fakes behave as the engine does."""

from __future__ import annotations

import asyncio

import pytest

from runstone.core.events import ItemStarted, TextDelta
from runstone.errors import LocalProtocolError, NotFound
from runstone.runners.base import RunContext
from runstone.testing import CountingIds, FakeContext, ManualClock, ScriptedRunner, drive, events, run_request, said


async def test_a_scripted_runner_says_its_script() -> None:
    """What it emits is the transcript; it remembers what it was given."""
    runner = ScriptedRunner(said("Hello", chunks=["He", "llo"]))
    request = run_request("hi")
    context = await drive(runner, request, wait_every=2)
    assert context.text == "Hello"
    assert context.waits == 2
    assert runner.requests == [request]
    await runner.close()
    assert runner.is_closed


async def test_a_fake_context_refuses_what_the_lifecycle_refuses() -> None:
    """An illegal body raises where it is emitted."""

    async def script(request: object, context: RunContext) -> None:
        context.emit(TextDelta(item_id="i1", text="x"))

    with pytest.raises(LocalProtocolError, match="no open message has the id 'i1'"):
        await drive(ScriptedRunner(script))


async def test_a_fake_context_knows_only_its_bytes() -> None:
    """Other references are not found."""
    context = FakeContext(blobs={"a": b"x"})
    assert await context.blob("a") == b"x"
    with pytest.raises(NotFound):
        await context.blob("b")


def test_ids_and_events_are_counted() -> None:
    """Each prefix counts by itself; events are numbered and a second apart."""
    ids = CountingIds()
    assert [ids("a_"), ids("b_"), ids("a_")] == ["a_1", "b_1", "a_2"]
    first, second = events([ItemStarted(item_id="i", kind="message"), TextDelta(item_id="i", text="x")], at=10.0)
    assert (first.seq, first.at, second.seq, second.at) == (1, 10.0, 2, 11.0)


async def test_a_manual_clock_wakes_sleepers_when_it_is_moved() -> None:
    """Nobody wakes early, everybody wakes when due."""
    clock = ManualClock(100.0)
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock())

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (1.0, 5.0)]
    await asyncio.sleep(0)
    clock.advance(2.0)
    await tasks[0]
    assert woken == [102.0]
    clock.advance(3.0)
    await tasks[1]
    assert woken == [102.0, 105.0]
