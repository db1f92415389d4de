"""New input for a run that goes on, and answering a turn again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runstone.core.commands import Start
from runstone.core.events import InputReceived, InputSettled, RunEnded, TextDelta
from runstone.core.items import Item, Message, user_message
from runstone.core.runs import RunRequest
from runstone.errors import Conflict, NotFound, RunActive, Unsupported
from runstone.runners.base import RunContext
from runstone.runners.compose import Composer
from tests.engine.support import (
    OWNER,
    Held,
    World,
    ask,
    bounded,
    echo,
    ended,
    function,
    read_all,
    read_until,
    settle,
    speaking,
    text_in,
    text_of,
    turn,
)


class Listening:
    """An agent that takes new input once it is let go, and repeats it."""

    def __init__(self, *, takes: bool = True) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self._takes = takes

    async def __call__(self, request: RunRequest, context: RunContext) -> None:
        """Run."""
        composer = Composer(context)
        composer.text("start ")
        self.started.set()
        await self.release.wait()
        composer.close()
        for item in context.take_input() if self._takes else []:
            composer.text(f"heard {text_of([item])}")
        composer.close()


def words(text: str) -> list[Item]:
    """A message to steer with."""
    return [user_message("in1", text)]


async def test_delivered_input_has_its_place_in_history(world: World) -> None:
    """What the agent took is delivered once, and stands in history where it was taken."""
    agent = Listening()
    async with world.running(agent) as engine:
        started = await engine.start(OWNER, ask("q", session_id="s"))
        await agent.started.wait()
        receipt = await engine.steer(OWNER, started.run.id, words("more"), by="ann")
        agent.release.set()
        events = await read_all(engine, started.run.id)
        assert next(e.body.by for e in events if isinstance(e.body, InputReceived)) == "ann"
        settled = [event.body for event in events if isinstance(event.body, InputSettled)]
        assert [(body.input_id, body.outcome) for body in settled] == [(receipt.input_id, "delivered")]
        texts = [row.item.text for row in (await engine.history(OWNER, "s")).rows if isinstance(row.item, Message)]
        assert texts == ["q", "start ", "more", "heard more"]
        assert (await engine.run(OWNER, started.run.id)).outcome == "completed"


async def test_input_that_was_never_taken_is_returned(world: World) -> None:
    """The end names it, and history does not have it as said (o-hit-05)."""
    agent = Listening(takes=False)
    async with world.running(agent) as engine:
        started = await engine.start(OWNER, ask("q", session_id="s"))
        await agent.started.wait()
        receipt = await engine.steer(OWNER, started.run.id, words("more"))
        agent.release.set()
        events = await read_all(engine, started.run.id)
        settled = [event.body for event in events if isinstance(event.body, InputSettled)]
        assert [(body.input_id, body.outcome) for body in settled] == [(receipt.input_id, "returned")]
        end = events[-1].body
        assert isinstance(end, RunEnded)
        assert end.returned == [receipt.input_id]
        assert len((await engine.history(OWNER, "s")).rows) == 2


async def test_input_at_the_wrong_time_is_refused(world: World) -> None:
    """Queued, ended and unknown runs take no input, and nothing is held afterwards (o-hit-04)."""
    held = Held()
    async with world.running(held) as engine:
        first = await engine.start(OWNER, ask(session_id="s"))
        second = await engine.start(OWNER, ask(session_id="s", busy="queue"))
        with pytest.raises(Conflict) as refused:
            await engine.steer(OWNER, second.run.id, words("x"))
        assert refused.value.code == "run_not_accepting_steer"
        held.release.set()
        await ended(engine, second.run.id)
        with pytest.raises(Conflict) as refused:
            await engine.steer(OWNER, first.run.id, words("x"))
        assert refused.value.code == "run_not_accepting_steer"
        with pytest.raises(NotFound):
            await engine.steer(OWNER, "nope", words("x"))
        assert engine.live.recordings == {}


async def test_agent_without_inbox_cannot_be_steered(world: World) -> None:
    """It is refused with the capability's name."""
    gate = asyncio.Event()

    async def plain(messages: list[Any]) -> str:
        await gate.wait()
        return "x"

    async with world.running(function(plain)) as engine:
        started = await engine.start(OWNER, ask())
        with pytest.raises(Unsupported) as refused:
            await engine.steer(OWNER, started.run.id, words("x"))
        assert refused.value.capability == "steer"
        gate.set()
        await ended(engine, started.run.id)


async def test_input_at_the_moment_of_the_end(world: World) -> None:
    """200 times: it is refused, or in the log and settled once; never lost (o-hit-04)."""
    outcomes = set()
    async with world.running(speaking(*["word "] * 40)) as engine:
        for n in range(200):
            started = await engine.start(OWNER, ask())
            await settle(n % 16)
            try:
                receipt = await bounded(engine.steer(OWNER, started.run.id, words("x")))
            except Conflict:
                outcomes.add("refused")
                await ended(engine, started.run.id)
                continue
            events = await read_all(engine, started.run.id)
            settled = [event.body for event in events if isinstance(event.body, InputSettled)]
            assert [body.input_id for body in settled] == [receipt.input_id]
            outcomes.add(settled[0].outcome)
        assert "returned" in outcomes


async def test_policy_steer_delivers_into_the_running_run(world: World) -> None:
    """A start under `steer` attaches to the running run and says from which event on that answers it (o-run-09)."""
    agent = Listening()
    async with world.running(agent) as engine:
        first = await engine.start(OWNER, ask("q", session_id="s"))
        await agent.started.wait()
        second = asyncio.create_task(engine.start(OWNER, ask("more", session_id="s", busy="steer")))
        await read_until(engine, first.run.id, InputReceived)
        agent.release.set()
        found = await bounded(second)
        assert found.run.id == first.run.id
        assert found.attached
        events = await read_all(engine, first.run.id)
        assert isinstance(events[found.after - 1].body, InputSettled)
        assert text_in(events[found.after :]) == "heard more"


async def test_policy_steer_that_comes_too_late_becomes_a_turn(world: World) -> None:
    """What the running run never took starts a run of its own, once."""
    agent = Listening(takes=False)
    async with world.running(agent) as engine:
        first = await engine.start(OWNER, ask("q", session_id="s"))
        await agent.started.wait()
        second = asyncio.create_task(engine.start(OWNER, ask("more", session_id="s", busy="steer")))
        await read_until(engine, first.run.id, InputReceived)
        agent.release.set()
        found = await bounded(second)
        assert found.run.continues == first.run.id
        await ended(engine, found.run.id)
        texts = [row.item.text for row in (await engine.history(OWNER, "s")).rows if isinstance(row.item, Message)]
        assert texts == ["q", "start ", "more", "start "]


async def test_stopped_run_returns_its_input(world: World) -> None:
    """Input that waited when the run was stopped is returned with the end."""
    agent = Listening()
    async with world.running(agent) as engine:
        started = await engine.start(OWNER, ask())
        await agent.started.wait()
        receipt = await engine.steer(OWNER, started.run.id, words("x"))
        await bounded(engine.stop(OWNER, started.run.id))
        end = (await read_all(engine, started.run.id))[-1].body
        assert isinstance(end, RunEnded)
        assert (end.outcome, end.returned) == ("cancelled", [receipt.input_id])


async def test_regenerate_answers_the_turn_again(world: World) -> None:
    """A new run for the same turn: the question stands once, the old answer stays readable as an alternative (o-run-12)."""
    async with world.running(echo) as engine:
        await turn(engine, "a", session_id="s")
        b = await turn(engine, "b", session_id="s")
        again = await engine.regenerate(OWNER, b.id, Start(surface="test", input=[], run_id="r2", body=b"again"))
        assert again.run.turn == b.turn
        await ended(engine, "r2")
        rows = (await engine.history(OWNER, "s")).rows
        assert [row.run_id for row in rows][2:] == ["r2", "r2"]
        assert text_of([row.item for row in rows[2:]]) == "bb after 2"
        third = await engine.regenerate(OWNER, b.id, ask("b!", body=b"edited"))
        await ended(engine, third.run.id)
        assert text_in(await read_all(engine, third.run.id)) == "b! after 2"
        assert [run.id for run in await engine.alternatives(OWNER, "r2")] == [b.id, "r2", third.run.id]
        assert text_in(await read_all(engine, b.id)) == "b after 2"


async def test_regenerate_while_the_run_goes_on_is_refused(world: World) -> None:
    """There are never two parallel answers to one question (o-run-12)."""
    held = Held()
    async with world.running(held) as engine:
        started = await engine.start(OWNER, ask("q", session_id="s"))
        await read_until(engine, started.run.id, TextDelta)
        with pytest.raises(RunActive) as refused:
            await engine.regenerate(OWNER, started.run.id, ask())
        assert refused.value.run_id == started.run.id
        held.release.set()
        await ended(engine, started.run.id)
