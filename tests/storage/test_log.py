"""The event log, on every backend."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runstone.core.events import Custom, ItemEnded, RunStarted, ToolProgress
from runstone.errors import AppendConflict, NotStorable
from runstone.storage.base import Store
from runstone.storage.memory import MemoryStore
from tests.storage.builders import (
    OWNER,
    a_row,
    a_run,
    a_session,
    an_append,
    deltas,
    ended,
    event,
    message,
    said,
    start,
    texts,
)


async def test_times_are_no_lock(store: Store) -> None:
    """o-sto-04: ten appends with one and the same time, and one from the past, are all taken: order is the numbers' alone."""
    run = await start(store)
    for seq in range(2, 12):
        await store.append(msgspec.structs.replace(an_append(run, deltas(seq, 1)), at=5.0))
    await store.append(msgspec.structs.replace(an_append(run, deltas(12, 1)), at=1.0))
    assert [found.seq for found in await store.events(OWNER, "r1", after=0, limit=100)] == list(range(1, 13))


async def test_events_come_back_as_they_were_written(store: Store) -> None:
    """What is read is what was appended, from the first event on."""
    run = await start(store)
    await store.append(an_append(run, deltas(2, 3)))
    await store.append(an_append(run, deltas(5, 2)))
    found = await store.events(OWNER, "r1", after=0, limit=100)
    assert [e.seq for e in found] == [1, 2, 3, 4, 5, 6]
    assert found[1:] == deltas(2, 5)


async def test_a_page_begins_after_the_cursor_and_keeps_the_limit(store: Store) -> None:
    """`after` is exclusive, also inside a batch; a page is never longer than asked, and not empty when there is more."""
    run = await start(store)
    await store.append(an_append(run, deltas(2, 10)))
    assert [e.seq for e in await store.events(OWNER, "r1", after=4, limit=3)] == [5, 6, 7]
    assert [e.seq for e in await store.events(OWNER, "r1", after=10, limit=3)] == [11]
    assert await store.events(OWNER, "r1", after=11, limit=3) == []


async def test_a_long_run_is_read_in_pages(store: Store) -> None:
    """Pages joined are the whole log, also where it was stored in several ways."""
    run = await start(store)
    appends = [store.append(an_append(run, deltas(2 + 7 * n, 7))) for n in range(400)]
    await asyncio.gather(*appends)
    seqs: list[int] = []
    while page := await store.events(OWNER, "r1", after=seqs[-1] if seqs else 0, limit=100):
        assert len(page) <= 100
        seqs += [e.seq for e in page]
    assert seqs == list(range(1, 2802))


async def test_appends_take_effect_in_the_order_of_the_calls(store: Store) -> None:
    """Appends that nobody awaited yet follow each other."""
    run = await start(store)
    futures = [store.append(an_append(run, deltas(2 + n, 1))) for n in range(50)]
    await futures[-1]
    assert all(future.done() for future in futures)
    assert await store.last_seq(OWNER, "r1") == 51


async def test_an_append_is_not_done_before_the_loop_turned(store: Store) -> None:
    """The future is never done when the call returns: durable takes time."""
    run = await start(store)
    future = store.append(an_append(run, deltas(2, 1)))
    assert not future.done()
    await future


@pytest.mark.parametrize("first_seq", [1, 3, 40])
async def test_numbers_go_on_without_gap_or_repeat(store: Store, first_seq: int) -> None:
    """Events that repeat a number or leave one out are a conflict, and nothing of them is kept."""
    run = await start(store)
    with pytest.raises(AppendConflict):
        await store.append(an_append(run, deltas(first_seq, 2)))
    assert await store.last_seq(OWNER, "r1") == 1
    await store.append(an_append(run, deltas(2, 2)))
    assert await store.last_seq(OWNER, "r1") == 3


async def test_a_refused_append_leaves_no_row_and_no_record(store: Store) -> None:
    """Events, rows and record of one append are all there or none."""
    run = await start(store)
    batch = said(run, 5, "lost")
    with pytest.raises(AppendConflict):
        await store.append(msgspec.structs.replace(batch, run=msgspec.structs.replace(run, status="running")))
    assert texts(await store.run_rows(OWNER, "r1")) == ["hello"]
    assert await store.run(OWNER, "r1") == run


async def test_one_refused_append_does_not_touch_others(store: Store) -> None:
    """Among appends that share a commit only the wrong one fails."""
    runs = [await start(store, f"r{n}", f"s{n}") for n in range(5)]
    futures = [store.append(an_append(run, deltas(9 if run.id == "r2" else 2, 2))) for run in runs]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert [isinstance(result, AppendConflict) for result in results] == [False, False, True, False, False]
    assert [await store.last_seq(OWNER, run.id) for run in runs] == [3, 3, 1, 3, 3]


async def test_a_row_in_a_taken_place_fails_alone(store: Store) -> None:
    """Two rows never share a place; the append that tries loses its events too, its neighbours do not."""
    one, two = await start(store, "r1", "s1"), await start(store, "r2", "s2")
    clash = msgspec.structs.replace(said(one, 2, "clash", shift=-1), events=deltas(2, 1))
    results = await asyncio.gather(store.append(clash), store.append(said(two, 2, "fine")), return_exceptions=True)
    assert isinstance(results[0], AppendConflict)
    assert results[1] is None
    assert await store.last_seq(OWNER, "r1") == 1
    assert texts(await store.run_rows(OWNER, "r2")) == ["hello", "fine"]
    await store.append(an_append(one, deltas(2, 1)))


async def test_nothing_follows_the_outcome(store: Store) -> None:
    """Events after the append that carries the ended record are refused."""
    run = await start(store)
    await store.append(ended(run, 2))
    with pytest.raises(AppendConflict):
        await store.append(an_append(run, deltas(3, 1)))
    assert await store.last_seq(OWNER, "r1") == 2


async def test_nothing_follows_the_outcome_in_the_same_moment(store: Store) -> None:
    """Events handed over right behind the end are refused as well."""
    run = await start(store)
    last = store.append(ended(run, 2))
    late = store.append(an_append(run, deltas(3, 1)))
    await last
    with pytest.raises(AppendConflict):
        await late


async def test_a_run_that_is_not_there_cannot_be_appended_to(store: Store) -> None:
    """A run that was never created, or of another owner, is a conflict."""
    await start(store)
    for other in (a_run("nobody"), a_run("r1", owner="bob")):
        with pytest.raises(AppendConflict):
            await store.append(an_append(other, deltas(1, 1)))


@pytest.mark.parametrize("value", [object(), "\ud800", {1: {2: object()}}], ids=["object", "surrogate", "nested"])
async def test_what_json_cannot_carry_fails_alone(store: Store, value: Any) -> None:
    """An event that cannot be encoded fails its own append; the run and the others go on."""
    run, other = await start(store, "r1", "s1"), await start(store, "r2", "s2")
    bad = store.append(an_append(run, [event(2, Custom(name="n", data=value))]))
    good = store.append(an_append(other, deltas(2, 1)))
    with pytest.raises(NotStorable):
        await bad
    await good
    await store.append(an_append(run, deltas(2, 1)))


async def test_too_deep_a_value_fails_alone(store: Store) -> None:
    """A value nested deeper than can be written down is refused as well."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    run = await start(store)
    with pytest.raises(NotStorable):
        await store.append(an_append(run, [event(2, Custom(name="n", data=deep))]))
    while deep:  # Python takes a deep value apart by recursion
        deep = deep.pop()


async def test_text_is_kept_as_it_is(store: Store) -> None:
    """NUL, line separators and characters beyond the first plane survive, in events, rows and titles."""
    text = "a\x00b\u2028\u0085 \U0001f600 'quote' \"double\" \\"
    await store.create_session(a_session("titled", title=text), [])
    run = await start(store, "r1", "s2", text=text)
    await store.append(an_append(run, deltas(2, 1, text=text)))
    assert (await store.events(OWNER, "r1", after=1, limit=1)) == deltas(2, 1, text=text)
    assert texts(await store.run_rows(OWNER, "r1")) == [text]
    assert [s.title for s in await store.sessions(OWNER, limit=5, search="A\x00B")] == [text]


async def test_a_log_is_its_owners(store: Store) -> None:
    """Another owner's run of the same id is another run, and a run is nothing to others."""
    run = await start(store)
    await store.append(an_append(run, deltas(2, 1)))
    assert await store.events("bob", "r1", after=0, limit=9) == []
    assert await store.last_seq("bob", "r1") == 0
    assert await store.session_events("bob", "s1", after=0, limit=9) == []
    assert await store.last_position("bob", "s1") == 0
    his = await start(store, "r1", "s1", owner="bob", text="mine")
    await store.append(an_append(his, deltas(2, 3)))
    assert await store.last_seq(OWNER, "r1") == 2
    assert await store.last_seq("bob", "r1") == 4


async def test_ends_of_an_unknown_log_are_zero(store: Store) -> None:
    """A run without events, or no run, has 0 as first and last."""
    assert (await store.first_seq(OWNER, "r1"), await store.last_seq(OWNER, "r1")) == (0, 0)
    await start(store)
    assert (await store.first_seq(OWNER, "r1"), await store.last_seq(OWNER, "r1")) == (1, 1)


async def test_a_sessions_events_are_merged_by_position(store: Store) -> None:
    """Runs that wrote in turns are read in the order of positions, each event once, over pages of any size."""
    one = await start(store, "r1", position=1)
    await store.append(an_append(one, deltas(2, 3)))  # 2 3 4
    two = await start(store, "r2", position=5, head="r1")
    await store.append(an_append(two, deltas(2, 2, shift=4)))  # 6 7
    await store.append(an_append(one, [event(5, RunStarted(), shift=3), *deltas(6, 1, shift=5)]))  # 8 11
    await store.append(an_append(two, deltas(4, 2, shift=5)))  # 9 10
    await store.append(ended(two, 6, shift=6))  # 12
    for limit in (1, 2, 3, 100):
        found: list[tuple[int, str, int]] = []
        while page := await store.session_events(OWNER, "s1", after=found[-1][0] if found else 0, limit=limit):
            assert len(page) <= limit
            found += [(e.event.position, e.run_id, e.event.seq) for e in page]
        assert [position for position, _, _ in found] == list(range(1, 13))
        assert [seq for _, run, seq in found if run == "r1"] == [1, 2, 3, 4, 5, 6]
        assert [seq for _, run, seq in found if run == "r2"] == [1, 2, 3, 4, 5, 6]


async def test_any_cursor_of_interleaved_runs_is_found(store: Store) -> None:
    """Where large events of three runs alternate, every cursor gives exactly what follows it."""
    runs = [await start(store, f"r{n}", position=n + 1, head=f"r{n - 1}" if n else None) for n in range(3)]
    position, told = 3, [(1, "r0"), (2, "r1"), (3, "r2")]
    for turn in range(1, 40):
        for n in range(3):
            if turn % (n + 1) == 0:  # the second run speaks half as often as the first, the third a third as often
                position += 1
                seq = 1 + turn // (n + 1)
                await store.append(an_append(runs[n], deltas(seq, 1, shift=position - seq, text="x" * 70_000)))
                told.append((position, f"r{n}"))
    for after in range(position + 2):
        page = await store.session_events(OWNER, "s1", after=after, limit=3)
        assert [(e.event.position, e.run_id) for e in page] == told[after : after + 3]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 120)), min_size=1, max_size=40),
    after=st.integers(0, 900),
)
async def test_any_interleaving_reads_as_in_memory(sqlite: Any, turns: list[tuple[int, int]], after: int) -> None:
    """For any turns that runs take, and any cursor, SQLite gives the page that memory gives."""
    memory, owner = MemoryStore(), OWNER
    for store in (sqlite, memory):
        await store.delete_session(owner, "s1")
    position, head = 0, None
    seqs: dict[str, int] = {}
    for number, count in turns:
        name = f"r{number}"
        for store in (sqlite, memory):
            if name not in seqs:
                await start(store, name, owner=owner, position=position + 1, head=head)
            else:
                batch = deltas(seqs[name] + 1, count, shift=position - seqs[name])
                await store.append(an_append(a_run(name, owner=owner), batch))
        added = count if name in seqs else 1
        head = head if name in seqs else name
        seqs[name] = seqs.get(name, 0) + added
        position += added
    expected = await memory.session_events(owner, "s1", after=after, limit=150)
    assert await sqlite.session_events(owner, "s1", after=after, limit=150) == expected
    assert await sqlite.last_position(owner, "s1") == position


async def test_the_last_position_counts_rows_and_what_was_deleted(store: Store) -> None:
    """A position is never given out again, whether an event, a client's row or something deleted had it."""
    run = await start(store, position=1)
    assert await store.last_position(OWNER, "s1") == 1
    await store.append(an_append(run, deltas(2, 4)))
    assert await store.last_position(OWNER, "s1") == 5
    await store.add_rows(OWNER, "s1", [a_row(8, message("c1", "client"))])
    assert await store.last_position(OWNER, "s1") == 8
    await store.delete_row(OWNER, "s1", position=8, ordinal=0)
    assert await store.last_position(OWNER, "s1") == 8
    await store.append(ended(run, 6, shift=4))
    assert await store.last_position(OWNER, "s1") == 10
    await store.delete_run(OWNER, "r1")
    assert await store.last_position(OWNER, "s1") == 10


async def test_compaction_takes_the_deltas_only(store: Store) -> None:
    """Deltas and progress of an ended run go; the rest keeps its numbers, and the session's page of events its order."""
    run = await start(store)
    for n in range(300):
        await store.append(an_append(run, deltas(2 + 4 * n, 3)) if n else an_append(run, deltas(2, 3)))
        progress = event(5 + 4 * n, ToolProgress(call_id="c", data=n))
        kept = event(5 + 4 * n, ItemEnded(item=message(f"m{n}", "kept")))
        await store.append(an_append(run, [kept if n % 10 == 0 else progress]))
    await store.append(ended(run, 1202))
    kept_seqs = [1, *range(5, 1202, 40), 1202]
    assert await store.compact(OWNER, "r1") == 1202 - len(kept_seqs)
    assert [e.seq for e in await store.events(OWNER, "r1", after=0, limit=999)] == kept_seqs
    assert [e.seq for e in await store.events(OWNER, "r1", after=44, limit=2)] == [45, 85]
    assert [e.event.seq for e in await store.session_events(OWNER, "s1", after=44, limit=2)] == [45, 85]
    assert (await store.first_seq(OWNER, "r1"), await store.last_seq(OWNER, "r1")) == (1, 1202)
    assert await store.compact(OWNER, "r1") == 0


async def test_a_run_that_goes_on_is_not_compacted(store: Store) -> None:
    """Compaction leaves alone what has no outcome, and what is not there."""
    run = await start(store)
    await store.append(an_append(run, deltas(2, 3)))
    assert await store.compact(OWNER, "r1") == 0
    assert await store.compact(OWNER, "nobody") == 0
    assert len(await store.events(OWNER, "r1", after=0, limit=9)) == 4


async def test_a_reader_sees_what_was_awaited(store: Store) -> None:
    """After an awaited append a read has its events, whoever reads."""
    run = await start(store)
    for seq in range(2, 40):
        await store.append(an_append(run, deltas(seq, 1)))
        pages = await asyncio.gather(*(store.events(OWNER, "r1", after=seq - 1, limit=5) for _ in range(3)))
        assert [[e.seq for e in page] for page in pages] == [[seq]] * 3


async def test_an_append_that_nobody_waits_for_is_still_done(store: Store) -> None:
    """A cancelled future does not undo or stop the write, nor those behind it."""
    run = await start(store)
    store.append(an_append(run, deltas(2, 1))).cancel()
    await store.append(an_append(run, deltas(3, 1)))
    assert await store.last_seq(OWNER, "r1") == 3
