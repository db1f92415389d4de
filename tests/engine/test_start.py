"""Starting runs: attaching, busy sessions, queues, chains and branches."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from runstone.core.commands import Start
from runstone.core.content import TextPart
from runstone.core.items import Item, Message, user_message
from runstone.core.runs import Run, RunRequest
from runstone.engine.engine import Engine
from runstone.errors import (
    Conflict,
    IdempotencyConflict,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    RunActive,
    StorageUnavailable,
    Unsupported,
)
from runstone.runners.base import RunContext
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
    settle,
    speaking,
    text_in,
    text_of,
    turn,
)


async def test_run_is_durable_when_start_returns(world: World) -> None:
    """A start that has returned is in the store with its first event, whatever the agent does."""
    held = Held()
    async with world.running(held) as engine:
        started = await engine.start(OWNER, ask(run_id="r1", session_id="s1"))
        assert started.run.id == "r1"
        assert not started.attached
        assert (await world.store.events(OWNER, "r1", after=0, limit=1))[0].seq == 1
        session = await world.store.session(OWNER, "s1")
        assert session.head == "r1"
        held.release.set()
        assert (await ended(engine, "r1")).outcome == "completed"


async def test_equal_starts_in_parallel_make_one_run(world: World) -> None:
    """Ten equal starts with one key at once make one run; nine attach (o-run-08)."""
    held = Held()
    async with world.running(held) as engine:
        starts = [engine.start(OWNER, ask(idempotency_key="k")) for _ in range(10)]
        started = await bounded(asyncio.gather(*starts))
        assert len({found.run.id for found in started}) == 1
        assert sorted(found.attached for found in started) == [False] + [True] * 9
        held.release.set()
        await ended(engine, started[0].run.id)
        assert len(held.requests) == 1


@pytest.mark.parametrize("busy", ["reject", "stop", "queue"])
async def test_equal_starts_in_one_session_attach_instead_of_being_busy(world: World, busy: str) -> None:
    """In a named session the second of two equal starts attaches, whatever the busy policy says (o-run-08)."""
    held = Held()
    async with world.running(held) as engine:
        same = ask(idempotency_key="k", session_id="s1", busy=busy)
        first, second = await bounded(asyncio.gather(engine.start(OWNER, same), engine.start(OWNER, same)))
        assert first.run.id == second.run.id
        held.release.set()
        run = await ended(engine, first.run.id)
        assert run.outcome == "completed"
        assert len(held.requests) == 1


async def test_same_run_id_attaches_and_another_body_is_refused(world: World) -> None:
    """A run id that was used attaches for the same body, and is refused for another one, also with the key (o-run-08)."""
    async with world.running(echo) as engine:
        first = await engine.start(OWNER, ask("a", run_id="r1", idempotency_key="k1"))
        await ended(engine, "r1")
        again = await engine.start(OWNER, ask("a", run_id="r1"))
        assert again.attached
        assert again.run.outcome == "completed"
        with pytest.raises(IdempotencyConflict):
            await engine.start(OWNER, ask("b", run_id="r1"))
        with pytest.raises(IdempotencyConflict):
            await engine.start(OWNER, ask("b", idempotency_key="k1"))
        assert first.run.id == "r1"


async def test_attaching_reads_from_the_first_event(world: World) -> None:
    """Whoever attaches reads the same events from the first one on."""
    async with world.running(speaking("a", "b")) as engine:
        first = await engine.start(OWNER, ask(idempotency_key="k"))
        events = await read_all(engine, first.run.id)
        second = await engine.start(OWNER, ask(idempotency_key="k"))
        assert await read_all(engine, second.run.id) == events


async def test_keys_and_run_ids_are_per_owner(world: World) -> None:
    """Another owner's equal key, run id and session id are free, and nobody sees the other's run (o-run-08)."""
    async with world.running(echo) as engine:
        for owner in ("ann", "bob"):
            started = await engine.start(owner, ask("x", run_id="r1", idempotency_key="k", session_id="s"))
            assert not started.attached
            await ended(engine, "r1", owner=owner)
        with pytest.raises(NotFound):
            await engine.run("eve", "r1")
        with pytest.raises(NotFound):
            await engine.reader("eve", "r1")
        with pytest.raises(NotFound):
            await engine.stop("eve", "r1")
        with pytest.raises(NotFound):
            await engine.history("eve", "s")


async def test_key_works_after_a_restart(world: World) -> None:
    """The key is remembered by the store, not by the process (o-run-08)."""
    async with world.running(echo) as engine:
        first = await turn(engine, "a", idempotency_key="k")
    async with world.running(echo) as engine:
        again = await engine.start(OWNER, ask("a", idempotency_key="k"))
        assert again.attached
        assert again.run.id == first.id
        with pytest.raises(IdempotencyConflict):
            await engine.start(OWNER, ask("b", idempotency_key="k"))


async def test_refused_start_leaves_its_key_free(world: World) -> None:
    """A refusal is not remembered: the same key works when the session is free."""
    held = Held()
    async with world.running(held) as engine:
        first = await engine.start(OWNER, ask(session_id="s"))
        with pytest.raises(RunActive):
            await engine.start(OWNER, ask("later", session_id="s", idempotency_key="k"))
        held.release.set()
        await ended(engine, first.run.id)
        later = await engine.start(OWNER, ask("later", session_id="s", idempotency_key="k"))
        assert not later.attached
        await ended(engine, later.run.id)


async def test_busy_session_rejects_and_names_the_run(world: World) -> None:
    """Under `reject` a second start is refused with the active run's id; the run goes on untouched (o-run-09)."""
    held = Held()
    async with world.running(held) as engine:
        first = await engine.start(OWNER, ask(session_id="s"))
        with pytest.raises(RunActive) as refused:
            await engine.start(OWNER, ask("second", session_id="s"))
        assert refused.value.run_id == first.run.id
        held.release.set()
        assert text_in(await read_all(engine, first.run.id)) == "one two"


async def test_policy_stop_ends_the_run_before_the_next_begins(world: World) -> None:
    """Under `stop` the running run is cancelled(replaced) first; the next sees its partial text (o-run-09)."""
    held = Held()
    async with world.running(held) as engine:
        first = await engine.start(OWNER, ask("q1", session_id="s"))
        await held.started.wait()
        second = await bounded(engine.start(OWNER, ask("q2", session_id="s", busy="stop")))
        stopped = await engine.run(OWNER, first.run.id)
        assert (stopped.outcome, stopped.reason) == ("cancelled", "replaced")
        held.release.set()
        assert (await ended(engine, second.run.id)).continues == first.run.id
        told = [item for item in held.requests[1].history if isinstance(item, Message)]
        assert [(item.role, item.text) for item in told] == [("user", "q1"), ("assistant", "one ")]


async def test_policy_steer_is_refused_by_an_agent_without_inbox(world: World) -> None:
    """Under `steer` an agent that takes no input refuses, with the capability's name."""
    held = asyncio.Event()

    async def plain(messages: list[object]) -> str:
        await held.wait()
        return "x"

    async with world.running(function(plain)) as engine:
        first = await engine.start(OWNER, ask(session_id="s"))
        with pytest.raises(Unsupported) as refused:
            await engine.start(OWNER, ask("b", session_id="s", busy="steer"))
        assert refused.value.capability == "steer"
        held.set()
        await ended(engine, first.run.id)


class Line:
    """An agent whose runs are let go one by one, and the order in which they began."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.running = 0
        self.most = 0

    async def __call__(self, request: RunRequest, context: RunContext) -> None:
        """Run."""
        run_id = context.run_id
        self.began.append(run_id)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate(run_id).wait()
        finally:
            self.running -= 1

    def gate(self, run_id: str) -> asyncio.Event:
        """What lets the run end."""
        return self.gates.setdefault(run_id, asyncio.Event())


async def queued(engine: Engine, *run_ids: str) -> None:
    """Starts in one session, each queued behind the one before."""
    for run_id in run_ids:
        await engine.start(OWNER, ask(run_id, run_id=run_id, session_id="s", busy="queue"))


async def test_queue_keeps_the_order(world: World) -> None:
    """Queued runs run one at a time, in the order of their starts, each continuing the one before (o-run-09)."""
    line = Line()
    async with world.running(line) as engine:
        await queued(engine, "a", "b", "c")
        assert [(await engine.run(OWNER, id)).status for id in "abc"][1:] == ["queued", "queued"]
        for run_id in "abc":
            line.gate(run_id).set()
            run = await ended(engine, run_id)
            assert run.outcome == "completed"
        assert line.began == ["a", "b", "c"]
        assert line.most == 1
        assert [(await engine.run(OWNER, id)).continues for id in "abc"] == [None, "a", "b"]


async def test_stopping_the_middle_one_keeps_the_last_waiting(world: World) -> None:
    """Stopping a queued run does not let the one behind it jump ahead of the run that is going on."""
    line = Line()
    async with world.running(line) as engine:
        await queued(engine, "a", "b", "c")
        stopped = await engine.stop(OWNER, "b")
        assert (stopped.outcome, stopped.started_at) == ("cancelled", None)
        await settle()
        assert line.began == ["a"]
        line.gate("a").set()
        line.gate("c").set()
        assert (await ended(engine, "c")).outcome == "completed"
        assert line.began == ["a", "c"]
        assert line.most == 1


async def test_start_behind_a_stopped_queued_run_waits_for_the_running_one(world: World) -> None:
    """A session whose head was stopped while queued is still busy with the run before it."""
    line = Line()
    async with world.running(line) as engine:
        await queued(engine, "a", "b")
        await engine.stop(OWNER, "b")
        with pytest.raises(RunActive) as refused:
            await engine.start(OWNER, ask("c", run_id="c", session_id="s"))
        assert refused.value.run_id == "a"
        await engine.start(OWNER, ask("d", run_id="d", session_id="s", busy="queue"))
        await settle()
        assert line.began == ["a"]
        line.gate("a").set()
        line.gate("d").set()
        await ended(engine, "d")
        assert line.most == 1


async def test_policy_stop_with_a_queue_stops_all_of_it(world: World) -> None:
    """Under `stop` neither the queued nor the running run survives, and the new one runs alone."""
    line = Line()
    async with world.running(line) as engine:
        await queued(engine, "a", "b")
        await bounded(engine.start(OWNER, ask("c", run_id="c", session_id="s", busy="stop")))
        line.gate("c").set()
        await ended(engine, "c")
        assert [(await engine.run(OWNER, id)).outcome for id in "abc"] == ["cancelled", "cancelled", "completed"]
        assert line.most == 1


async def test_queue_while_the_run_before_is_just_ending(world: World) -> None:
    """A start queued in any moment of the ending of the run before runs, 100 times."""
    async with world.running(speaking("x")) as engine:
        for n in range(100):
            session = f"s{n}"
            first = await engine.start(OWNER, ask(session_id=session))
            await settle(n % 17)
            second = await engine.start(OWNER, ask("next", session_id=session, busy="queue"))
            assert (await ended(engine, second.run.id)).outcome == "completed"
            assert second.run.continues == first.run.id


async def test_continuing_an_active_run_is_busy_too(world: World) -> None:
    """Naming the run to continue does not get around the run: it is refused or queued behind just that run."""
    line = Line()
    async with world.running(line) as engine:
        await queued(engine, "a", "b")
        with pytest.raises(RunActive) as refused:
            await engine.start(OWNER, ask("c", continues="a"))
        assert refused.value.run_id == "a"
        branch = await engine.start(OWNER, ask("d", run_id="d", continues="a", busy="queue"))
        assert branch.run.continues == "a"
        line.gate("a").set()
        line.gate("b").set()
        line.gate("d").set()
        assert (await ended(engine, "d")).outcome == "completed"
        assert (await ended(engine, "b")).outcome == "completed"
        assert line.began[0] == "a"


async def test_next_turn_is_told_the_chain(world: World) -> None:
    """Each turn of a session gets what was said before it, once."""
    async with world.running(echo) as engine:
        for n, text in enumerate(["a", "b", "c"]):
            run = await turn(engine, text, session_id="s")
            assert text_in(await read_all(engine, run.id)) == f"{text} after {2 * n}"


async def test_continuing_an_older_run_begins_a_branch(world: World) -> None:
    """A start that continues an older run gets its chain only; the session shows the new branch, the old stays readable."""
    async with world.running(echo) as engine:
        a = await turn(engine, "a", session_id="s")
        b = await turn(engine, "b", session_id="s")
        c = await turn(engine, "c", continues=a.id)
        assert text_in(await read_all(engine, c.id)) == "c after 2"
        shown = [row.run_id for row in (await engine.history(OWNER, "s")).rows]
        assert shown == [a.id, a.id, c.id, c.id]
        d = await turn(engine, "d", continues=b.id)
        assert text_in(await read_all(engine, d.id)) == "d after 4"


async def test_continuing_what_is_not_there_is_refused(world: World) -> None:
    """An unknown run, an unstored one, and one of another session cannot be continued."""
    async with world.running(echo) as engine:
        a = await turn(engine, "a", session_id="s")
        unstored = await turn(engine, "b", store=False)
        for run_id in ("nope", unstored.id):
            with pytest.raises(NotFound) as refused:
                await engine.start(OWNER, ask("c", continues=run_id))
            assert refused.value.code == "previous_response_not_found"
        with pytest.raises(InvalidRequest):
            await engine.start(OWNER, ask("c", continues=a.id, session_id="other"))


async def test_session_that_must_exist(world: World) -> None:
    """`session_must_exist` refuses to create the session."""
    async with world.running(echo) as engine:
        with pytest.raises(NotFound):
            await engine.start(OWNER, ask(session_id="s", session_must_exist=True))
        await turn(engine, session_id="s")
        assert (await turn(engine, session_id="s", session_must_exist=True)).outcome == "completed"


async def test_agents_are_picked_by_name(world: World) -> None:
    """An agent's name picks it, the first one is the default, another name is refused with the names that there are."""

    async def one(messages: list[object]) -> str:
        return "1"

    async def two(messages: list[object]) -> str:
        return "2"

    async with world.running({"one": function(one), "two": function(two)}) as engine:
        assert (await turn(engine)).agent == "one"
        assert (await turn(engine, agent="two")).agent == "two"
        with pytest.raises(NotFound) as refused:
            await engine.start(OWNER, ask(agent="three"))
        assert "'one', 'two'" in refused.value.message


def chat(*said: str, **fields: Any) -> Start:
    """A start that repeats the conversation: user, assistant, user ..."""
    input: list[Item] = [
        user_message(f"in{n}", text)
        if n % 2
        else Message(item_id=f"in{n}", role="assistant", parts=[TextPart(text=text)])
        for n, text in enumerate(said, 1)
    ]
    return Start(surface="test", input=input, session_id="s", reuses_history=True, **fields)


async def chat_turn(engine: Engine, *said: str, **fields: Any) -> Run:
    """A whole turn of that kind."""
    started = await engine.start(OWNER, chat(*said, **fields))
    return await ended(engine, started.run.id)


async def test_repeated_history_is_not_told_twice(world: World) -> None:
    """Of a request that repeats the conversation only what follows the last answer is input."""
    async with world.running(echo) as engine:
        await chat_turn(engine, "a")
        b = await chat_turn(engine, "a", "a after 0", "b")
        assert text_in(await read_all(engine, b.id)) == "b after 2"
        c = await chat_turn(engine, "b", "b after 2", "c")
        assert text_in(await read_all(engine, c.id)) == "c after 4"


async def test_repeated_history_that_differs_is_refused(world: World) -> None:
    """A difference to the session's history is refused, and makes a branch when it is meant."""
    async with world.running(echo) as engine:
        a = await chat_turn(engine, "a")
        await chat_turn(engine, "a", "a after 0", "b")
        with pytest.raises(Conflict) as refused:
            await chat_turn(engine, "a", "a after 0", "c")
        assert refused.value.code == "history_mismatch"
        c = await chat_turn(engine, "a", "a after 0", "c", replaces_history=True)
        assert c.continues == a.id
        assert text_in(await read_all(engine, c.id)) == "c after 2"
        with pytest.raises(Conflict):
            await chat_turn(engine, "x", "y", "c", replaces_history=True)


async def test_draining_engine_admits_only_attaching(world: World) -> None:
    """A server that shuts down refuses new runs, and still lets an equal start attach."""
    held = Held()
    async with world.running(held) as engine:
        first = await engine.start(OWNER, ask(idempotency_key="k"))
        engine.drain()
        with pytest.raises(StorageUnavailable) as refused:
            await engine.start(OWNER, ask("other"))
        assert refused.value.code == "draining"
        assert (await engine.start(OWNER, ask(idempotency_key="k"))).run.id == first.run.id
        held.release.set()
        await ended(engine, first.run.id)


async def test_values_that_no_text_can_carry_do_not_break_a_start(world: World) -> None:
    """Lone surrogates in input and metadata become U+FFFD, NUL stays (o-sto-06)."""
    async with world.running(echo) as engine:
        run = await turn(engine, "a\ud83d\x00b", body=b"", metadata={"k\udc00": "v\ud800"}, session_id="s")
        assert run.outcome == "completed"
        assert run.metadata == {"k\ufffd": "v\ufffd"}
        assert text_in(await read_all(engine, run.id)) == "a\ufffd\x00b after 0"


async def test_caller_that_leaves_before_the_answer(world: World) -> None:
    """A start whose caller is cancelled at any moment leaves no run, or one run that runs to its end (o-run-13)."""
    made = 0
    async with world.running(speaking("a")) as engine:
        for n in range(60):
            starting = asyncio.create_task(engine.start(OWNER, ask(run_id=f"r{n}", session_id="s", busy="queue")))
            await settle(n % 12)
            starting.cancel()
            await asyncio.wait({starting})
        assert await engine.live.wait_idle(5)
        for n in range(60):
            if (run := await world.store.run(OWNER, f"r{n}")) is not None:
                assert run.outcome == "completed"
                made += 1
        assert await world.store.unfinished() == []
    assert made >= 50


async def test_full_server_refuses(world: World) -> None:
    """With as many runs going on as `engine.max_runs` allows a start is refused; when one has ended there is room again."""
    held = Held()
    async with world.running(held, max_runs=1) as engine:
        first = await engine.start(OWNER, ask())
        with pytest.raises(LimitExceeded) as refused:
            await engine.start(OWNER, ask())
        assert (refused.value.code, refused.value.value) == ("too_many_runs", 1)
        held.release.set()
        await ended(engine, first.run.id)
        await bounded(engine.live.wait_idle(5))
        await ended(engine, (await engine.start(OWNER, ask())).run.id)


async def test_turn_without_an_answer_is_asked_again(world: World) -> None:
    """A client that leaves out a turn which failed repeats the history as it is: no branch has to be asked for."""

    async def fails_once(request: RunRequest, context: RunContext) -> None:
        if text_of(request.input) == "fail":
            raise ValueError
        await echo(request, context)

    async with world.running(fails_once) as engine:
        first = await turn(engine, "one", session_id="s")
        answer = text_in(await read_all(engine, first.id))
        await turn(engine, "fail", session_id="s")
        said = [user_message("in1", "one"), Message(item_id="in2", role="assistant", parts=[TextPart(text=answer)])]
        start = ask("again", session_id="s", reuses_history=True)
        start = msgspec.structs.replace(start, input=[*said, user_message("in3", "again")])
        started = await engine.start(OWNER, start)
        assert (await ended(engine, started.run.id)).outcome == "completed"
