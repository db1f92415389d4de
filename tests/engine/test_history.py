"""Pages of history: limits, cursors, and a page of a running session that fits its event cursor exactly."""

from __future__ import annotations

import asyncio
import random

import pytest

from runstone.core.events import Event, TextDelta
from runstone.core.items import Item, Message, Reasoning
from runstone.core.runs import RunRequest
from runstone.core.transcript import HistoryRow, Page, Transcript
from runstone.engine.engine import Engine
from runstone.errors import CursorUnknown, NotFound
from runstone.runners.base import RunContext
from runstone.runners.compose import Composer
from tests.engine.support import OWNER, Held, World, ask, bounded, echo, ended, read_all, read_until, settle, turn


async def pages(engine: Engine, session_id: str, limit: int) -> list[HistoryRow]:
    """All rows, read backwards in pages."""
    rows: list[HistoryRow] = []
    before = None
    while True:
        page = await engine.history(OWNER, session_id, before=before, limit=limit)
        assert len(page.rows) <= limit
        rows = page.rows + rows
        before = page.before
        if before is None:
            return rows
        assert len(page.rows) == limit


async def test_pages_of_any_size_give_the_whole(world: World) -> None:
    """Whatever the limit, paging back gives every row once, in order; the last page has no cursor."""
    async with world.running(echo) as engine:
        for n in range(5):
            await turn(engine, f"q{n}", session_id="s")
        whole = await pages(engine, "s", 100)
        assert [item.text for item in (row.item for row in whole) if isinstance(item, Message)][:4] == [
            "q0",
            "q0 after 0",
            "q1",
            "q1 after 2",
        ]
        assert len(whole) == 10
        for limit in (1, 2, 3, 9, 10, 11):
            assert await pages(engine, "s", limit) == whole


async def test_page_names_the_runs_of_its_rows(world: World) -> None:
    """Each page carries the runs that its rows belong to, with their outcomes."""
    async with world.running(echo) as engine:
        first = await turn(engine, session_id="s")
        second = await turn(engine, session_id="s")
        page = await engine.history(OWNER, "s", limit=2)
        assert [run.id for run in page.runs] == [second.id]
        assert page.runs[0].outcome == "completed"
        older = await engine.history(OWNER, "s", before=page.before, limit=2)
        assert [run.id for run in older.runs] == [first.id]
        assert not older.has_more


async def test_history_of_what_is_not_there(world: World) -> None:
    """An unknown session is not found; a cursor that no page gave is refused."""
    async with world.running(echo) as engine:
        with pytest.raises(NotFound):
            await engine.history(OWNER, "nope")
        await turn(engine, session_id="s")
        for cursor in ("", "x", "1", "1.2.3", "-1.0", "9" * 40 + ".0"):
            with pytest.raises(CursorUnknown):
                await engine.history(OWNER, "s", before=cursor)


async def test_idle_session_says_so(world: World) -> None:
    """After the end `active` is None, and nothing is open."""
    async with world.running(echo) as engine:
        await turn(engine, session_id="s")
        page = await engine.history(OWNER, "s")
        assert page.active is None
        assert page.open_items == []


async def test_running_session_shows_the_open_message(world: World) -> None:
    """In the middle of an answer the page has the question, the words so far as an open item, and the cursor behind them."""
    held = Held()
    async with world.running(held) as engine:
        started = await engine.start(OWNER, ask("q", session_id="s"))
        seen = await read_until(engine, started.run.id, TextDelta)
        page = await engine.history(OWNER, "s")
        assert page.active is not None
        assert (page.active.run_id, page.active.status, page.active.seq) == (started.run.id, "running", seen[-1].seq)
        assert [item.text for item in page.open_items if isinstance(item, Message)] == ["one "]
        assert [row.is_input for row in page.rows] == [True]
        held.release.set()
        await ended(engine, started.run.id)


async def test_queued_head_shows_the_run_that_goes_on(world: World) -> None:
    """With a run queued behind it, the running one is the active run of the page."""
    held = Held()
    async with world.running(held) as engine:
        first = await engine.start(OWNER, ask("q", session_id="s"))
        second = await engine.start(OWNER, ask("later", session_id="s", busy="queue"))
        await held.started.wait()
        page = await engine.history(OWNER, "s")
        assert page.active is not None
        assert page.active.run_id == first.run.id
        held.release.set()
        await ended(engine, second.run.id)


async def chatty(request: RunRequest, context: RunContext) -> None:
    """Says many small things of every kind."""
    composer = Composer(context)
    for n in range(12):
        composer.reasoning(f"think {n} ")
        composer.text(f"say {n}")
        composer.text(" and more")
        call = composer.tool_call("tool", {"n": n})
        composer.tool_progress(call, n)
        await settle(n * 3)
        composer.tool_result(call, f"result {n}", is_error=n % 3 == 0)
    composer.close()


def read_on(page: Page, events: list[Event]) -> list[Item]:
    """What a client has that took the page and then the events after its cursor."""
    items = {row.item.item_id: row.item for row in page.rows}
    texts = {item.item_id: item.text for item in page.open_items if isinstance(item, (Message, Reasoning))}
    for event in events:
        body = event.body
        match type(body).__name__:
            case "ItemStarted":
                assert body.item_id not in items  # type: ignore[union-attr]
                texts[body.item_id] = ""  # type: ignore[union-attr]
            case "TextDelta" | "ReasoningDelta":
                texts[body.item_id] += body.text  # type: ignore[union-attr]
            case "ItemEnded":
                item = body.item  # type: ignore[union-attr]
                if isinstance(item, (Message, Reasoning)):
                    assert item.text == texts[item.item_id]
                items[item.item_id] = item
    return list(items.values())


async def test_page_and_what_follows_make_the_whole(world: World) -> None:
    """At 200 random moments of runs the page and the events after its cursor are the whole, each item once."""
    rng = random.Random(3)
    moments, sessions = 0, 0
    while moments < (200 if world.kind == "memory" else 40):
        async with world.running(chatty) as engine:
            sessions += 1
            session_id = f"s{sessions}"
            started = await engine.start(OWNER, ask("q", session_id=session_id))
            taken: list[Page] = []
            while True:
                await settle(rng.randrange(4))
                page = await engine.history(OWNER, session_id, limit=1_000)
                if page.active is None:
                    break
                taken.append(page)
            whole = await read_all(engine, started.run.id)
            transcript = Transcript(started.run.id)
            for event in whole:
                transcript.feed(event)
            expected = [row.item for row in transcript.rows]
            assert [row.item for row in page.rows] == expected
            for page in taken:
                assert page.active is not None
                assert page.rows == transcript.rows[: len(page.rows)]
                assert read_on(page, whole[page.active.seq :]) == expected
                moments += 1


async def test_pages_while_turns_follow_each_other(world: World) -> None:
    """A page never calls a session idle that is not, nor shows rows of a run that it does not name, while turns come and go."""
    async with world.running(chatty) as engine:
        await turn(engine, session_id="s")
        going_on = True

        async def turns() -> None:
            nonlocal going_on
            for _ in range(10):
                await turn(engine, session_id="s")
            going_on = False

        work = asyncio.create_task(turns())
        rng = random.Random(5)
        while going_on:
            await settle(rng.randrange(5))
            page = await engine.history(OWNER, "s", limit=1_000)
            for run in page.runs:
                rows = [row for row in page.rows if row.run_id == run.id]
                if run.outcome is None:
                    assert page.active is not None
                    assert page.active.run_id == run.id
                    assert all(row.seq <= page.active.seq for row in rows)
                else:
                    assert len(rows) == 1 + 12 * 4
        await bounded(work)


async def test_page_of_a_long_session_reads_only_its_rows(memory: World) -> None:
    """The newest page of a long session asks the store for its own rows, not for all (o-sto-07)."""
    async with memory.running(echo) as engine:
        for _ in range(50):
            await turn(engine, session_id="s")
        asked: list[int] = []
        inner = memory.store.inner.rows

        async def counting(*args: object, **fields: object) -> list[HistoryRow]:
            asked.append(fields["limit"])  # type: ignore[arg-type]
            return await inner(*args, **fields)  # type: ignore[arg-type]

        memory.store.instead["rows"] = counting
        page = await engine.history(OWNER, "s", limit=10)
        assert len(page.rows) == 10
        assert page.has_more
        assert asked == [11]
