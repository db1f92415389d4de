"""Sessions over Hermes' API: the resource, its history, its forks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runstone.runners.agent_context import AgentContext
from tests.behaviour.control import Control, Hermes, spoken
from tests.behaviour.site import Steps

ROW_KEYS = {
    "id",
    "session_id",
    "role",
    "content",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "timestamp",
    "token_count",
    "finish_reason",
    "reasoning",
    "reasoning_content",
}


async def thinking(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Thinks, calls a tool, answers: a turn of several rows, the first of several items."""
    context.reasoning("Hm.")
    yield "I look."
    async with context.tool("look", {"at": str(messages[-1]["content"])}) as call:
        call.result("seen")
    yield f"Seen {messages[-1]['content']}."


async def test_create(control: Control) -> None:
    """S16: a session has the client's id or one of ours, and 201; the same id again is 409."""
    client = control.hermes()
    answer = await client.post("/api/sessions", {"id": "mine", "title": "Weather", "metadata": {"k": 1}})
    assert (answer.status, answer.json["object"]) == (201, "hermes.session")
    session = answer.json["session"]
    assert (session["id"], session["title"], session["metadata"]) == (
        "mine",
        "Weather",
        {"k": 1, "backendStatus": "idle"},
    )
    assert (session["status"], session["message_count"], session["active_run_id"]) == ("idle", 0, None)
    again = await client.post("/api/sessions", {"id": "mine"})
    assert (again.status, again.code) == (409, "session_exists")
    assert (await client.post("/api/sessions")).json["session"]["id"]


@pytest.mark.parametrize("body", [{"title": "Weather"}, {"title": ""}, {"title": 7}])
async def test_titles_are_unique(control: Control, body: dict[str, Any]) -> None:
    """S16: a title that is given and exists, or is none, is 400 `invalid_title`, on create, rename and fork."""
    client = control.hermes()
    await client.session("a", title="Weather")
    await client.session("b", title="Other")
    for answer in (
        await client.post("/api/sessions", body),
        await client.patch("/api/sessions/b", body),
        await client.post("/api/sessions/b/fork", body),
    ):
        assert (answer.status, answer.code) == (400, "invalid_title")
    assert (await client.patch("/api/sessions/a", {"title": "Weather"})).status == 200


@pytest.mark.parametrize("id", ["../etc/passwd", "a/b", "a\nb", "x" * 257, "..", ""])
async def test_ids_like_paths(live: Control, id: str) -> None:
    """S16: an id that could be a path, or is too long, is 400 `invalid_session_id`."""
    answer = await live.hermes().post("/api/sessions", {"id": id})
    assert (answer.status, answer.code) == (400, "invalid_session_id")


async def test_titles_are_made(control: Control) -> None:
    """A title is made from the first message, on every surface, also in a session made before; a made one gets a number."""
    client = control.hermes()
    await client.session("a")
    await client.say("What is  the\nweather?", "a")
    await client.begin("What is the weather?", session_id="b")
    await client.chat("What is the weather?", session_id="c")
    titles = {id: (await client.get(f"/api/sessions/{id}")).json["session"]["title"] for id in "abc"}
    assert titles == {
        "a": "What is the weather?",
        "b": "What is the weather? #2",
        "c": "What is the weather? #3",
    }
    await client.session("named", title="Mine")
    await client.say("hello", "named")
    assert (await client.get("/api/sessions/named")).json["session"]["title"] == "Mine"


async def test_the_list(control: Control) -> None:
    """S16: newest activity first, paged, searched by title; `has_more` only when something follows; with a preview."""
    client = control.hermes()
    for n in range(5):
        await client.session(f"s{n}", title=f"Title {n}", source="bot" if n == 2 else None)
    await client.say("first words", "s1")
    page = (await client.get("/api/sessions?limit=2")).json
    assert [session["id"] for session in page["data"]] == ["s1", "s4"]
    assert (page["has_more"], page["limit"], page["offset"]) == (True, 2, 0)
    assert (page["data"][0]["preview"], page["data"][0]["last_active"] > 0) == ("first words", True)
    rest = (await client.get("/api/sessions?limit=3&offset=2")).json
    assert ([session["id"] for session in rest["data"]], rest["has_more"]) == (["s3", "s2", "s0"], False)
    assert [s["id"] for s in (await client.get("/api/sessions?search=tle 3")).json["data"]] == ["s3"]
    assert [s["id"] for s in (await client.get("/api/sessions?source=bot")).json["data"]] == ["s2"]
    nothing = (await client.get("/api/sessions?limit=0")).json
    assert (nothing["data"], nothing["has_more"]) == ([], True)
    odd = (await client.get("/api/sessions?limit=-1&offset=x")).json
    assert (odd["limit"], odd["offset"], len(odd["data"])) == (50, 0, 5)


async def test_hidden_sessions(control: Control) -> None:
    """A hidden session is listed by its exact title only, and keeps its title for itself."""
    client = control.hermes()
    await client.session("bot", title="Bot Chat")
    await client.patch("/api/sessions/bot", {"hidden": True})
    assert (await client.get("/api/sessions")).json["data"] == []
    assert (await client.get("/api/sessions?title=Bot Chat")).json["data"] == []
    found = (await client.get("/api/sessions?limit=200&title=Bot+Chat&include_hidden=1".replace("+", " "))).json["data"]
    assert [(session["id"], session["hidden"]) for session in found] == [("bot", True)]
    assert (await client.post("/api/sessions", {"title": "Bot Chat"})).code == "invalid_title"
    await client.patch("/api/sessions/bot", {"hidden": False})
    assert len((await client.get("/api/sessions")).json["data"]) == 1


async def test_change(control: Control) -> None:
    """Title, metadata and flags change, what is not named stays; unknown fields are refused; null takes the title away."""
    client = control.hermes()
    await client.session(title="Old", metadata={"a": 1}, system_prompt="Be brief.")
    answer = await client.patch("/api/sessions/s", {"metadata": {"b": 2}, "pinned": True, "end_reason": "user_exit"})
    session = answer.json["session"]
    assert (session["title"], session["pinned"], session["end_reason"]) == ("Old", True, "user_exit")
    assert session["metadata"] == {"b": 2, "backendStatus": "idle"}
    assert session["has_system_prompt"] is True and session["ended_at"] is not None
    assert (await client.patch("/api/sessions/s", {"title": None})).json["session"]["title"] is None
    assert (await client.patch("/api/sessions/s", {"colour": "red"})).code == "unsupported_session_field"
    assert (await client.patch("/api/sessions/s", {"metadata": {"hermes_x": 1}})).code == "invalid_session_field"
    assert (await client.patch("/api/sessions/none", {"title": "x"})).code == "session_not_found"


async def test_other_surfaces_do_not_show_hermes_fields(control: Control) -> None:
    """What Hermes keeps in a session's metadata is neither shown nor lost when a conversation's metadata changes."""
    client = control.hermes()
    await client.session(metadata={"a": "1"}, system_prompt="Be brief.")
    assert (await client.get("/v1/conversations/s")).json["metadata"] == {"a": "1"}
    changed = await client.post("/v1/conversations/s", {"metadata": {"b": "2"}})
    assert changed.json["metadata"] == {"b": "2"}
    session = (await client.get("/api/sessions/s")).json["session"]
    assert (session["has_system_prompt"], session["metadata"]["b"]) == (True, "2")


async def test_the_session_speaks_first(control: Control) -> None:
    """The system prompt of a session precedes the turn's own instructions, also when a turn is regenerated."""
    seen: list[Any] = []

    async def say(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        seen.append(context.instructions)
        yield "ok"

    control.say = say
    client = control.hermes()
    await client.session(system_prompt="Be brief.")
    await client.say("hi", run_id="r1", instructions="Be kind.")
    receipt = (await client.post("/v1/runs/r1/regenerate")).json
    await client.until(receipt["run_id"])
    await client.begin("hi", run_id="r3", session_id="s")
    await client.until("r3")
    assert seen == ["Be brief.\n\nBe kind.", "Be brief.\n\nBe kind.", "Be brief."]


async def test_delete(control: Control) -> None:
    """S14, S16: a session goes with its runs; while one runs that is 409 naming it, or it is stopped when asked."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.session()
    run = await client.begin("hi", session_id="s")
    await steps.started.wait()
    refused = await client.delete("/api/sessions/s")
    assert (refused.status, refused.code) == (409, "session_active_turn")
    assert refused.json["error"]["run_id"] == run["run_id"]
    answer = await client.delete("/api/sessions/s?stop=true")
    assert answer.json == {"object": "hermes.session.deleted", "id": "s", "deleted": True}
    assert steps.was_cancelled
    assert (await client.delete("/api/sessions/s")).code == "session_not_found"
    assert (await client.get(f"/v1/runs/{run['run_id']}")).code == "run_not_found"
    assert (await client.delete("/api/sessions/s?stop=maybe")).status == 404
    await client.session()
    assert (await client.delete("/api/sessions/s?stop=maybe")).status == 400


async def test_history(control: Control) -> None:
    """S15: rows have Hermes' keys and the run's id; `runs` covers them; a call, its result and the answer are one run."""
    control.say = thinking
    client = control.hermes()
    await client.session()
    for text in ("one", "two"):
        await client.say(text)
    page = await client.history()
    assert spoken(page) == [
        ("user", "one"),
        ("assistant", "I look."),
        ("tool", "seen"),
        ("assistant", "Seen one."),
        ("user", "two"),
        ("assistant", "I look."),
        ("tool", "seen"),
        ("assistant", "Seen two."),
    ]
    assert all(row.keys() >= ROW_KEYS | {"run_id"} for row in page["data"])
    assert {row["run_id"] for row in page["data"]} == {run["id"] for run in page["runs"]}
    assert all(run["status"] == "completed" and run["finished_at"] >= run["created_at"] for run in page["runs"])
    assert (page["active_run"], page["session"]["status"], page["has_more"]) == (None, "idle", False)
    ids = [row["id"] for row in page["data"]]
    assert ids == sorted(ids)
    assert (page["data"][1]["reasoning"], page["data"][1]["finish_reason"]) == ("Hm.", "tool_calls")


async def paged(client: Hermes, first: str, key: str, name: str) -> list[dict[str, Any]]:
    """The pages of a session's history, followed by the cursor under `key`, which goes into the query as `name`."""
    pages = [await client.history(query=first)]
    while pages[-1][key] is not None:
        pages.append(await client.history(query=f"?limit=3&{name}={pages[-1][key]}"))
    return pages


async def test_history_is_paged_in_both_directions(control: Control) -> None:
    """S15: backwards and forwards, by cursor and by offset, the pages hold each row once; wrong values are 400."""
    control.say = thinking
    client = control.hermes()
    await client.session()
    for n in range(6):
        await client.say(f"turn {n}")
    whole = (await client.history())["data"]
    assert len(whole) == 24
    backwards = await paged(client, "?limit=3&order=latest", "cursor", "before")
    assert [row for page in reversed(backwards) for row in page["data"]] == whole
    forwards = await paged(client, "?limit=3", "newer", "after")
    assert [row for page in forwards for row in page["data"]] == whole
    by_offset = [(await client.history(query=f"?limit=5&offset={n}"))["data"] for n in range(0, 24, 5)]
    assert [row for rows in by_offset for row in rows] == whole
    latest = (await client.history(query="?limit=2&offset=1&order=latest"))["data"]
    assert latest == whole[21:23]
    for pages in (backwards, forwards):
        assert [("active_run" in page) == (page["newer"] is None) for page in pages] == [True] * len(pages)
        assert all({row["run_id"] for row in page["data"]} <= {run["id"] for run in page["runs"]} for page in pages)
    again = await client.history(query=f"?limit=3&after={backwards[1]['newer']}")
    assert again["data"] == whole[21:]
    for query in ("?limit=-1", "?limit=x", "?order=up", "?offset=-2", "?before=1.0&offset=2", "?after=x"):
        answer = await client.get(f"/api/sessions/s/messages{query}")
        assert (answer.status, answer.code) in {(400, "invalid_pagination"), (400, "cursor_unknown")}, query


async def test_the_history_of_an_active_run(control: Control) -> None:
    """S15: a page and its `active_run` fit together: what follows the event is exactly what the rows lack."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.session()
    await client.begin("hi", session_id="s", run_id="r1")
    reader = await client.open("GET", "/v1/runs/r1/events")
    steps.word("one ", "two ")
    await reader.until("two ")
    page = await client.history()
    assert page["session"]["status"] == "running"
    assert page["session"]["metadata"]["backendStatus"] == "running"
    assert spoken(page) == [("user", "hi"), ("assistant", "one two ")]
    active = page["active_run"]
    assert (active["run_id"], page["runs"][0]["last_event_id"]) == ("r1", active["event_id"])
    assert (await client.get("/api/sessions/s")).json["session"]["active_run_id"] == "r1"
    steps.word("three")
    steps.end()
    rest = await client.get("/v1/runs/r1/events", headers={"last-event-id": active["event_id"]})
    deltas = [frame.json["delta"] for frame in rest.frames if frame.data and frame.json["event"] == "message.delta"]
    assert deltas == ["three"]
    await reader.close()


async def test_fork(control: Control) -> None:
    """S16: a fork copies the rows under new ids, names its parent, takes an empty body, and both go on by themselves."""
    control.say = thinking
    client = control.hermes()
    await client.session(title="Trip")
    await client.say("one")
    copy = (await client.post("/api/sessions/s/fork")).json["session"]
    assert (copy["title"], copy["parent_session_id"], copy["message_count"]) == ("Trip #2", "s", 4)
    source, forked = await client.history(), await client.history(copy["id"])
    assert spoken(source) == spoken(forked)
    assert [row["run_id"] for row in forked["data"]] == [None] * 4
    assert (await client.post("/api/sessions/s/fork", {"id": "s"})).code == "session_exists"
    await client.say("two", copy["id"])
    assert len((await client.history())["data"]) == 4
    assert spoken(await client.history(copy["id"]))[4:] == [
        ("user", "two"),
        ("assistant", "I look."),
        ("tool", "seen"),
        ("assistant", "Seen two."),
    ]


async def test_fork_at_a_message(control: Control) -> None:
    """A fork at a message has everything up to and with it; rows of several turns stay apart; another id is 404."""
    control.say = thinking
    client = control.hermes()
    await client.session()
    for text in ("one", "two", "three"):
        await client.say(text)
    rows = (await client.history())["data"]
    for n in range(len(rows)):
        answer = await client.post("/api/sessions/s/fork", {"id": f"f{n}", "message_id": rows[n]["id"]})
        assert answer.status == 201
        forked = await client.history(f"f{n}")
        assert spoken(forked) == [(row["role"], row["content"]) for row in rows[: n + 1]]
        assert [bool(row["tool_calls"]) for row in forked["data"]] == [bool(row["tool_calls"]) for row in rows[: n + 1]]
    wrong = await client.post("/api/sessions/s/fork", {"message_id": rows[0]["id"] + 1})
    assert (wrong.status, wrong.code) == (404, "message_not_found")


async def test_two_turns_at_once(control: Control) -> None:
    """S14, o-run-09: a second turn is 409 naming the live run, or waits its turn; rows never interleave."""
    control.say = steps = Steps()
    client = control.hermes()
    await client.session()
    await client.begin("one", session_id="s", run_id="r1")
    await steps.started.wait()
    for answer in (
        await client.say("two"),
        await client.post("/v1/runs", {"input": "two", "session_id": "s"}),
        await client.post("/api/sessions/s/chat/stream", {"message": "two"}),
    ):
        assert (answer.status, answer.code, answer.json["error"]["run_id"]) == (409, "run_already_active", "r1")
    waiting = asyncio.create_task(client.say("two", busy="queue"))
    await client.until("r1", "running")
    steps.word("first")
    steps.end()
    await client.until("r1")
    steps.word("second")
    steps.end()
    assert (await waiting).json["message"]["content"] == "second"
    assert spoken(await client.history()) == [
        ("user", "one"),
        ("assistant", "first"),
        ("user", "two"),
        ("assistant", "second"),
    ]


async def test_sessions_belong_to_their_user(control: Control) -> None:
    """o-sec-01: another user's sessions and runs are not there, whatever is asked of them."""
    await control.with_keys()
    ann, bob = control.hermes(key="sk-ann"), control.hermes(key="sk-bob")
    await ann.session()
    await ann.say("hi", run_id="r1")
    asked = [
        await bob.get("/api/sessions/s"),
        await bob.patch("/api/sessions/s", {"title": "x"}),
        await bob.delete("/api/sessions/s"),
        await bob.post("/api/sessions/s/fork"),
        await bob.get("/api/sessions/s/messages"),
        await bob.post("/api/sessions/s/chat", {"message": "x"}),
        await bob.get("/api/sessions/s/events"),
        await bob.get("/api/sessions/s/chat/stream?run_id=r1"),
        await bob.get("/v1/runs/r1"),
        await bob.get("/v1/runs/r1/events"),
        await bob.post("/v1/runs/r1/stop"),
        await bob.post("/v1/runs/r1/steer", {"input": "x"}),
        await bob.post("/v1/runs/r1/approval", {"choice": "once"}),
        await bob.post("/v1/runs/r1/regenerate"),
        await bob.get("/v1/runs/r1/alternatives"),
        await bob.post("/v1/runs/r1/tool_outputs", {"tool_outputs": [{"tool_call_id": "c", "output": "x"}]}),
    ]
    assert [(answer.status, answer.code) for answer in asked] == [(404, "session_not_found")] * 8 + [
        (404, "run_not_found")
    ] * 8
    assert (await bob.get("/api/sessions")).json["data"] == (await bob.get("/v1/runs")).json["data"] == []
    await bob.session()
    assert (await bob.history())["data"] == []
