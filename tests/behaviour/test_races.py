"""Two things at once, many times over, a little shifted each time: one outcome, nothing lost, never a failure of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from runstone.runners.agent_context import AgentContext
from tests.behaviour.client import Answer, frames_of
from tests.behaviour.control import OVER, Control, Hermes, names
from tests.behaviour.site import prompt_of

TIMES = 200
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


async def shifted(first: Awaitable[Answer], second: Awaitable[Answer], n: int) -> list[Answer]:
    """Both answers; which one begins first, and by how many rounds of the loop, changes with `n`."""

    async def late(work: Awaitable[Answer], rounds: int) -> Answer:
        for _ in range(rounds):
            await asyncio.sleep(0)
        return await work

    shift = n % 24 - 12
    return list(await asyncio.gather(late(first, max(-shift, 0)), late(second, max(shift, 0))))


class Words:
    """An agent that says a word, lets others run for a while, takes what came, and says another."""

    def __init__(self) -> None:
        self.rounds = 0

    async def __call__(self, messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        """The agent."""
        yield "one "
        for _ in range(self.rounds % 20):
            await asyncio.sleep(0)
        heard = await context.inbox.take()
        yield f"two {len(heard)}"


async def checked(client: Hermes, run_id: str, session: str) -> dict[str, Any]:
    """The run when it is over; stream, history and record tell one outcome, and tell it once."""
    run = await client.until(run_id)
    frames = [frame for frame in (await client.get(f"/v1/runs/{run_id}/events")).frames if frame.data]
    ends = [name for name in names(frames) if name.removeprefix("run.") in OVER]
    assert ends == [f"run.{run['status']}"]
    page = await client.history(session)
    assert [r["status"] for r in page["runs"] if r["id"] == run_id] in ([run["status"]], [])
    assert await client.run(run_id) == run
    return run


async def test_stop_and_completion(live: Control) -> None:
    """o-run-05: a stop that races with the end gives one outcome, the same everywhere, and it never changes."""
    live.say = words = Words()
    client = live.hermes()
    outcomes = set()
    for n in range(TIMES):
        words.rounds = n
        stream = await client.open("POST", "/v1/runs", json={"input": "hi", "run_id": f"r{n}"})
        for _ in range(n % 37):
            await asyncio.sleep(0)
        stop = await client.post(f"/v1/runs/r{n}/stop")
        assert stop.status in (200, 404)
        await stream.rest()
        outcomes.add((await checked(client, f"r{n}", f"r{n}"))["status"])
    assert outcomes == {"completed", "cancelled"}


async def test_stop_and_stop(live: Control) -> None:
    """o-run-05: two stops at once are both answered, and cancel the run once."""
    gate = asyncio.Event()

    async def say(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield "one"
        await gate.wait()

    live.say = say
    client = live.hermes()
    for n in range(TIMES):
        await client.begin("hi", run_id=f"r{n}")
        stops = await shifted(client.post(f"/v1/runs/r{n}/stop"), client.post(f"/v1/runs/r{n}/stop"), n)
        assert [(stop.status, stop.json["status"] in ("stopping", "cancelled")) for stop in stops] == [(200, True)] * 2
        assert (await checked(client, f"r{n}", f"r{n}"))["status"] == "cancelled"


class Asking:
    """An agent that asks, and counts what it did."""

    def __init__(self) -> None:
        self.did: list[str] = []

    async def __call__(self, messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        """The agent."""
        answer = await context.approve("delete", {})
        if answer.approved:
            self.did.append(context.run_id)
        yield "Done."


async def test_decision_and_stop(live: Control) -> None:
    """o-hit-01, o-hit-03: a decision that races with a stop runs once or is refused; a refused one never ran."""
    live.say = asking = Asking()
    client = live.hermes()
    seen = set()
    for n in range(TIMES):
        await client.begin("hi", run_id=f"r{n}")
        await client.until(f"r{n}", "waiting_for_approval")
        decide, stop = await shifted(
            client.post(f"/v1/runs/r{n}/approval", {"choice": "once"}), client.post(f"/v1/runs/r{n}/stop"), n
        )
        assert (decide.status, stop.status) in {(200, 200), (409, 200)}
        run = await checked(client, f"r{n}", f"r{n}")
        ran = asking.did.count(f"r{n}")
        assert ran <= (decide.status == 200)
        assert run["approvals"][0]["choice"] == ("once" if decide.status == 200 else "withdrawn")
        if run["status"] == "completed":
            assert ran == 1
        seen.add((decide.status, run["status"]))
    assert {status for _, status in seen} == {"completed", "cancelled"}


async def test_steering_and_completion(live: Control) -> None:
    """o-hit-04, o-hit-05: steering that races with the end is delivered, returned or refused; it is never lost or run twice."""
    live.say = words = Words()
    client = live.hermes()
    seen = set()
    for n in range(TIMES):
        words.rounds = n
        await client.begin("hi", run_id=f"r{n}")
        for _ in range(n % 29):
            await asyncio.sleep(0)
        steer = await client.post(f"/v1/runs/r{n}/steer", {"input": f"more {n}"})
        run = await checked(client, f"r{n}", f"r{n}")
        rows = [row["display_kind"] for row in (await client.history(f"r{n}"))["data"] if row["content"] == f"more {n}"]
        returned = run.get("pending_steer")
        fate = "refused" if steer.status == 409 else "delivered" if rows else "returned"
        assert (steer.status, rows, returned) == {
            "refused": (409, [], None),
            "delivered": (200, ["steer"], None),
            "returned": (200, [], f"more {n}"),
        }[fate]
        seen.add(fate)
    assert {"delivered", "refused"} <= seen
    assert live.calls == TIMES


async def test_regenerating_and_starting(live: Control) -> None:
    """o-run-12: of a start and a regeneration at once one begins and the other is refused, naming the one that runs."""
    gate = asyncio.Event()
    gate.set()

    async def say(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        await gate.wait()
        yield "ok"

    live.say = say
    client = live.hermes()
    winners = set()
    for n in range(TIMES):
        await client.begin("hi", run_id=f"r{n}", session_id=f"s{n}")
        await client.until(f"r{n}")
        gate.clear()
        answers = await shifted(
            client.post(f"/v1/runs/r{n}/regenerate", {"run_id": f"a{n}"}),
            client.post("/v1/runs", {"input": "two", "session_id": f"s{n}", "run_id": f"b{n}"}),
            n,
        )
        gate.set()
        assert sorted(answer.status for answer in answers) == [202, 409]
        won = next(answer.json["run_id"] for answer in answers if answer.status == 202)
        lost = next(answer for answer in answers if answer.status == 409)
        assert (lost.code, lost.json["error"]["run_id"]) == ("run_already_active", won)
        await checked(client, won, f"s{n}")
        winners.add(won[0])
        assert len((await client.get(f"/v1/runs?session_id=s{n}")).json["data"]) == 2
    assert winners == {"a", "b"}


async def test_deleting_and_running(live: Control) -> None:
    """S14: of a deletion and a start at once: the start finds no session, or the deletion is refused, or it was over."""
    live.say = words = Words()
    client = live.hermes()
    seen = set()
    for n in range(TIMES):
        words.rounds = n
        await client.session(f"s{n}")
        delete, say = await shifted(client.delete(f"/api/sessions/s{n}"), client.say("hi", f"s{n}", run_id=f"r{n}"), n)
        assert delete.status in (200, 409) and say.status in (200, 404), (delete.body, say.body)
        seen.add((delete.status, say.status))
        if delete.status == 409:
            assert (delete.code, say.status) == ("session_active_turn", 200)
            assert len((await client.history(f"s{n}"))["data"]) == 2
        elif say.status == 404:
            assert say.code == "session_not_found"
            assert (await client.get(f"/v1/runs/r{n}")).status == 404
    assert {(409, 200), (200, 404)} <= seen


async def test_deleting_with_stop_and_running(live: Control) -> None:
    """A deletion that stops takes the run with it, and leaves nothing."""
    live.say = words = Words()
    client = live.hermes()
    seen = set()
    for n in range(TIMES):
        words.rounds = n
        await client.session(f"s{n}")
        delete, start = await shifted(
            client.delete(f"/api/sessions/s{n}?stop=true"),
            client.post(f"/api/sessions/s{n}/chat", {"message": "hi", "run_id": f"r{n}", "accepted_only": True}),
            n,
        )
        seen.add((delete.status, start.status))
        assert (await client.get(f"/api/sessions/s{n}")).status == 404
        assert (await client.get(f"/v1/runs/r{n}")).status == 404
    assert seen == {(200, 202), (200, 404)}
    assert (await client.get("/api/sessions")).json["data"] == []


async def test_one_key_twice(control: Control) -> None:
    """o-run-08: two starts with one key at once are one run, and the other attaches."""
    client = control.hermes()
    for n in range(TIMES // 2):
        key = {"idempotency-key": f"k{n}"}
        one, two = await shifted(
            client.post("/v1/runs", {"input": f"hi {n}"}, headers=key),
            client.post("/v1/runs", {"input": f"hi {n}"}, headers=key),
            n,
        )
        assert (one.status, two.status) == (202, 202)
        assert one.json["run_id"] == two.json["run_id"]
        assert {one.json["replayed"], two.json["replayed"]} == {True, False}
        await checked(client, one.json["run_id"], one.json["session_id"])
    assert control.calls == TIMES // 2


@pytest.mark.parametrize("policy", ["reject", "queue", "steer", "stop"])
async def test_two_starts(live: Control, policy: str) -> None:
    """o-run-09: of two starts at once each input is refused, or is in history once, or its run says that it was stopped."""

    async def say(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        for _ in range(6):
            await asyncio.sleep(0)
        heard = await context.inbox.take()
        yield " ".join([prompt_of(messages), *(str(message["content"]) for message in heard)])

    live.say = say
    client = live.hermes()
    for n in range(TIMES):
        body = {"session_id": f"s{n}", "busy": policy}
        answers = await shifted(
            client.post("/v1/runs", {"input": "one", **body}), client.post("/v1/runs", {"input": "two", **body}), n
        )
        assert {answer.status for answer in answers} <= {202, 409}
        taken = [text for text, answer in zip(("one", "two"), answers, strict=True) if answer.status == 202]
        runs = [await checked(client, answer.json["run_id"], f"s{n}") for answer in answers if answer.status == 202]
        inputs = [row["content"] for row in (await client.history(f"s{n}"))["data"] if row["role"] == "user"]
        assert sorted(inputs) == sorted(taken)
        if policy != "reject":
            assert len(taken) == 2
        statuses = {run["status"] for run in runs}
        assert statuses <= ({"completed", "cancelled"} if policy == "stop" else {"completed"})
        if policy in ("queue", "steer"):
            said = " ".join(
                row["content"] for row in (await client.history(f"s{n}"))["data"] if row["role"] == "assistant"
            )
            assert sorted(said.split()) == sorted(taken)


async def test_reading_on_while_a_run_ends(live: Control) -> None:
    """o-run-04: whoever reads on while the run ends gets the end exactly once, and the stream closes."""
    live.say = words = Words()
    client = live.hermes()
    for n in range(TIMES):
        words.rounds = n
        await client.begin("hi", run_id=f"r{n}")
        for _ in range(n % 31):
            await asyncio.sleep(0)
        reader = await client.open("GET", f"/v1/runs/r{n}/events?last_seq=", headers={"last-event-id": "1"})
        frames = [frame for frame in frames_of(await reader.rest()) if frame.data]
        assert [name for name in names(frames) if name.startswith("run.")] == ["run.completed"]
