"""Rows of a session's history: page, chain, branch, clients' rows; on every backend."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runstone.core.items import ApprovalItem, ToolCall
from runstone.core.transcript import RowChange
from runstone.errors import AppendConflict, NotFound
from runstone.storage.base import Store
from runstone.storage.memory import MemoryStore
from runstone.storage.sqlite import SqliteStore
from tests.storage.builders import (
    OWNER,
    a_row,
    a_session,
    an_append,
    answered,
    deltas,
    message,
    said,
    start,
    texts,
)


async def test_pages_go_back_and_forth(store: Store) -> None:
    """Cursors are exclusive; without one or with `before` the newest come, with `after` the oldest."""
    run = await start(store)
    for seq in range(2, 11):
        await store.append(said(run, seq, str(seq)))

    async def page(**cursor: object) -> list[str]:
        return texts(await store.rows(OWNER, "s1", limit=3, **cursor))  # type: ignore[arg-type]

    assert await page() == ["8", "9", "10"]
    assert await page(before=(8, 0)) == ["5", "6", "7"]
    assert await page(before=(8, 1)) == ["6", "7", "8"]
    assert await page(before=(2, 0)) == ["hello"]
    assert await page(after=(2, 0)) == ["3", "4", "5"]
    assert await page(after=(9, 0)) == ["10"]
    assert await page(after=(5, 0), before=(7, 0)) == ["6"]
    assert await page(newest_first=True) == ["10", "9", "8"]
    assert await page(before=(8, 0), newest_first=True) == ["7", "6", "5"]
    assert await page(after=(2, 0), newest_first=True) == ["5", "4", "3"]
    assert await store.rows(OWNER, "s1", limit=0) == []


async def test_rows_of_one_position_are_ordered(store: Store) -> None:
    """Items of one input share a position and keep their order, also across pages."""
    await store.create_session(a_session(), [a_row(1, message(f"c{n}", str(n)), ordinal=n) for n in range(12)])
    assert texts(await store.rows(OWNER, "s1", limit=99)) == [str(n) for n in range(12)]
    assert texts(await store.rows(OWNER, "s1", limit=2, before=(1, 10))) == ["8", "9"]
    assert texts(await store.rows(OWNER, "s1", limit=2, after=(1, 9))) == ["10", "11"]


async def test_a_run_that_continues_the_head_is_added(store: Store) -> None:
    """The page grows at its end."""
    await answered(store, "r1", first=1, head=None, text="a")
    await answered(store, "r2", first=4, head="r1", text="b")
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["ask r1", "a", "ask r2", "b"]


async def test_a_branch_takes_the_page(store: Store) -> None:
    """A run that continues an earlier one hides what came between; the old branch stays readable by its run."""
    await answered(store, "r1", first=1, head=None, text="a")
    await answered(store, "r2", first=4, head="r1", text="b")
    await answered(store, "r3", first=7, head="r2", text="c", continues="r1")
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["ask r1", "a", "ask r3", "c"]
    assert texts(await store.chain_rows(OWNER, "s1", "r2")) == ["ask r1", "a", "ask r2", "b"]
    assert texts(await store.run_rows(OWNER, "r2")) == ["ask r2", "b"]
    await answered(store, "r4", first=10, head="r3", text="d", continues="r2")
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["ask r1", "a", "ask r2", "b", "ask r4", "d"]


async def test_a_run_from_the_start_hides_all(store: Store) -> None:
    """A run that continues nothing begins the session's chain anew."""
    await answered(store, "r1", first=1, head=None, text="a")
    await answered(store, "r2", first=4, head="r1", text="b", continues=None)
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["ask r2", "b"]


async def test_what_a_hidden_run_still_says_stays_hidden(store: Store) -> None:
    """A run that went on while another branch took the page adds its rows to its own chain."""
    await answered(store, "r1", first=1, head=None, text="a")
    slow = await start(store, "r2", position=4, head="r1", continues="r1", text="slow")
    await answered(store, "r3", first=5, head="r2", text="c", continues="r1")
    await store.append(said(slow, 2, "late", shift=6))
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["ask r1", "a", "ask r3", "c"]
    assert texts(await store.chain_rows(OWNER, "s1", "r2")) == ["ask r1", "a", "slow", "late"]


async def test_a_clients_row_belongs_to_the_head_of_its_time(store: Store) -> None:
    """Rows put before any run are on every chain, later ones on those that hold the head they were put behind."""
    await store.create_session(a_session(), [a_row(1, message("c1", "first"))])
    await answered(store, "r1", first=2, head=None, text="a")
    await answered(store, "r2", first=5, head="r1", text="b")
    await store.add_rows(OWNER, "s1", [a_row(8, message("c2", "behind r2"))])
    assert texts(await store.rows(OWNER, "s1", limit=99))[-1] == "behind r2"
    await answered(store, "r3", first=9, head="r2", text="c", continues="r1")
    assert texts(await store.rows(OWNER, "s1", limit=99)) == ["first", "ask r1", "a", "ask r3", "c"]
    assert texts(await store.chain_rows(OWNER, "s1", "r2"))[-1] == "behind r2"
    assert texts(await store.chain_rows(OWNER, "s1", None)) == ["first"]
    with pytest.raises(NotFound):
        await store.add_rows(OWNER, "nowhere", [a_row(1, message("c1", "x"))])


async def test_a_forks_rows_are_not_its_runs(store: Store) -> None:
    """Copied rows name the run that made them and still belong to the session that got them."""
    run = await answered(store, "r1", first=1, head=None, text="a")
    rows = [msgspec.structs.replace(row, origin="fork") for row in await store.run_rows(OWNER, run.id)]
    await store.create_session(a_session("copy", parent="s1"), rows)
    assert texts(await store.rows(OWNER, "copy", limit=9)) == ["ask r1", "a"]
    await store.delete_run(OWNER, "r1")
    assert await store.rows(OWNER, "s1", limit=9) == []
    assert texts(await store.rows(OWNER, "copy", limit=9)) == ["ask r1", "a"]
    found = await store.row(OWNER, "copy", run_id="r1", item_id="in1")
    assert found == rows[0]


async def test_a_row_is_replaced_by_kind_and_item(store: Store) -> None:
    """A decision replaces its approval's row where it stands; another kind with the same item id is left alone."""
    run = await start(store)
    call = ToolCall(item_id="x", call_id="c", name="t", arguments="{}")
    asked = ApprovalItem(item_id="x", approval_id="x", approval_kind="confirm")
    added = RowChange(added=[a_row(2, call, run_id="r1", seq=2), a_row(3, asked, run_id="r1", seq=3)])
    await store.append(an_append(run, deltas(2, 2), changes=[added]))
    decided = msgspec.structs.replace(asked, decision="approved")
    await store.append(an_append(run, deltas(4, 1), changes=[RowChange(replaced=decided)]))
    assert [row.item for row in await store.run_rows(OWNER, "r1")][1:] == [call, decided]


async def test_a_row_can_come_and_be_replaced_in_one_append(store: Store) -> None:
    """The changes of one append happen in order."""
    run = await start(store)
    asked = ApprovalItem(item_id="x", approval_id="x", approval_kind="confirm")
    decided = msgspec.structs.replace(asked, decision="denied")
    changes = [RowChange(added=[a_row(2, asked, run_id="r1", seq=2)]), RowChange(replaced=decided)]
    await store.append(an_append(run, deltas(2, 2), changes=changes))
    assert [row.item for row in await store.run_rows(OWNER, "r1")][1:] == [decided]


async def test_a_new_attempt_discards_what_came_after(store: Store) -> None:
    """Rows of this run above the seq go; other runs' and clients' rows stay."""
    await answered(store, "r0", first=1, head=None, text="before")
    run = await start(store, "r1", position=4, head="r0", continues="r0")
    await store.append(said(run, 2, "kept", shift=3))
    await store.append(said(run, 3, "lost", shift=3))
    await store.add_rows(OWNER, "s1", [a_row(7, message("c1", "client"))])
    again = RowChange(discard_after_seq=2)
    await store.append(an_append(run, deltas(4, 1, shift=4), changes=[again]))
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["ask r0", "before", "hello", "kept", "client"]


async def test_a_row_is_found_by_its_maker(store: Store) -> None:
    """Item ids repeat from run to run; the run, or no run, says which is meant."""
    await store.create_session(a_session(), [a_row(1, message("in1", "client's"))])
    await answered(store, "r1", first=2, head=None, text="a")
    await answered(store, "r2", first=5, head="r1", text="b")
    found = [await store.row(OWNER, "s1", run_id=run_id, item_id="in1") for run_id in (None, "r1", "r2", "r3")]
    assert [row and texts([row]) for row in found] == [["client's"], ["ask r1"], ["ask r2"], None]
    assert await store.row("bob", "s1", run_id="r1", item_id="in1") is None


async def test_a_deleted_row_is_shown_to_nobody(store: Store) -> None:
    """Neither on the page nor in the chain nor among its run's rows."""
    await answered(store, "r1", first=1, head=None, text="a")
    assert await store.delete_row(OWNER, "s1", position=2, ordinal=0)
    assert not await store.delete_row(OWNER, "s1", position=2, ordinal=0)
    assert not await store.delete_row("bob", "s1", position=1, ordinal=0)
    for rows in (
        await store.rows(OWNER, "s1", limit=9),
        await store.chain_rows(OWNER, "s1", "r1"),
        await store.run_rows(OWNER, "r1"),
    ):
        assert texts(rows) == ["ask r1"]


async def test_a_taken_place_refuses_all_rows(store: Store) -> None:
    """Rows put by a client come all or not at all."""
    await store.create_session(a_session(), [a_row(2, message("c1", "there"))])
    with pytest.raises(AppendConflict):
        await store.add_rows(OWNER, "s1", [a_row(1, message("c2", "x")), a_row(2, message("c3", "y"))])
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["there"]


async def test_nothing_is_there_for_others(store: Store) -> None:
    """Another owner, and an unknown session, have no rows."""
    await answered(store, "r1", first=1, head=None, text="a")
    for owner, session_id in (("bob", "s1"), (OWNER, "nowhere")):
        assert await store.rows(owner, session_id, limit=9) == []
        assert await store.chain_rows(owner, session_id, "r1") == []
    assert await store.run_rows("bob", "r1") == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(links=st.lists(st.integers(-2, 11), min_size=1, max_size=12), deleted=st.lists(st.integers(0, 11), max_size=4))
async def test_any_tree_of_branches_reads_as_in_memory(
    sqlite: SqliteStore, links: list[int], deleted: list[int]
) -> None:
    """For any branches, clients' rows between them and deletions, SQLite shows what memory shows."""
    pages = []
    for store in (sqlite, MemoryStore()):
        await store.delete_session(OWNER, "s1")
        await _tree(store, links, deleted)
        names = [f"r{n}" for n in range(len(links))]
        pages.append(
            [
                texts(await store.rows(OWNER, "s1", limit=99)),
                *[texts(await store.chain_rows(OWNER, "s1", name)) for name in [*names, None]],
                *[[run.id for run in await store.chain(OWNER, name)] for name in names],
                [(run.id, run.continues) for run in await store.runs(OWNER, session_id="s1")],
                await store.session(OWNER, "s1"),
            ]
        )
    assert pages[0] == pages[1]


async def _tree(store: Store, links: list[int], deleted: list[int]) -> None:
    """One run per link: it continues the run of that number, the head (-1), or nothing (-2, and later runs)."""
    head, position = None, 1
    for n, link in enumerate(links):
        continues = head if link == -1 else f"r{link}" if 0 <= link < n else None
        await answered(store, f"r{n}", first=position, head=head, text=f"{n}", continues=continues)
        await store.add_rows(OWNER, "s1", [a_row(position + 3, message("c", f"client {n}"))])
        head, position = f"r{n}", position + 4
    for n in deleted:
        await store.delete_run(OWNER, f"r{n}")
