"""Runs as clients see them: disconnects, resuming, stopping, retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from runstone.config import Config, EngineConfig
from runstone.engine.engine import Engine
from runstone.runners.agent_context import AgentContext
from runstone.runners.function import FunctionRunner
from runstone.server.app import HttpApp
from runstone.storage.base import Store
from runstone.storage.memory import MemoryFiles, MemoryStore
from tests.behaviour.client import PATIENCE, Client, chat_body, frames_of, settled, text_of
from tests.behaviour.site import Site, Steps
from tests.engine.support import TroubledStore

SDK = {"x-stainless-retry-count": "0", "user-agent": "OpenAI/Python 3.57.0"}


def run_id_of(headers: list[tuple[str, str]]) -> str:
    """The run that an answer is about."""
    return dict(headers)["runstone-run-id"]


async def test_disconnect_is_not_stop(site: Site) -> None:
    """o-run-01: a dropped connection leaves the run going; its rest can be read from the last id, and history has it all."""
    site.say = steps = Steps()
    client = site.client()
    stream = await client.stream("hi", session_id="s")
    steps.word("one ", "two ")
    seen = await stream.until("two ")
    await stream.close()
    steps.word("three")
    steps.end()
    run_id = run_id_of(stream.headers)
    resumed = await client.get(
        f"/v1/chat/completions/chatcmpl-{run_id}?stream=true", headers={"last-event-id": str(seen[-1].id)}
    )
    assert text_of(resumed.frames) == "three"
    assert resumed.frames[-1].data == "[DONE]"
    page = (await client.get("/v1/chat/sessions/s/messages")).json
    assert [message["content"] for message in page["messages"]] == ["hi", "one two three"]
    assert page["runs"][0]["status"] == "completed"


async def test_disconnect_stops_a_run_that_wants_it(memory: Site) -> None:
    """With `disconnect: stop` the run of the dropped connection is cancelled; a reader that leaves cancels nothing."""
    memory.say = steps = Steps()
    client = memory.client()
    stream = await client.stream("hi", session_id="s", disconnect="stop")
    run_id = run_id_of(stream.headers)
    reader = await client.open("GET", f"/v1/chat/completions/{run_id}?stream=true")
    await steps.started.wait()
    await reader.close()
    assert not steps.was_cancelled
    await stream.close()
    assert (await settled(client, run_id))["status"] == "cancelled"
    assert steps.was_cancelled


async def test_disconnect_stops_a_run_that_waits_its_turn(memory: Site) -> None:
    """With `disconnect: stop` a queued run whose client leaves is cancelled without having run."""
    memory.say = steps = Steps()
    client = memory.client()
    first = await client.stream("one", session_id="s")
    await steps.started.wait()
    second = await client.stream("two", session_id="s", busy="queue", disconnect="stop")
    await second.close()
    assert (await settled(client, run_id_of(second.headers)))["status"] == "cancelled"
    steps.end()
    await first.rest()
    assert memory.prompts == ["one"]


async def test_resume_after_a_restart(site: Site) -> None:
    """o-run-02: after the end, and after a restart, every cursor gives exactly what follows it, and the stream closes."""
    client = site.client()
    whole = await (await client.stream("hi", session_id="s")).rest()
    frames = frames_of(whole)
    if site.kind == "sqlite":
        await site.restart()
        client = site.client()
    run_id = frames[0].json["run_id"]
    for n, frame in enumerate(frames[:-1]):
        again = await client.get(f"/v1/chat/completions/{run_id}?stream=true", headers={"last-event-id": str(frame.id)})
        assert [f.text for f in again.frames] == [f.text for f in frames[n + 1 :]]
    from_start = await client.get(f"/v1/chat/completions/{run_id}?stream=true")
    assert from_start.body == whole


async def test_responses_resume_by_number(site: Site) -> None:
    """o-run-02: `starting_after` gives the events after it byte for byte, none after the last."""
    client = site.client()
    sent = await client.respond("hi", stream=True)
    frames = sent.frames
    url = f"/v1/responses/{frames[0].json['response']['id']}?stream=true"
    assert (await client.get(url)).body == sent.body
    for n in range(len(frames) - 1):
        again = await client.get(f"{url}&starting_after={n}")
        assert [f.text for f in again.frames] == [f.text for f in frames[n + 1 :]]


@pytest.mark.parametrize("cursor", ["abc", "99999", "-1", "", "3.7", "0.0"])
async def test_unknown_cursors_are_refused(site: Site, cursor: str) -> None:
    """o-run-03: a cursor that the stream never gave is 400, never silence and never a full replay."""
    client = site.client()
    sent = await (await client.stream("hi", session_id="s")).rest()
    run_id = frames_of(sent)[0].json["run_id"]
    answer = await client.get(f"/v1/chat/completions/{run_id}?stream=true", headers={"last-event-id": cursor})
    assert (answer.status, answer.code) == (400, "cursor_unknown")


@pytest.mark.parametrize("number", ["abc", "99999", "-1", "1.5", ""])
async def test_unknown_numbers_are_refused(site: Site, number: str) -> None:
    """o-run-03: the same for `starting_after`."""
    client = site.client()
    response = (await client.respond("hi")).json
    answer = await client.get(f"/v1/responses/{response['id']}?stream=true&starting_after={number}")
    assert answer.status == 400


async def test_a_post_with_a_cursor_never_starts_a_run(memory: Site) -> None:
    """A POST with Last-Event-ID resumes the run it names, and is refused when it names none or an unknown one."""
    client = memory.client()
    body = chat_body("hi", stream=True, session_id="s")
    url, named = "/v1/chat/completions", {"runstone-run-id": "mine"}
    sent = frames_of(await (await client.open("POST", url, json=body, headers=named)).rest())
    cursor = {"last-event-id": str(sent[1].id)}
    assert (await client.post(url, body, headers=cursor)).status == 400
    assert (await client.post(url, body, headers={**cursor, "runstone-run-id": "other"})).status == 404
    resumed = await client.post(url, body, headers={**cursor, **named})
    assert [f.text for f in resumed.frames] == [f.text for f in sent[2:]]
    assert memory.calls == 1


@pytest.mark.parametrize("n", range(20))
async def test_resume_while_the_run_ends(site: Site, n: int) -> None:
    """o-run-04: whoever resumes in the moment of the end gets the conclusion exactly once, and the stream closes."""
    site.say = steps = Steps()
    client = site.client()
    stream = await client.stream("hi", session_id=f"s{n}")
    steps.word("a")
    seen = await stream.until('"a"')
    url = f"/v1/chat/completions/{run_id_of(stream.headers)}?stream=true"
    steps.end()
    for _ in range(n):
        await asyncio.sleep(0)
    resumed = await client.get(url, headers={"last-event-id": str(seen[-1].id)})
    assert resumed.body.count(b'"finish_reason":"stop"') == 1
    assert resumed.frames[-1].data == "[DONE]"
    assert (await stream.rest()).count(b'"finish_reason":"stop"') == 1


@pytest.mark.parametrize("n", range(20))
async def test_stop_racing_with_completion(site: Site, n: int) -> None:
    """o-run-05: stream, response and the answer of stop agree on one outcome."""
    site.say = steps = Steps()
    client = site.client()
    stream = await client.open("POST", "/v1/responses", json={"model": "agent", "input": "hi", "stream": True})
    run_id = run_id_of(stream.headers)
    await steps.started.wait()
    steps.end()
    for _ in range(n // 2):
        await asyncio.sleep(0)
    stopped = (await client.post(f"/v1/responses/resp_{run_id}/cancel")).json
    frames = frames_of(await stream.rest())
    ends = [f for f in frames if f.event in ("response.completed", "response.incomplete", "response.failed")]
    assert len(ends) == 1
    assert ends[0].json["response"]["status"] == stopped["status"] in ("completed", "cancelled")
    assert (await client.get(f"/v1/responses/resp_{run_id}")).json == stopped


async def test_stop_reaches_every_viewer(site: Site) -> None:
    """o-run-06: starter and resumer both get the conclusion of a run that a third one stops."""
    site.say = steps = Steps()
    client = site.client()
    starter = await client.stream("hi", session_id="s")
    run_id = run_id_of(starter.headers)
    steps.word("part ")
    await starter.until("part ")
    viewer = await client.open("GET", f"/v1/responses/resp_{run_id}?stream=true")
    await client.post(f"/v1/responses/resp_{run_id}/cancel")
    seen = frames_of(await starter.rest())
    assert seen[-2].json["error"]["code"] == "cancelled"
    assert seen[-1].data == "[DONE]"
    assert frames_of(await viewer.rest())[-2].json["response"]["status"] == "cancelled"
    history = (await client.get("/v1/chat/sessions/s/messages")).json
    assert history["messages"][-1]["content"] == "part "
    assert history["runs"][0]["status"] == "cancelled"


async def test_stop_of_a_blocking_agent(memory: Site) -> None:
    """o-run-07: a stop of blocking code answers in time, and nothing follows the conclusion."""
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def stubborn(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield "begun"
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        yield "late"

    memory.say = stubborn
    client = memory.client()
    stream = await client.stream("hi", session_id="s")
    await stream.until("begun")
    before = loop.time()
    stopped = await client.post(f"/v1/responses/resp_{run_id_of(stream.headers)}/cancel")
    assert loop.time() - before < 2.0
    release.set()
    rest = await stream.rest()
    assert stopped.json["status"] == "cancelled"
    assert b"late" not in rest
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_double_submit_with_a_key(site: Site) -> None:
    """o-run-08: one run for equal requests with one key, also after a restart; another body and another user are apart."""
    ann, bob = await site.with_keys()
    key = {"idempotency-key": "k1"}
    first, second = await asyncio.gather(
        ann.chat("hi", session_id="s", headers=key), ann.chat("hi", session_id="s", headers=key)
    )
    assert first.json == second.json
    if site.kind == "sqlite":
        await site.restart()
        ann, bob = site.client(key="sk-ann"), site.client(key="sk-bob")
    again = await ann.chat("hi", session_id="s", headers=key)
    other = await ann.chat("ho", session_id="s", headers=key)
    theirs = await bob.chat("ho", session_id="s", headers=key)
    assert again.json["run_id"] == first.json["run_id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert ["idempotency-replayed" in one.headers for one in (first, second)].count(True) == 1
    assert "idempotency-replayed" not in theirs.headers
    assert (other.status, other.code) == (400, "idempotency_conflict")
    assert theirs.status == 200
    assert site.prompts == ["hi", "ho"]


async def test_a_client_that_repeats_itself_gets_the_first_run(memory: Site) -> None:
    """An official client's own retry of an equal body is answered by the run of its first try."""
    client = memory.client()
    first = await client.respond("hi", headers=SDK)
    retried = await client.respond("hi", headers={**SDK, "x-stainless-retry-count": "1"})
    meant = await client.respond("hi", headers=SDK)
    assert retried.json["id"] == first.json["id"]
    assert meant.json["id"] != first.json["id"]
    assert memory.calls == 2


async def test_busy_session_rejects(site: Site) -> None:
    """o-run-09: by default a second start is 400 `conversation_locked` with the id of the active run."""
    site.say = steps = Steps()
    client = site.client()
    stream = await client.stream("hi", session_id="s")
    await steps.started.wait()
    refused = await client.respond("ho", conversation="s")
    assert (refused.status, refused.code) == (400, "conversation_locked")
    assert refused.json["error"]["run_id"] == run_id_of(stream.headers)
    steps.end()
    await stream.rest()
    assert site.calls == 1


async def test_busy_session_queues(site: Site) -> None:
    """o-run-09: with `queue` the second run begins when the first has ended."""
    site.say = steps = Steps()
    client = site.client()
    first = await client.stream("one", session_id="s")
    second = await client.open(
        "POST",
        "/v1/responses",
        json={"model": "agent", "input": "two", "conversation": "s", "stream": True},
        headers={"runstone-busy": "queue"},
    )
    await steps.started.wait()
    assert site.prompts == ["one"]
    steps.word("a")
    steps.end()
    await first.rest()
    steps.word("b")
    steps.end()
    await second.rest()
    page = (await client.get("/v1/chat/sessions/s/messages")).json
    said = [[m["content"] for m in page["messages"] if m["run_id"] == run["id"]] for run in page["runs"]]
    assert said == [["one", "a"], ["two", "b"]]

    async def tell(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield ",".join(str(message["content"]) for message in messages)

    site.say = tell
    assert (await client.respond("three", conversation="s")).json["output_text"] == "one,a,two,b,three"


async def test_busy_session_stops_the_run(site: Site) -> None:
    """o-run-09: with `stop` the first run is cancelled and the second begins."""
    site.say = steps = Steps()
    client = site.client()
    first = await client.stream("one", session_id="s")
    await steps.started.wait()
    second = await client.stream("two", session_id="s", busy="interrupt", history="replace")
    steps.word("b")
    steps.end()
    assert text_of(frames_of(await second.rest())) == "b"
    assert frames_of(await first.rest())[-2].json["error"]["code"] == "cancelled"


@pytest.mark.parametrize("header", ["runstone-busy", "runstone-disconnect", "runstone-recovery", "runstone-dialect"])
async def test_unknown_words_in_headers_are_refused(memory: Site, header: str) -> None:
    """A policy or dialect that is none of ours is 400 and names the header; nothing starts."""
    answer = await memory.client().respond("hi", headers={header: "maybe"})
    assert (answer.status, answer.json["error"]["param"]) == (400, header)
    assert memory.calls == 0


async def test_header_and_body_may_not_contradict(memory: Site) -> None:
    """A header that says something else than the body is 400, never one of the two."""
    answer = await memory.client().respond("hi", busy="queue", headers={"runstone-busy": "stop"})
    assert answer.status == 400
    same = await memory.client().respond("hi", busy="queue", headers={"runstone-busy": "queue"})
    assert same.status == 200


async def test_one_run_id_for_many_steps(site: Site) -> None:
    """o-run-10: with two tools and three stretches of words, history is one turn of one run."""

    async def busy(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        for n in range(2):
            yield f"step {n} "
            async with context.tool("look", {"n": n}) as call:
                call.result({"n": n})
        yield "done"

    site.say = busy
    client = site.client()
    answer = await client.chat("hi", session_id="s")
    page = (await client.get("/v1/chat/sessions/s/messages")).json
    assert {m["run_id"] for m in page["messages"]} == {answer.json["run_id"]}
    assert [m["role"] for m in page["messages"]] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert len(page["runs"]) == 1


async def test_a_client_that_never_reads(site: Site) -> None:
    """o-run-13: a client that is gone before the first byte has started one run, which completes."""
    client = site.client()
    gone = client.send("POST", "/v1/chat/completions", json=chat_body("hi", stream=True, session_id="s"), gone=True)
    await asyncio.wait_for(gone.task, PATIENCE)
    async with asyncio.timeout(PATIENCE):
        while True:
            page = (await client.get("/v1/chat/sessions/s/messages")).json
            if page["runs"][0]["status"] == "completed":
                break
            await asyncio.sleep(0.005)
    assert len(page["runs"]) == 1
    assert site.calls == 1


async def test_a_run_is_visible_while_it_runs(site: Site) -> None:
    """o-sto-08: in a session made before, the first run is in history as running, with the cursor to read on from."""
    site.say = steps = Steps()
    client = site.client()
    session = (await client.post("/v1/conversations", {})).json["id"]
    stream = await client.stream("hi", session_id=session)
    steps.word("half ")
    await stream.until("half ")
    page = (await client.get(f"/v1/chat/sessions/{session}/messages")).json
    assert page["session"]["status"] == "running"
    active = page["active_run"]
    assert active["run_id"] == run_id_of(stream.headers)
    assert page["messages"][-1]["content"] == "half "
    steps.word("whole")
    steps.end()
    await stream.rest()
    resumed = await client.get(
        f"/v1/chat/completions/{active['run_id']}?stream=true", headers={"last-event-id": active["event_id"]}
    )
    assert text_of(resumed.frames) == "whole"


async def test_history_pages(site: Site) -> None:
    """Pages follow each other by `before`, oldest message first, without gap or repeat."""
    client = site.client()
    for n in range(4):
        await client.respond(f"q{n}", conversation="s")
    page = (await client.get("/v1/chat/sessions/s/messages?limit=3")).json
    seen = page["messages"]
    while page["has_more"]:
        page = (await client.get(f"/v1/chat/sessions/s/messages?limit=3&before={page['cursor']}")).json
        seen = page["messages"] + seen
    assert [m["content"] for m in seen] == [w for n in range(4) for w in (f"q{n}", f"You said: q{n}")]
    assert (await client.get("/v1/chat/sessions/s/messages?before=x")).status == 400
    assert (await client.get("/v1/chat/sessions/s/messages?limit=0")).status == 400


async def test_nul_and_lone_surrogates(site: Site) -> None:
    """o-sto-06: NUL survives, a lone surrogate becomes U+FFFD, in text and tool results; the run does not fail."""

    async def odd(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield "a\0b \ud83d"
        async with context.tool("t", {"k": "\0"}) as call:
            call.result({"x\0": "\ud83d"})

    site.say = odd
    client = site.client()
    answer = await client.chat("q\0", session_id="s")
    assert answer.json["choices"][0]["message"]["content"] == "a\0b \ufffd"
    page = (await client.get("/v1/chat/sessions/s/messages")).json
    assert page["messages"][0]["content"] == "q\0"
    assert json.loads(page["messages"][-1]["content"]) == {"x\0": "\ufffd"}


async def test_shutdown_ends_streams_well(site: Site) -> None:
    """A server that ends refuses starts, interrupts what runs, and every open stream gets its conclusion."""
    site.say = steps = Steps()
    client = site.client()
    stream = await client.stream("hi", session_id="s")
    await steps.started.wait()
    ending = asyncio.create_task(site.app.engine.end_runs())
    await asyncio.sleep(0)
    refused = await client.respond("ho")
    ready = await client.get("/readyz")
    frames = frames_of(await stream.rest())
    await ending
    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
    assert ready.status == 503
    assert frames[-2].json["error"]["code"] == "interrupted"
    assert frames[-2].json["error"]["reason"] == "shutdown"
    assert frames[-1].data == "[DONE]"


async def test_background_returns_at_once(site: Site) -> None:
    """A background response is answered before it is done, and read by its id afterwards."""
    site.say = steps = Steps()
    client = site.client()
    started = await client.respond("hi", background=True)
    assert started.json["status"] in ("queued", "in_progress")
    steps.word("later")
    steps.end()
    ended = await settled(client, started.json["run_id"])
    assert (ended["status"], ended["output_text"]) == ("completed", "later")


async def test_unstored_responses_are_unknown(site: Site) -> None:
    """`store: false` answers, and leaves nothing to read, chain to or list."""
    client = site.client()
    response = (await client.respond("hi", store=False)).json
    assert response["output_text"] == "You said: hi"
    assert (await client.get(f"/v1/responses/{response['id']}")).status == 404
    chained = await client.respond("ho", previous_response_id=response["id"])
    assert (chained.status, chained.code) == (400, "previous_response_not_found")


async def test_deleted_responses_are_gone(site: Site) -> None:
    """A deleted response is 404 everywhere, and a running one is stopped first."""
    site.say = steps = Steps()
    client = site.client()
    response = (await client.respond("hi", background=True)).json
    await steps.started.wait()
    url = f"/v1/responses/{response['id']}"
    assert (await client.delete(url)).json == {"id": response["id"], "object": "response", "deleted": True}
    for method, path in (("GET", url), ("POST", f"{url}/cancel"), ("DELETE", url), ("GET", f"{url}?stream=true")):
        assert (await client.ask(method, path)).status == 404
    assert steps.was_cancelled


async def test_approval_over_both_dialects(site: Site) -> None:
    """A run waits for a decision, goes on under the same run id as a new response, and each response names the other."""

    async def asking(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        answer = await context.approve("delete", {"path": "x"})
        yield f"approved={answer.approved}"

    site.say = asking
    client = site.client()
    waiting = (await client.respond("go", headers={"runstone-dialect": "openai"})).json
    asked = waiting["output"][-1]
    assert (waiting["status"], asked["type"]) == ("completed", "mcp_approval_request")
    shown = (await client.get(f"/v1/responses/{waiting['id']}", headers={"runstone-dialect": "ksadk"})).json
    assert (shown["status"], shown["incomplete_details"]) == ("incomplete", {"reason": "approval_required"})
    decision = [{"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}]
    done = (await client.respond(decision, previous_response_id=waiting["id"])).json
    assert (done["run_id"], done["output_text"]) == (waiting["run_id"], "approved=True")
    again = (await client.get(f"/v1/responses/{waiting['id']}")).json
    assert again["next_response_id"] == done["id"]


async def test_chat_resumes_after_a_pause(memory: Site) -> None:
    """Over Chat the stream ends at the pause, and resuming after it gives what came of the decision."""

    async def asking(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield "May I? "
        answer = await context.approve("delete", {"path": "x"})
        yield f"approved={answer.approved}"

    memory.say = asking
    client = memory.client()
    frames = frames_of(await (await client.stream("go", session_id="s")).rest())
    waits = frames[-2].json["runstone"]
    assert waits["status"] == "waiting"
    url = f"/v1/chat/completions/{waits['run_id']}?stream=true"
    cursor = {"last-event-id": str(frames[-2].id)}
    assert [f.data for f in (await client.get(url, headers=cursor)).frames] == ["[DONE]"]
    decision = [{"type": "mcp_approval_response", "approval_request_id": waits["approvals"][0]["approval_id"]}]
    await client.respond([{**decision[0], "approve": False}], conversation="s")
    assert text_of((await client.get(url, headers=cursor)).frames) == "approved=False"


async def test_a_failing_agent(memory: Site) -> None:
    """A failed run is 500 that forbids the retry over Chat, a failed response over Responses; the cause stays inside."""

    async def broken(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield "so far"
        raise ValueError("the password is hunter2")

    memory.say = broken
    client = memory.client()
    chat = await client.chat("hi")
    assert (chat.status, chat.headers["x-should-retry"]) == (500, "false")
    response = await client.respond("hi")
    assert (response.status, response.json["status"]) == (200, "failed")
    stream = frames_of(await (await client.stream("hi")).rest())
    assert stream[-2].json["error"]["code"] == "agent_error"
    for body in (chat.body, response.body, stream[-2].data.encode()):
        assert b"hunter2" not in body


async def test_first_byte_of_a_silent_agent(memory: Site) -> None:
    """o-htp-01: head and first bytes come at once while the agent is silent, with headers that proxies respect."""
    memory.say = steps = Steps()
    client = memory.client()
    for connection in (
        await client.stream("hi", session_id="s"),
        await client.open("POST", "/v1/responses", json={"model": "agent", "input": "hi", "stream": True}),
    ):
        headers = dict(connection.headers)
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        # Nothing that the agent does can bring them: it says nothing until the next step.
        assert await asyncio.wait_for(connection.write(), 5)
        steps.end()
        await connection.rest()


async def test_a_resumed_silent_stream_says_that_it_is_there(memory: Site) -> None:
    """o-htp-01: a stream that has nothing new to say sends a comment soon, so that proxies pass its head on."""
    memory.say = steps = Steps()
    client = memory.client()
    stream = await client.stream("hi", session_id="s")
    await stream.until('"role"')
    run_id = run_id_of(stream.headers)
    newest = memory.app.engine.live.recordings["local", run_id].committed
    resumed = await client.open(
        "GET", f"/v1/chat/completions/{run_id}?stream=true", headers={"last-event-id": str(newest)}
    )
    assert await resumed.write() == b": ping\n"
    steps.end()
    assert (await resumed.rest()).endswith(b"data: [DONE]\n\n")
    await stream.close()


async def test_heartbeats_stand_between_frames(memory: Site) -> None:
    """o-htp-02: a silent stream sends `: ping` lines without a blank line, none after the end, and frames stay whole."""
    await memory.restart(ping_after=0.02)
    memory.say = steps = Steps()
    client = memory.client()
    stream = await client.stream("hi", session_id="s")
    body = b""
    while body.count(b": ping\n") < 3:
        piece = await stream.write()
        assert piece is not None
        body += piece
    steps.word("x")
    steps.end()
    body += await stream.rest()
    assert b": ping\n\n" not in body
    assert body.endswith(b"\n\ndata: [DONE]\n\n")
    assert text_of(frames_of(body)) == "x"


async def test_the_body_ends_with_the_run(memory: Site) -> None:
    """o-htp-03: the write that has the end mark is the last one and completes the body."""
    stream = await memory.client().stream("hi")
    last = b""
    while (piece := await stream.write()) is not None:
        last = piece
    assert last.endswith(b"data: [DONE]\n\n")
    assert stream.ended_well


async def test_a_stream_that_the_store_cuts_has_no_end_mark() -> None:
    """o-sto-09: when the store fails for good, streams are cut without an end; when it is well again, all is as before."""
    store = TroubledStore(MemoryStore())
    settings = EngineConfig(storage_patience=0.05, storage_retry_after=0.01, sweep_every=0.01)
    steps = Steps()

    async def scripted(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        async for word in steps(messages, context):
            yield word

    engine = Engine({"agent": FunctionRunner(scripted)}, cast(Store, store), MemoryFiles(), config=settings)
    app = HttpApp(engine, Config())
    client = Client(app)
    stream = await client.stream("hi", session_id="s")
    run_id = run_id_of(stream.headers)
    await stream.until('"role"')
    store.fail()
    steps.word("lost")
    rest = await stream.rest()
    assert b"lost" not in rest
    assert b"[DONE]" not in rest
    assert not stream.ended_well
    store.heal()
    response = await settled(client, run_id)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "storage"})
    steps.end()
    assert (await client.respond("again", conversation="s")).status == 200
    await app.close()


async def test_sessions_of_many_users_do_not_mix(site: Site) -> None:
    """o-sec-11: of 20 parallel conversations with a secret each, none appears in another's answer or history."""
    client = site.client()
    secrets = [f"canary-{n:02d}" for n in range(20)]
    answers = await asyncio.gather(*(client.chat(secret, session_id=f"s-{secret}") for secret in secrets))
    for secret, answer in zip(secrets, answers, strict=True):
        page = (await client.get(f"/v1/chat/sessions/s-{secret}/messages")).body
        for other in secrets:
            assert (other.encode() in answer.body + page) == (other == secret)


async def test_one_agent_many_readers(site: Site) -> None:
    """Fifty readers of one run each get every frame once."""
    site.say = steps = Steps()
    client = site.client()
    starter = await client.stream("hi", session_id="s")
    url = f"/v1/chat/completions/{run_id_of(starter.headers)}?stream=true"
    readers = await asyncio.gather(*(client.open("GET", url) for _ in range(50)))
    steps.word(*(f"w{n} " for n in range(40)))
    steps.end()
    bodies = await asyncio.gather(*(reader.rest() for reader in readers))
    frames = {text_of(frames_of(body)) for body in bodies}
    assert frames == {"".join(f"w{n} " for n in range(40))}
    await starter.close()
