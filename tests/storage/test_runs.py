"""Creating, finding and deleting runs, on every backend."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from runstone.errors import AppendConflict, Conflict, IdempotencyConflict, NotFound
from runstone.storage.base import Idempotency, Store
from tests.storage.builders import (
    OWNER,
    a_new_run,
    a_row,
    a_run,
    a_session,
    an_append,
    answered,
    deltas,
    ended,
    message,
    said,
    start,
    texts,
)


def a_key(key: str = "k", fingerprint: str = "f", expires_at: float = 100.0) -> Idempotency:
    """A caller's idempotency key."""
    return Idempotency(key=key, fingerprint=fingerprint, expires_at=expires_at)


async def test_a_new_run_comes_with_session_event_and_rows(store: Store) -> None:
    """One call makes the session, the run, its first event, its input's row, and moves the head."""
    run = a_run()
    created = await store.create_run(a_new_run(run, at=7.0))
    assert (created.run, created.is_new) == (run, True)
    assert await store.run(OWNER, "r1") == run
    session = await store.session(OWNER, "s1")
    assert session is not None
    assert (session.head, session.updated_at) == ("r1", 7.0)
    assert [e.seq for e in await store.events(OWNER, "r1", after=0, limit=9)] == [1]
    (row,) = await store.rows(OWNER, "s1", limit=9)
    assert (row.run_id, row.seq, row.is_input, row.position) == ("r1", 1, True, 1)


async def test_an_existing_session_keeps_what_it_is(store: Store) -> None:
    """The session a start brings along is used only when there is none."""
    await store.create_session(a_session(title="mine", metadata={"a": 1}), [])
    await start(store, session=a_session(title="other", hidden=True))
    session = await store.session(OWNER, "s1")
    assert session is not None
    assert (session.title, session.metadata, session.hidden, session.head) == ("mine", {"a": 1}, False, "r1")


async def test_the_same_id_and_body_attach(store: Store) -> None:
    """A second start with the run's id and fingerprint gives the run as it is now, and makes nothing."""
    run = await start(store)
    running = msgspec.structs.replace(run, status="running")
    await store.save_run(running)
    created = await store.create_run(a_new_run(run, head="r1", position=2))
    assert (created.run, created.is_new) == (running, False)
    assert await store.last_seq(OWNER, "r1") == 1
    assert len(await store.rows(OWNER, "s1", limit=9)) == 1


async def test_the_same_id_with_another_body_is_refused(store: Store) -> None:
    """A run id is used once."""
    run = await start(store)
    with pytest.raises(IdempotencyConflict):
        await store.create_run(a_new_run(run, head="r1", fingerprint="g"))


async def test_a_key_attaches_to_its_run(store: Store) -> None:
    """The same key and fingerprint give the first run, although the second asked for another id."""
    run = await start(store, idempotency=a_key())
    created = await store.create_run(a_new_run(a_run("r2"), idempotency=a_key(), head="elsewhere"))
    assert (created.run, created.is_new) == (run, False)
    assert await store.run(OWNER, "r2") is None


async def test_a_key_with_another_body_is_refused(store: Store) -> None:
    """A key stands for one request; the refusal names its run and is not remembered."""
    await start(store, idempotency=a_key())
    with pytest.raises(IdempotencyConflict) as refused:
        await store.create_run(a_new_run(a_run("r2"), idempotency=a_key(fingerprint="g"), fingerprint="g", head="r1"))
    assert refused.value.run_id == "r1"
    await start(store, "r2", head="r1", position=2, idempotency=a_key("other"))


async def test_a_key_ends(store: Store) -> None:
    """After `expires_at`, by the clock of the start, a key is free."""
    await start(store, idempotency=a_key(expires_at=50.0))
    await start(
        store, "r2", head="r1", position=2, created_at=50.0, idempotency=a_key(fingerprint="g"), fingerprint="g"
    )
    created = await store.create_run(
        a_new_run(a_run("r3"), idempotency=a_key(fingerprint="g"), fingerprint="g", head="r2")
    )
    assert created.run.id == "r2"


async def test_a_key_and_an_id_are_their_owners(store: Store) -> None:
    """Another owner may use the same session, run id and key."""
    await start(store, idempotency=a_key())
    await start(store, owner="bob", idempotency=a_key(fingerprint="g"), fingerprint="g")
    assert (await store.run("bob", "r1")) != (await store.run(OWNER, "r1"))


async def test_a_deleted_runs_key_and_id_are_free(store: Store) -> None:
    """What is deleted does not attach."""
    await start(store, idempotency=a_key())
    await store.delete_run(OWNER, "r1")
    await start(store, position=2, idempotency=a_key(fingerprint="g"), fingerprint="g")


@pytest.mark.parametrize("seen", [None, "other"])
async def test_a_moved_head_is_a_conflict(store: Store, seen: str | None) -> None:
    """Who saw another head was not first; nothing is made."""
    await start(store)
    with pytest.raises(Conflict) as refused:
        await store.create_run(a_new_run(a_run("r2"), head=seen, position=2))
    assert refused.value.code == "head_moved"
    assert await store.run(OWNER, "r2") is None
    assert await store.last_position(OWNER, "s1") == 1


async def test_a_head_is_expected_where_there_is_no_session(store: Store) -> None:
    """A session that is gone has no head."""
    with pytest.raises(Conflict):
        await store.create_run(a_new_run(a_run(), head="r0"))
    assert await store.session(OWNER, "s1") is None


async def test_of_many_starts_at_once_one_is_first(store: Store) -> None:
    """Starts that saw the same head: one makes its run, the others are told."""
    starts = [store.create_run(a_new_run(a_run(f"r{n}"))) for n in range(20)]
    results = await asyncio.gather(*starts, return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 19
    assert len(await store.runs(OWNER)) == 1


async def test_a_run_begins_with_one(store: Store) -> None:
    """The first event has seq 1."""
    new = a_new_run(a_run())
    wrong = msgspec.structs.replace(new, event=msgspec.structs.replace(new.event, seq=2))
    with pytest.raises(AppendConflict):
        await store.create_run(wrong)
    assert await store.session(OWNER, "s1") is None


async def test_a_record_is_replaced(store: Store) -> None:
    """`save_run` replaces the record and nothing else; an append that carries one does both, in order."""
    run = await start(store)
    await store.save_run(msgspec.structs.replace(run, metadata={"a": 1}))
    assert (await store.runs_by_id(OWNER, ["r1"]))[0].metadata == {"a": 1}
    assert await store.last_seq(OWNER, "r1") == 1
    running = msgspec.structs.replace(run, status="running")
    await store.append(an_append(run, deltas(2, 1), run=running, at=9.0))
    assert await store.run(OWNER, "r1") == running
    session = await store.session(OWNER, "s1")
    assert session is not None
    assert session.updated_at == 9.0
    with pytest.raises(NotFound):
        await store.save_run(a_run("nobody"))


async def test_writes_take_effect_in_the_order_of_the_calls(store: Store) -> None:
    """A record saved after an append replaces the one that the append carried."""
    run = await start(store)
    first = store.append(an_append(run, deltas(2, 1), run=msgspec.structs.replace(run, model="a")))
    await store.save_run(msgspec.structs.replace(run, model="b"))
    assert first.done()
    saved = await store.run(OWNER, "r1")
    assert saved is not None
    assert saved.model == "b"


async def test_an_ended_record_may_still_change(store: Store) -> None:
    """A record is replaced after the outcome too; the log and its positions stay."""
    run = await start(store)
    await store.append(an_append(run, deltas(2, 3)))
    last = ended(run, 5)
    await store.append(last)
    assert last.run is not None
    await store.save_run(msgspec.structs.replace(last.run, compacted=True))
    saved = await store.run(OWNER, "r1")
    assert saved is not None
    assert saved.compacted
    assert [e.event.seq for e in await store.session_events(OWNER, "s1", after=3, limit=9)] == [4, 5]
    assert await store.last_position(OWNER, "s1") == 5


async def test_runs_are_listed_newest_first(store: Store) -> None:
    """Order of creation, whatever the clock said; of one session or of all, by status, in pages."""
    for n in range(6):
        await start(
            store, f"r{n}", f"s{n % 2}", head=f"r{n - 2}" if n > 1 else None, position=n + 1, created_at=9.0 - n
        )
    await store.append(ended(a_run("r2", "s0"), 2, shift=8))
    assert [run.id for run in await store.runs(OWNER)] == ["r5", "r4", "r3", "r2", "r1", "r0"]
    assert [run.id for run in await store.runs(OWNER, session_id="s0")] == ["r4", "r2", "r0"]
    assert [run.id for run in await store.runs(OWNER, limit=2, before="r4")] == ["r3", "r2"]
    assert [run.id for run in await store.runs(OWNER, statuses=["completed"])] == ["r2"]
    assert [run.id for run in await store.runs(OWNER, statuses=["queued", "running"], limit=3)] == ["r5", "r4", "r3"]
    assert [run.id for run in await store.runs(OWNER, statuses=["queued", "completed"], before="r3")] == [
        "r2",
        "r1",
        "r0",
    ]
    assert [run.id for run in await store.runs(OWNER, session_id="s0", statuses=["queued"])] == ["r4", "r0"]
    assert await store.runs(OWNER, statuses=[]) == []
    assert await store.runs("bob") == []


async def test_a_page_before_an_unknown_run_is_an_error(store: Store) -> None:
    """Never an empty page or the first one."""
    await start(store)
    with pytest.raises(NotFound):
        await store.runs(OWNER, before="nobody")


async def test_runs_by_id_keep_the_asked_order(store: Store) -> None:
    """Those that exist, as they were asked for."""
    await start(store, "r1", "s1")
    await start(store, "r2", "s2")
    assert [run.id for run in await store.runs_by_id(OWNER, ["r2", "nobody", "r1"])] == ["r2", "r1"]
    assert await store.runs_by_id(OWNER, []) == []


async def test_unfinished_runs_of_all_owners(store: Store) -> None:
    """Everybody's runs without an outcome, oldest first."""
    for owner in (OWNER, "bob"):
        for n in range(2):
            await start(store, f"r{n}", f"s{n}", owner=owner)
    await store.append(ended(a_run("r0", "s0"), 2))
    waiting = a_run("r1", "s1", owner="bob", status="waiting")
    await store.save_run(waiting)
    found = [(run.owner, run.id, run.status) for run in await store.unfinished()]
    assert found == [(OWNER, "r1", "queued"), ("bob", "r0", "queued"), ("bob", "r1", "waiting")]


async def test_a_chain_is_what_a_run_continues(store: Store) -> None:
    """Oldest first, itself last; a run without a predecessor is a chain of one."""
    await answered(store, "r1", first=1, head=None, text="a")
    await answered(store, "r2", first=4, head="r1", text="b")
    await answered(store, "r3", first=7, head="r2", text="c", continues="r1")
    assert [run.id for run in await store.chain(OWNER, "r3")] == ["r1", "r3"]
    assert [run.id for run in await store.chain(OWNER, "r2")] == ["r1", "r2"]
    assert [run.id for run in await store.chain(OWNER, "r1")] == ["r1"]
    assert await store.chain(OWNER, "nobody") == []
    assert await store.chain("bob", "r3") == []


async def test_a_deleted_run_leaves_nothing(store: Store) -> None:
    """Record, events and rows are gone, at once; a second time there is nothing to delete."""
    run = await start(store)
    await store.append(an_append(run, deltas(2, 100)))
    await store.append(said(run, 102, "bye"))
    assert await store.delete_run(OWNER, "r1")
    assert await store.run(OWNER, "r1") is None
    assert await store.events(OWNER, "r1", after=0, limit=9) == []
    assert await store.run_rows(OWNER, "r1") == []
    assert await store.rows(OWNER, "s1", limit=9) == []
    assert await store.session_events(OWNER, "s1", after=0, limit=9) == []
    assert await store.unfinished() == []
    assert not await store.delete_run(OWNER, "r1")
    with pytest.raises(AppendConflict):
        await store.append(an_append(run, deltas(103, 1)))


async def test_a_new_run_of_a_deleted_id_is_new(store: Store) -> None:
    """Its log and rows are its own."""
    run = await start(store)
    await store.append(an_append(run, deltas(2, 10)))
    await store.delete_run(OWNER, "r1")
    again = await start(store, position=12, text="again")
    await store.append(an_append(again, deltas(2, 1, shift=11)))
    assert [e.seq for e in await store.events(OWNER, "r1", after=0, limit=99)] == [1, 2]
    assert [e.event.position for e in await store.session_events(OWNER, "s1", after=0, limit=99)] == [12, 13]
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["again"]


async def test_the_record_alone_can_be_kept(store: Store) -> None:
    """`keep_record` takes events and rows; run, head and chain stay."""
    await answered(store, "r1", first=1, head=None, text="a")
    assert await store.delete_run(OWNER, "r1", keep_record=True)
    run, session = await store.run(OWNER, "r1"), await store.session(OWNER, "s1")
    assert run is not None
    assert run.status == "completed"
    assert session is not None
    assert session.head == "r1"
    assert await store.events(OWNER, "r1", after=0, limit=9) == []
    assert (await store.first_seq(OWNER, "r1"), await store.last_seq(OWNER, "r1")) == (0, 0)
    assert await store.session_events(OWNER, "s1", after=0, limit=9) == []
    assert await store.run_rows(OWNER, "r1") == []
    assert await store.last_position(OWNER, "s1") == 3
    await store.save_run(msgspec.structs.replace(run, metadata={}))
    assert await store.session_events(OWNER, "s1", after=0, limit=9) == []


async def test_a_deleted_head_moves_back(store: Store) -> None:
    """The head becomes the run that the deleted one continued, and the page is that chain's."""
    await answered(store, "r1", first=1, head=None, text="a")
    await answered(store, "r2", first=4, head="r1", text="b")
    await store.delete_run(OWNER, "r2")
    session = await store.session(OWNER, "s1")
    assert session is not None
    assert session.head == "r1"
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["ask r1", "a"]
    await store.delete_run(OWNER, "r1")
    session = await store.session(OWNER, "s1")
    assert session is not None
    assert session.head is None


async def test_a_chain_survives_the_loss_of_a_link(store: Store) -> None:
    """A run that continued a deleted one continues what that one continued; a client's rows stay."""
    await answered(store, "r1", first=1, head=None, text="a")
    await answered(store, "r2", first=4, head="r1", text="b")
    await store.add_rows(OWNER, "s1", [a_row(7, message("c1", "client"))])
    await answered(store, "r3", first=8, head="r2", text="c")
    await store.delete_run(OWNER, "r2")
    chain = await store.chain(OWNER, "r3")
    assert [(run.id, run.continues) for run in chain] == [("r1", None), ("r3", "r1")]
    expected = ["ask r1", "a", "client", "ask r3", "c"]
    assert texts(await store.rows(OWNER, "s1", limit=9)) == expected
    assert texts(await store.chain_rows(OWNER, "s1", "r3")) == expected


async def test_an_equal_start_is_found_before_it_is_made(store: Store) -> None:
    """By id or by key, with the same fingerprint; another one is refused, an expired key and a stranger find nothing."""
    run = await start(store, idempotency=a_key(expires_at=50.0))

    async def found(fingerprint: str = "f", owner: str = OWNER, now: float = 1.0, **by: str | None) -> object:
        return await store.existing(owner, fingerprint, now=now, **{"run_id": None, "key": None, **by})

    assert await found(run_id="r1") == run
    assert await found(key="k") == run
    assert await found(run_id="other", key="k") == run
    for nothing in (found(), found(run_id="other"), found(key="k", now=50.0), found(key="k", owner="bob")):
        assert await nothing is None
    for refused in (found("g", run_id="r1"), found("g", key="k")):
        with pytest.raises(IdempotencyConflict):
            await refused


async def test_a_turn_has_its_alternatives(store: Store) -> None:
    """The runs of one turn, newest first."""
    await answered(store, "r1", first=1, head=None, text="a", turn="t1")
    await answered(store, "r2", first=4, head="r1", text="b", turn="t2")
    await answered(store, "r3", first=7, head="r2", text="c", turn="t1", continues=None)
    assert [run.id for run in await store.runs(OWNER, session_id="s1", turn="t1")] == ["r3", "r1"]
    assert [run.id for run in await store.runs(OWNER, session_id="s1", turn="t1", statuses=["failed"])] == []


async def test_what_retention_has_to_see_to(store: Store) -> None:
    """Ended runs of all owners that are old and not compacted, oldest first, by whether they are to be stored."""
    for n, owner in enumerate([OWNER, "bob", OWNER, "bob", OWNER]):
        run = a_run(f"r{n}", f"s{n}", owner=owner, store=n != 2)
        await store.create_run(a_new_run(run))
        if n != 4:
            await store.append(ended(run, 2, at=10.0 - n))
    assert [run.id for run in await store.ended(stored=True, before=10.0, limit=9)] == ["r3", "r1"]
    assert [run.id for run in await store.ended(stored=True, before=99.0, limit=2)] == ["r3", "r1"]
    (unstored,) = await store.ended(stored=False, before=99.0, limit=9)
    assert unstored.id == "r2"
    await store.save_run(msgspec.structs.replace(unstored, compacted=True))
    assert await store.ended(stored=False, before=99.0, limit=9) == []
