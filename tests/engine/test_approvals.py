"""Approvals: pauses inside a call and between calls, decisions, expiry, who is faster."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from runstone.core.commands import Start
from runstone.core.content import TextPart
from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    RunContinued,
    RunEnded,
    RunPaused,
    TextDelta,
)
from runstone.core.items import ApprovalItem, ToolResult
from runstone.core.runs import Decision, Run, RunRequest
from runstone.engine.engine import Engine
from runstone.errors import AlreadyDecided, NotFound, StorageUnavailable
from runstone.runners.base import RunContext
from runstone.runners.compose import Composer
from runstone.runners.function import agent as declared
from runstone.testing import ManualClock
from tests.engine.support import (
    OWNER,
    World,
    ask,
    bounded,
    check_numbers,
    ended,
    function,
    kinds,
    read_all,
    read_until,
    settle,
    text_in,
    turn,
)


class Gatekeeper:
    """A runner that returns when it has asked, and is called again with the decisions. It runs what was decided, once."""

    def __init__(self, *approvals: str) -> None:
        self.requests: list[RunRequest] = []
        self.ran: list[str] = []
        self._approvals = approvals

    async def __call__(self, request: RunRequest, context: RunContext) -> None:
        """Run."""
        self.requests.append(request)
        composer = Composer(context)
        if not request.decisions:
            for approval_id in self._approvals:
                composer.approval("confirm", approval_id=approval_id, name="rm", arguments='{"path": "a"}')
            return
        for decision in request.decisions:
            if decision.decision == "approved":
                self.ran.append(decision.arguments or "")
        composer.text("done")
        composer.close()


@declared(approvals=True)
async def careful(messages: list[Any], context: Any) -> str:
    """Asks inside the call."""
    answer = await context.approve("rm", {"path": "a"})
    return f"{answer.decision} {json.dumps(answer.arguments)}"


async def paused(engine: Engine, text: str = "hello", **fields: Any) -> Run:
    """A run that waits."""
    started = await engine.start(OWNER, ask(text, **fields))
    await read_until(engine, started.run.id, RunPaused)
    return await engine.run(OWNER, started.run.id)


def decided(approval_id: str, word: Any = "approved", **fields: Any) -> list[Decision]:
    """One decision."""
    return [Decision(approval_id=approval_id, decision=word, **fields)]


async def test_pause_between_calls(world: World) -> None:
    """A runner that returns with an approval pending waits; the decision calls it again, with the asked arguments."""
    keeper = Gatekeeper("a1")
    async with world.running(keeper) as engine:
        run = await paused(engine, session_id="s")
        assert run.status == "waiting"
        assert [asked.approval_id for asked in run.approvals] == ["a1"]
        assert (await world.store.run(OWNER, run.id)).status == "waiting"
        await settle()
        assert engine.live.recordings == {}
        answered = await engine.decide(OWNER, run.id, decided("a1", by="ann"))
        assert answered.outcome is None or answered.outcome == "completed"
        run = await ended(engine, run.id)
        assert run.outcome == "completed"
        assert run.approvals == []
        assert run.decided == []
        assert keeper.ran == ['{"path": "a"}']
        assert keeper.requests[1].asked["a1"].name == "rm"
        events = await read_all(engine, run.id)
        check_numbers(events)
        words = [kind for kind in kinds(events) if kind.startswith(("Run", "Approval"))]
        assert words == [
            "RunCreated",
            "RunStarted",
            "ApprovalRequested",
            "RunPaused",
            "ApprovalDecided",
            "RunContinued",
            "RunEnded",
        ]
        assert [leg.first_seq for leg in run.legs] == [1, words.index("ApprovalDecided") + 1]
        items = [row.item for row in (await engine.history(OWNER, "s")).rows if isinstance(row.item, ApprovalItem)]
        assert [item.decision for item in items] == ["approved"]


async def test_pause_inside_a_call(world: World) -> None:
    """A function that awaits a decision waits; it goes on in the same call, under the same run id."""
    async with world.running(function(careful)) as engine:
        run = await paused(engine)
        assert run.status == "waiting"
        await engine.decide(OWNER, run.id, decided(run.approvals[0].approval_id))
        assert text_in(await read_all(engine, run.id)) == 'approved {"path": "a"}'
        assert kinds(await read_all(engine, run.id)).count("RunPaused") == 1


@pytest.mark.parametrize("agent", ["between", "inside"])
async def test_arguments_of_the_decision_are_what_runs(world: World, agent: str) -> None:
    """Edited arguments replace those that were asked about, in the log too (o-hit-02)."""
    keeper = Gatekeeper("a1")
    async with world.running(keeper if agent == "between" else function(careful)) as engine:
        run = await paused(engine)
        await engine.decide(OWNER, run.id, decided(run.approvals[0].approval_id, arguments='{"path": "b"}'))
        events = await read_all(engine, run.id)
        assert [e.body.arguments for e in events if isinstance(e.body, ApprovalDecided)] == ['{"path": "b"}']
        if agent == "between":
            assert keeper.ran == ['{"path": "b"}']
        else:
            assert text_in(events) == 'approved {"path": "b"}'


async def test_two_approvals_decided_one_by_one(world: World) -> None:
    """With two pending the run goes on when both are decided; the first decision is kept, also over a restart."""
    keeper = Gatekeeper("a1", "a2")
    async with world.running(keeper) as engine:
        run = await paused(engine)
        half = await engine.decide(OWNER, run.id, decided("a1"))
        assert half.status == "waiting"
        assert [asked.approval_id for asked in half.approvals] == ["a2"]
        with pytest.raises(AlreadyDecided):
            await engine.decide(OWNER, run.id, decided("a1", "denied"))
    keeper = Gatekeeper("a1", "a2")
    async with world.running(keeper) as engine:
        await engine.decide(OWNER, run.id, decided("a2", "denied"))
        assert (await ended(engine, run.id)).outcome == "completed"
        assert [(one.approval_id, one.decision) for one in keeper.requests[0].decisions] == [
            ("a1", "approved"),
            ("a2", "denied"),
        ]


async def test_two_approvals_decided_together(world: World) -> None:
    """Two decisions in one request make one leg."""
    keeper = Gatekeeper("a1", "a2")
    async with world.running(keeper) as engine:
        run = await paused(engine)
        await engine.decide(OWNER, run.id, [*decided("a1"), *decided("a2")])
        run = await ended(engine, run.id)
        assert len(run.legs) == 2
        assert len(keeper.ran) == 2


async def test_decision_is_single_use(world: World) -> None:
    """Ten answers at once: one counts, the tool runs once, the others are refused; also later, also the opposite (o-hit-01)."""
    keeper = Gatekeeper("a1")
    async with world.running(keeper) as engine:
        run = await paused(engine)
        answers = [engine.decide(OWNER, run.id, decided("a1", word)) for word in ("approved", "denied") * 5]
        results = await bounded(asyncio.gather(*answers, return_exceptions=True))
        assert sum(isinstance(result, AlreadyDecided) for result in results) == 9
        run = await ended(engine, run.id)
        won = next(n for n, result in enumerate(results) if not isinstance(result, AlreadyDecided))
        assert len(keeper.ran) == (1 if won % 2 == 0 else 0)
        with pytest.raises(AlreadyDecided):
            await engine.decide(OWNER, run.id, decided("a1"))


async def test_wrong_decisions_change_nothing(world: World) -> None:
    """An unknown approval, and one decision twice in a request, are refused as a whole; nothing is left behind."""
    async with world.running(Gatekeeper("a1")) as engine:
        run = await paused(engine)
        with pytest.raises(NotFound):
            await engine.decide(OWNER, run.id, [*decided("a1"), *decided("nope")])
        with pytest.raises(AlreadyDecided):
            await engine.decide(OWNER, run.id, [*decided("a1"), *decided("a1", "denied")])
        with pytest.raises(NotFound):
            await engine.decide("eve", run.id, decided("a1"))
        assert engine.live.recordings == {}
        assert await engine.run(OWNER, run.id) == run
        await engine.stop(OWNER, run.id)


async def test_decision_with_text_that_cannot_be_stored(world: World) -> None:
    """A lone surrogate in an answer becomes U+FFFD and breaks nothing."""
    async with world.running(Gatekeeper("a1")) as engine:
        run = await paused(engine)
        await engine.decide(OWNER, run.id, decided("a1", value={"x\ud800": "\udfff"}, reason="\ud83d"))
        assert (await ended(engine, run.id)).outcome == "completed"
        events = await read_all(engine, run.id)
        assert [e.body.value for e in events if isinstance(e.body, ApprovalDecided)] == [{"x\ufffd": "\ufffd"}]


@pytest.mark.parametrize("agent", ["between", "inside"])
async def test_stop_while_waiting(world: World, agent: str) -> None:
    """A waiting run that is stopped is cancelled, a late approval refused, the tool not run (o-hit-03)."""
    keeper = Gatekeeper("a1")
    async with world.running(keeper if agent == "between" else function(careful)) as engine:
        run = await paused(engine, session_id="s")
        approval_id = run.approvals[0].approval_id
        stopped = await bounded(engine.stop(OWNER, run.id))
        assert stopped.outcome == "cancelled"
        assert stopped.approvals == []
        with pytest.raises(AlreadyDecided):
            await engine.decide(OWNER, run.id, decided(approval_id))
        events = await read_all(engine, run.id)
        assert kinds(events)[-3:] == ["RunPaused", "ApprovalDecided", "RunEnded"]
        decision = events[-2].body
        assert isinstance(decision, ApprovalDecided)
        assert decision.decision == "withdrawn"
        assert keeper.ran == []
        assert len(keeper.requests) <= 1
        assert stopped.legs[-1].first_seq == events[-2].seq


async def accepts(engine: Engine, run: Run, rounds: int) -> bool:
    """Whether the run's approval could still be approved, some rounds of the loop later."""
    await settle(rounds)
    try:
        await engine.decide(OWNER, run.id, decided(run.approvals[0].approval_id))
    except AlreadyDecided:
        return False
    return True


async def stops(engine: Engine, run: Run, rounds: int) -> Run:
    """The run, stopped some rounds of the loop later."""
    await settle(rounds)
    return await engine.stop(OWNER, run.id)


@pytest.mark.parametrize("agent", ["between", "inside"])
async def test_decision_racing_with_stop(world: World, agent: str) -> None:
    """100 times both at once, in both orders: one outcome, and a decision that was accepted is in the log."""
    async with world.running(Gatekeeper("a1") if agent == "between" else function(careful)) as engine:
        for n in range(100):
            run = await paused(engine, session_id=f"s{n}")
            accepted, stopped = await bounded(asyncio.gather(accepts(engine, run, n % 7), stops(engine, run, n % 5)))
            events = await read_all(engine, run.id)
            ends = [event.body for event in events if isinstance(event.body, RunEnded)]
            assert [end.outcome for end in ends] == [stopped.outcome]
            words = [event.body.decision for event in events if isinstance(event.body, ApprovalDecided)]
            assert words == (["approved"] if accepted else ["withdrawn"])
        assert engine.live.recordings == {}


async def test_everybody_at_once_on_a_waiting_run(world: World) -> None:
    """Readers, decisions and stops that all find the run only in the store share one log; nobody's view is stale."""
    async with world.running(Gatekeeper("a1")) as engine:
        for n in range(40):
            run = await paused(engine, session_id=f"s{n}")
            await bounded(engine.live.wait_idle(5))
            assert engine.live.recordings == {}
            readers = [read_all(engine, run.id, after=k) for k in range(4)]
            answers = [accepts(engine, run, k * n % 7) for k in range(3)]
            stopping = [stops(engine, run, k * n % 11) for k in range(3)]
            results = await bounded(asyncio.gather(*readers, *answers, *stopping))
            assert results[4:7].count(True) <= 1
            assert len({stopped.outcome for stopped in results[7:]}) == 1
            for k in range(4):
                assert results[k] == results[0][k:]
            assert isinstance(results[0][-1].body, RunEnded)


async def test_parallel_branches_that_ask(world: World) -> None:
    """Two branches of one function that wait at once make one pause; each goes on with its own answer."""

    @declared(approvals=True)
    async def branching(messages: list[Any], context: Any) -> str:
        answers = await asyncio.gather(context.approve("a"), context.approve("b"))
        return " ".join(answer.decision for answer in answers)

    async with world.running(function(branching)) as engine:
        run = await paused(engine)
        assert len(run.approvals) == 2
        first, second = (asked.approval_id for asked in run.approvals)
        await engine.decide(OWNER, run.id, decided(second, "denied"))
        events = await read_until(engine, run.id, RunPaused, after=run.last_seq)
        assert kinds(events) == ["ApprovalDecided", "RunContinued", "RunPaused"]
        assert (await engine.run(OWNER, run.id)).status == "waiting"
        await engine.decide(OWNER, run.id, decided(first))
        assert text_in(await read_all(engine, run.id)) == "approved denied"


async def test_branch_that_ends_while_another_waits(world: World) -> None:
    """When the branch that still talked is done, the run counts as paused although nobody asked anew."""
    go_on = asyncio.Event()

    @declared(approvals=True)
    async def branching(messages: list[Any], context: Any) -> None:
        async def talk() -> None:
            for _ in range(5):
                context.custom("tick", {})
                await asyncio.sleep(0)
            await go_on.wait()
            context.custom("last", {})

        await asyncio.gather(context.approve("a"), talk())

    async with world.running(function(branching)) as engine:
        run = await paused(engine)
        go_on.set()
        events = await read_until(engine, run.id, RunPaused, after=(await engine.run(OWNER, run.id)).last_seq)
        assert kinds(events) == ["RunContinued", "Custom", "RunPaused"]
        run = await engine.run(OWNER, run.id)
        assert [leg.first_seq for leg in run.legs][-1] == events[0].seq
        await engine.decide(OWNER, run.id, decided(run.approvals[0].approval_id))
        assert (await ended(engine, run.id)).outcome == "completed"


async def test_decision_before_the_agent_waits_for_it(world: World) -> None:
    """An answer given between the question and the agent's waiting is not lost."""
    asked = asyncio.Event()
    go_on = asyncio.Event()

    async def slow(request: RunRequest, context: RunContext) -> None:
        composer = Composer(context)
        composer.approval("confirm", approval_id="a1", arguments="{}")
        asked.set()
        await go_on.wait()
        composer.text((await context.decision("a1")).decision)
        composer.close()

    async with world.running(slow) as engine:
        started = await engine.start(OWNER, ask())
        await asked.wait()
        run = await engine.decide(OWNER, started.run.id, decided("a1"))
        assert run.status == "running"
        go_on.set()
        events = await read_all(engine, started.run.id)
        assert text_in(events) == "approved"
        assert "RunPaused" not in kinds(events)


async def test_decision_before_the_runner_returns(world: World) -> None:
    """An answer given before the runner has come back to wait calls it again at once, without a pause."""
    asked = asyncio.Event()
    go_on = asyncio.Event()
    told: list[list[Decision]] = []

    async def slow(request: RunRequest, context: RunContext) -> None:
        told.append(request.decisions)
        composer = Composer(context)
        if not request.decisions:
            composer.approval("confirm", approval_id="a1", arguments="{}")
            asked.set()
            await go_on.wait()
            return
        composer.text("done")
        composer.close()

    async with world.running(slow) as engine:
        started = await engine.start(OWNER, ask())
        await asked.wait()
        await engine.decide(OWNER, started.run.id, decided("a1"))
        go_on.set()
        assert text_in(await read_all(engine, started.run.id)) == "done"
        assert [[one.approval_id for one in decisions] for decisions in told] == [[], ["a1"]]
        assert (await engine.run(OWNER, started.run.id)).outcome == "completed"


async def test_agent_that_gives_up_waiting(world: World) -> None:
    """An approval whose asker went on without it is withdrawn, the run goes on, and a late answer is refused."""

    @declared(approvals=True)
    async def impatient(messages: list[Any], context: Any) -> str:
        try:
            await asyncio.wait_for(context.approve("a"), 0.05)
        except TimeoutError:
            return "never mind"
        return "answered"

    async with world.running(function(impatient)) as engine:
        run = await paused(engine)
        events = await read_all(engine, run.id)
        assert text_in(events) == "never mind"
        words = [event.body.decision for event in events if isinstance(event.body, ApprovalDecided)]
        assert words == ["withdrawn"]
        assert (await engine.run(OWNER, run.id)).outcome == "completed"
        with pytest.raises(AlreadyDecided):
            await engine.decide(OWNER, run.id, decided(run.approvals[0].approval_id))


async def test_waiting_for_an_unknown_approval_fails_the_run(world: World) -> None:
    """A runner that awaits what it never asked fails instead of hanging for ever."""

    async def confused(request: RunRequest, context: RunContext) -> None:
        await context.decision("nope")

    async with world.running(confused) as engine:
        assert (await turn(engine)).outcome == "failed"


@pytest.mark.parametrize("agent", ["between", "inside"])
async def test_expiry(world: World, agent: str) -> None:
    """An approval that nobody decides in time expires; the run goes on and its agent is told so."""
    clock = ManualClock()
    keeper = Gatekeeper("a1")
    async with world.running(
        keeper if agent == "between" else function(careful), clock=clock, approval_timeout=60.0
    ) as engine:
        run = await paused(engine)
        assert run.approvals[0].expires_at == clock.now + 60
        clock.advance(59)
        await engine._upkeep.sweep()
        assert (await engine.run(OWNER, run.id)).status == "waiting"
        clock.advance(2)
        await engine._upkeep.sweep()
        run = await ended(engine, run.id)
        assert run.outcome == "completed"
        words = [e.body.decision for e in await read_all(engine, run.id) if isinstance(e.body, ApprovalDecided)]
        assert words == ["expired"]
        assert keeper.ran == []


async def test_waiting_run_does_not_use_up_the_time_of_the_run(world: World) -> None:
    """`run_timeout` does not count while a run waits for people."""
    async with world.running(function(careful), run_timeout=0.05) as engine:
        run = await paused(engine)
        await asyncio.wait({asyncio.ensure_future(asyncio.Event().wait())}, timeout=0.15)
        assert (await engine.run(OWNER, run.id)).status == "waiting"
        await engine.decide(OWNER, run.id, decided(run.approvals[0].approval_id))
        assert (await ended(engine, run.id)).outcome == "completed"


async def test_new_turn_supersedes_a_waiting_run(world: World) -> None:
    """A start in a session that waits ends the waiting run as cancelled(superseded) and runs; its late answer is refused."""
    keeper = Gatekeeper("a1")
    async with world.running({"keeper": keeper, "echo": function(careful)}) as engine:
        run = await paused(engine, session_id="s")
        second = await paused(engine, "next", agent="echo", session_id="s")
        first = await engine.run(OWNER, run.id)
        assert (first.outcome, first.reason) == ("cancelled", "superseded")
        assert second.continues == first.id
        with pytest.raises(AlreadyDecided):
            await engine.decide(OWNER, run.id, decided("a1"))
        assert keeper.ran == []


async def test_queueing_behind_a_waiting_run(world: World) -> None:
    """A start that asks to queue leaves the waiting run alone and runs when that has ended, whoever has it in memory."""
    keeper = Gatekeeper("a1")
    async with world.running(keeper) as engine:
        run = await paused(engine, session_id="s")
        await settle()
        second = await engine.start(OWNER, ask("next", session_id="s", busy="queue"))
        await settle()
        assert (await engine.run(OWNER, second.run.id)).status == "queued"
        await engine.decide(OWNER, run.id, decided("a1"))
        assert (await ended(engine, run.id)).outcome == "completed"
        second_run = await engine.run(OWNER, second.run.id)
        await read_until(engine, second_run.id, RunPaused)
        assert len(keeper.requests) == 3
        await engine.stop(OWNER, second.run.id)


def answer(call_id: str, text: str, **fields: Any) -> Start:
    """A start that brings a tool result."""
    item = ToolResult(item_id="in1", call_id=call_id, output=[TextPart(text=text)])
    return Start(surface="test", input=[item], **fields)


async def test_start_that_answers(world: World) -> None:
    """A start that brings decisions, or a result for the call of an approval, answers the waiting run and names its new leg."""
    keeper = Gatekeeper("a1")
    async with world.running(keeper) as engine:
        run = await paused(engine, session_id="s")
        started = await engine.start(OWNER, Start(surface="t", input=[], session_id="s", decisions=decided("a1")))
        assert (started.run.id, started.leg_index) == (run.id, 1)
        await ended(engine, run.id)
        with pytest.raises(AlreadyDecided):
            await engine.start(OWNER, Start(surface="t", input=[], session_id="s", decisions=decided("a1")))
        with pytest.raises(NotFound):
            await engine.start(OWNER, Start(surface="t", input=[], session_id="s", decisions=decided("nope")))
        run = await paused(engine, session_id="s2")
        call_id = run.approvals[0].call_id
        assert call_id is not None
        started = await engine.start(OWNER, answer(call_id, "fine", session_id="s2"))
        assert started.run.id == run.id
        await ended(engine, run.id)
        assert keeper.requests[-1].decisions[0].value == "fine"


async def test_start_that_answers_one_of_two_asked_in_parallel(world: World) -> None:
    """The second answer is accepted also in the moment in which the run is not paused yet again."""

    @declared(approvals=True)
    async def branching(messages: list[Any], context: Any) -> str:
        answers = await asyncio.gather(context.approve("a"), context.approve("b"))
        return " ".join(answer.decision for answer in answers)

    async with world.running(function(branching)) as engine:
        run = await paused(engine, session_id="s")
        starts = [
            engine.start(OWNER, Start(surface="t", input=[], session_id="s", decisions=decided(asked.approval_id)))
            for asked in run.approvals
        ]
        started = await bounded(asyncio.gather(*starts))
        assert {one.run.id for one in started} == {run.id}
        assert text_in(await read_all(engine, run.id)) == "approved approved"


async def test_late_decision_while_draining(world: World) -> None:
    """A server that shuts down does not begin to drive a waiting run; the run keeps waiting for the next process."""
    keeper = Gatekeeper("a1")
    async with world.running(keeper) as engine:
        run = await paused(engine)
        engine.drain()
        with pytest.raises(StorageUnavailable):
            await engine.decide(OWNER, run.id, decided("a1"))
    async with world.running(keeper) as engine:
        await engine.decide(OWNER, run.id, decided("a1"))
        assert (await ended(engine, run.id)).outcome == "completed"


async def test_many_pauses_of_one_run(world: World) -> None:
    """A run that asks five times has six legs, each beginning right after a pause."""

    @declared(approvals=True)
    async def asking(messages: list[Any], context: Any) -> str:
        return " ".join([(await context.approve(f"t{n}")).decision for n in range(5)])

    async with world.running(function(asking)) as engine:
        run = await paused(engine)
        for _ in range(5):
            current = await engine.run(OWNER, run.id)
            await engine.decide(OWNER, run.id, decided(current.approvals[0].approval_id), echo={"t": 1})
            events: list[Event] = []
            reader = await engine.reader(OWNER, run.id, after=current.last_seq)
            while found := await bounded(reader.read()):
                events += found
                if isinstance(events[-1].body, (RunPaused, RunEnded)):
                    break
            reader.close()
        run = await engine.run(OWNER, run.id)
        whole = await read_all(engine, run.id)
        pauses = [event.seq for event in whole if isinstance(event.body, RunPaused)]
        assert [leg.first_seq for leg in run.legs] == [1, *(seq + 1 for seq in pauses)]
        assert len({e.body.approval_id for e in whole if isinstance(e.body, ApprovalRequested)}) == 5
        assert kinds(whole).count("RunContinued") == 5
        assert isinstance(whole[-1].body, RunEnded)
        assert any(isinstance(event.body, TextDelta) for event in whole)
        assert RunContinued() in [event.body for event in whole]
