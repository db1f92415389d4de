"""Agents that behave badly: only their own run suffers, and it has exactly one outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runstone.core.content import TextPart
from runstone.core.events import (
    ArgumentsDelta,
    Body,
    Custom,
    Event,
    ItemEnded,
    ItemStarted,
    RunContinued,
    RunEnded,
    RunPaused,
    RunStarted,
    TextDelta,
    ToolProgress,
)
from runstone.core.items import Message, ToolCall, ToolResult
from runstone.core.lifecycle import RunState
from runstone.core.runs import RunRequest
from runstone.core.transcript import fold
from runstone.errors import RunnerError
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
    function,
    read_all,
    settle,
    text_in,
    turn,
)
from tests.protocols.strategies import Shape, runs


async def raising(request: RunRequest, context: RunContext) -> None:
    """Says something and raises."""
    Composer(context).text("half")
    raise ValueError("secret detail")


async def test_agent_that_raises(world: World) -> None:
    """The run fails, what it said stays, and the exception's text is shown to nobody."""
    async with world.running(raising) as engine:
        run = await turn(engine, session_id="s")
        assert (run.outcome, run.reason) == ("failed", "agent_error")
        assert run.error is not None
        assert "secret" not in run.error.message
        page = await engine.history(OWNER, "s")
        message = page.rows[-1].item
        assert isinstance(message, Message)
        assert (message.text, message.status) == ("half", "incomplete")


async def test_runner_error_is_shown(world: World) -> None:
    """A `RunnerError`'s code and message reach the caller, also with text that cannot be stored as it is."""

    async def wrong(request: RunRequest, context: RunContext) -> None:
        raise RunnerError("no\ud83d key", code="no_key")

    async with world.running(wrong) as engine:
        run = await turn(engine)
        assert run.error is not None
        assert (run.error.code, run.error.message) == ("no_key", "no\ufffd key")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
async def test_agent_that_raises_what_is_no_exception(world: World, error: BaseException) -> None:
    """Exits and cancellations that the agent raises itself fail its run and nothing else."""

    async def leaving(request: RunRequest, context: RunContext) -> None:
        raise error

    async with world.running({"bad": leaving, "good": echo}) as engine:
        assert (await turn(engine)).outcome == "failed"
        assert (await turn(engine, agent="good")).outcome == "completed"


async def test_function_agents_that_go_wrong(world: World) -> None:
    """Plain functions that return nothing, return nonsense, or raise before their first word."""

    async def nothing(messages: list[Any]) -> None:
        return None

    async def nonsense(messages: list[Any]) -> Any:
        return object()

    def at_once(messages: list[Any]) -> str:
        raise RuntimeError("at once")

    agents = {"nothing": function(nothing), "nonsense": function(nonsense), "at_once": function(at_once)}
    async with world.running(agents) as engine:
        outcomes = {name: (await turn(engine, agent=name)).outcome for name in agents}
        assert outcomes == {"nothing": "completed", "nonsense": "failed", "at_once": "failed"}


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2, object()}, {("a", "b"): 1}],
    ids=["object", "set of objects", "tuple key"],
)
async def test_value_that_cannot_be_stored_fails_its_own_run_only(world: World, value: object) -> None:
    """What JSON cannot carry fails the run that says it; others in the same batch go on."""
    held = Held()

    async def odd(request: RunRequest, context: RunContext) -> None:
        context.emit(Custom(name="fine", data=1))
        context.emit(Custom(name="odd", data=value))

    async with world.running({"odd": odd, "held": held}) as engine:
        other = await engine.start(OWNER, ask(agent="held"))
        await held.started.wait()
        started = await engine.start(OWNER, ask(agent="odd"))
        held.release.set()
        assert (await ended(engine, started.run.id)).outcome == "failed"
        assert text_in(await read_all(engine, other.run.id)) == "one two"


async def test_endless_nesting_fails_its_own_run_only(world: World) -> None:
    """A value nested too deeply, or within itself, fails the run that says it."""
    deep: list[Any] = []
    deep.append(deep)

    async def odd(request: RunRequest, context: RunContext) -> None:
        context.emit(Custom(name="odd", data=deep))

    async with world.running(odd) as engine:
        assert (await turn(engine)).outcome == "failed"


async def test_surrogates_and_nul_in_all_that_an_agent_says(world: World) -> None:
    """Lone surrogates become U+FFFD, NUL stays, live and stored alike (o-sto-06)."""

    async def odd(request: RunRequest, context: RunContext) -> None:
        composer = Composer(context)
        composer.text("a\x00b\ud83d")
        call = composer.tool_call("t", {"k\x00": "v"})
        composer.tool_progress(call, {"\udc00": ["\ud800"]})
        composer.tool_result(call, "r\ud83d")
        composer.close()

    async with world.running(odd) as engine:
        run = await turn(engine, session_id="s")
        live = await read_all(engine, run.id)
        assert run.outcome == "completed"
        assert text_in(live) == "a\x00b\ufffd"
        assert [e.body.data for e in live if isinstance(e.body, ToolProgress)] == [{"\ufffd": ["\ufffd"]}]
        results = [row.item for row in (await engine.history(OWNER, "s")).rows if isinstance(row.item, ToolResult)]
        assert [result.text for result in results] == ["r\ufffd"]
    async with world.running(odd) as engine:
        assert await read_all(engine, run.id) == live


async def test_value_that_the_agent_changes_afterwards(world: World) -> None:
    """What an agent does to a mapping after it has said it changes neither the log nor what live readers see."""
    data: dict[Any, Any] = {"n": 1, 2: (3, float("nan"))}

    async def changing(request: RunRequest, context: RunContext) -> None:
        context.emit(Custom(name="d", data=data))
        data["n"] = object()

    async with world.running(changing) as engine:
        run = await turn(engine)
        assert run.outcome == "completed"
        live = await read_all(engine, run.id)
        assert [event.body.data for event in live if isinstance(event.body, Custom)] == [{"n": 1, "2": [3, None]}]
    async with world.running(changing) as engine:
        assert await read_all(engine, run.id) == live


@pytest.mark.parametrize(
    "body",
    [RunStarted(), RunEnded(outcome="completed"), RunPaused(approvals=["x"]), RunContinued()],
    ids=lambda body: type(body).__name__,
)
async def test_agent_cannot_say_what_is_the_engines(world: World, body: Body) -> None:
    """A runner that emits what only the engine may say fails, and its run still has one end."""

    async def forging(request: RunRequest, context: RunContext) -> None:
        context.emit(body)

    async with world.running(forging) as engine:
        run = await turn(engine)
        assert run.outcome == "failed"
        events = await read_all(engine, run.id)
        assert [type(event.body) for event in events].count(RunEnded) == 1


async def test_illegal_order_fails_the_run(world: World) -> None:
    """A runner that breaks the order of events fails; what was legal before stays."""

    async def wrong(request: RunRequest, context: RunContext) -> None:
        context.emit(ItemStarted(item_id="i1", kind="message"))
        context.emit(TextDelta(item_id="i2", text="x"))

    async with world.running(wrong) as engine:
        run = await turn(engine)
        assert run.outcome == "failed"
        fold(run.id, await read_all(engine, run.id))


@settings(max_examples=60)
@given(
    events=runs(Shape(approvals=False, steering=False, attempts=False)), cut=st.integers(0, 200), error=st.booleans()
)
def test_agent_that_leaves_off_anywhere(events: list[Event], cut: int, error: bool) -> None:
    """Wherever an agent leaves off, its run ends once, legally, with every server call answered."""
    bodies = [event.body for event in events if not isinstance(event.body, RunEnded)][2:][:cut]

    async def leaving(request: RunRequest, context: RunContext) -> None:
        for body in bodies:
            context.emit(body)
        if error:
            raise ValueError

    async def check() -> None:
        from pathlib import Path

        async with World("memory", Path("unused")).running(leaving) as engine:
            run = await turn(engine, session_id="s")
            assert run.outcome == ("failed" if error else "completed")
            whole = await read_all(engine, run.id)
            transcript = fold(run.id, whole)
            assert transcript.state.ended is not None
            assert (await engine.history(OWNER, "s", limit=1000)).rows == transcript.rows
            calls = {i.call_id for i in transcript.items if isinstance(i, ToolCall) and i.executor == "server"}
            results = [item.call_id for item in transcript.items if isinstance(item, ToolResult)]
            assert calls <= set(results)

    asyncio.run(check())


async def test_open_call_gets_a_synthetic_result(world: World) -> None:
    """A call that is open when the run fails has an error result in history, and the next turn's input is well formed."""
    told: list[RunRequest] = []

    async def half(request: RunRequest, context: RunContext) -> None:
        told.append(request)
        if len(told) > 1:
            return
        context.emit(ItemStarted(item_id="i1", kind="tool_call", call_id="c1", name="search"))
        context.emit(ArgumentsDelta(item_id="i1", text='{"q": '))
        raise ValueError

    async with world.running(half) as engine:
        await turn(engine, session_id="s")
        await turn(engine, session_id="s")
        call, result = told[1].history[1:]
        assert isinstance(call, ToolCall)
        assert isinstance(result, ToolResult)
        assert result.call_id == call.call_id == "c1"
        assert result.is_error
        assert result.synthetic


async def test_client_calls_complete_the_run_and_the_next_turn_brings_results(world: World) -> None:
    """Open calls of the client complete the run with `client_tools`; the next turn answers them; a wrong id is refused."""
    from runstone.core.commands import Start
    from runstone.errors import InvalidRequest

    told: list[RunRequest] = []

    async def calling(request: RunRequest, context: RunContext) -> None:
        told.append(request)
        composer = Composer(context)
        if len(told) == 1:
            composer.tool_call("pick", "{}", "c1", executor="client")
        composer.close()

    def result(call_id: str) -> Start:
        item = ToolResult(item_id="in1", call_id=call_id, output=[TextPart(text="7")], executor="client")
        return Start(surface="test", input=[item], session_id="s")

    async with world.running(calling) as engine:
        run = await turn(engine, session_id="s")
        assert (run.outcome, run.reason) == ("completed", "client_tools")
        with pytest.raises(InvalidRequest):
            await engine.start(OWNER, result("c2"))
        started = await engine.start(OWNER, result("c1"))
        await ended(engine, started.run.id)
        assert [type(item).__name__ for item in told[1].history] == ["Message", "ToolCall"]
        assert [item.call_id for item in told[1].input if isinstance(item, ToolResult)] == ["c1"]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("length", "max_output_tokens"), ("content_filter", "content_filter"), ("stop", None)],
)
async def test_cut_answers_say_so(world: World, reason: str, expected: str | None) -> None:
    """What the model said of its end becomes the reason of `completed` (o-cht-08)."""

    async def cut(request: RunRequest, context: RunContext) -> None:
        composer = Composer(context)
        composer.text("x")
        composer.end_step(finish_reason=reason)

    async with world.running(cut) as engine:
        run = await turn(engine)
        assert (run.outcome, run.reason) == ("completed", expected)


async def test_run_timeout_ends_as_interrupted(world: World) -> None:
    """A run that takes longer than `run_timeout` is interrupted(deadline), its agent cancelled, its text kept."""
    held = Held()
    async with world.running(held, run_timeout=0.05) as engine:
        run = await turn(engine, session_id="s")
        assert (run.outcome, run.reason) == ("interrupted", "deadline")
        assert held.was_cancelled
        assert isinstance((await engine.history(OWNER, "s")).rows[-1].item, Message)


class Stubborn:
    """An agent that ignores cancellation: it goes on until it is let go."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.is_over = asyncio.Event()

    async def __call__(self, request: RunRequest, context: RunContext) -> None:
        """Run."""
        composer = Composer(context)
        composer.text("early ")
        self.started.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                composer.text("unwinding ")
        composer.text("late")
        composer.close()
        self.is_over.set()


async def test_agent_that_never_unwinds_is_disowned(world: World) -> None:
    """It gets its outcome by the deadline; what it says afterwards is dropped and counted, and the next turn works (o-run-07)."""
    stubborn = Stubborn()
    async with world.running({"stubborn": stubborn, "echo": echo}) as engine:
        started = await engine.start(OWNER, ask(session_id="s"))
        await stubborn.started.wait()
        recording = engine.live.recordings[(OWNER, started.run.id)]
        run = await bounded(engine.stop(OWNER, started.run.id))
        assert run.outcome == "cancelled"
        assert len(engine.live.disowned) == 1
        events = await read_all(engine, run.id)
        assert text_in(events) == "early unwinding "
        stubborn.release.set()
        await stubborn.is_over.wait()
        await settle()
        assert recording.dropped > 0
        assert engine.live.disowned == set()
        assert await read_all(engine, run.id) == events
        assert (await turn(engine, agent="echo", session_id="s")).outcome == "completed"


async def test_disowned_agent_that_talks_on_cannot_hold_the_loop(world: World) -> None:
    """A generator that ignores cancellation and yields for ever is ended where it would wait."""
    started = asyncio.Event()

    async def endless(messages: list[Any]) -> Any:
        while True:
            started.set()
            try:
                yield "x"
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue

    async with world.running(function(endless), stop_after=0.1) as engine:
        run = await engine.start(OWNER, ask())
        await started.wait()
        assert (await bounded(engine.stop(OWNER, run.run.id))).outcome == "cancelled"
        for _ in range(1_000):
            if not engine.live.disowned:
                break
            await settle(1)
        assert engine.live.disowned == set()


async def test_blocking_agent_does_not_hold_others(world: World) -> None:
    """An agent that blocks its thread is stopped in time, and others run meanwhile (o-run-07)."""
    import threading

    gate = threading.Event()
    entered = threading.Event()

    def blocking(messages: list[Any]) -> Any:
        yield "before"
        entered.set()
        gate.wait(30)
        yield "after"

    async with world.running({"blocking": function(blocking), "echo": echo}) as engine:
        started = await engine.start(OWNER, ask())
        await asyncio.to_thread(entered.wait, 5)
        assert (await turn(engine, agent="echo")).outcome == "completed"
        run = await bounded(engine.stop(OWNER, started.run.id))
        gate.set()
        assert run.outcome == "cancelled"
        events = await read_all(engine, run.id)
        assert text_in(events) == "before"
        check_numbers(events)


async def test_agent_is_told_nothing_of_items_that_failed_to_parse(world: World) -> None:
    """Items that end differently from their deltas are told to the next turn as they ended."""

    async def rewriting(request: RunRequest, context: RunContext) -> None:
        context.emit(ItemStarted(item_id="m", kind="message"))
        context.emit(TextDelta(item_id="m", text="draft"))
        context.emit(ItemEnded(item=Message(item_id="m", role="assistant", parts=[TextPart(text="final")])))
        told.append(request)

    told: list[RunRequest] = []
    async with world.running(rewriting) as engine:
        await turn(engine, session_id="s")
        await turn(engine, session_id="s")
        assert [item.text for item in told[1].history if isinstance(item, Message)] == ["hello", "final"]


async def test_state_after_a_run_is_the_fold_of_its_log(world: World) -> None:
    """Folding a stored run gives an ended state with nothing open."""
    async with world.running(echo) as engine:
        run = await turn(engine)
        state = RunState()
        state.advance_all(event.body for event in await read_all(engine, run.id))
        assert state.phase == "ended"
        assert not (state.open_items or state.open_steps or state.calls or state.approvals or state.inputs)
