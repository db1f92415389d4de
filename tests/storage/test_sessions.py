"""Sessions and uploaded files' records, on every backend."""

from __future__ import annotations

import msgspec
import pytest

from runstone.errors import AppendConflict, Conflict, NotFound, NotStorable
from runstone.storage.base import FileRecord, Idempotency, Store
from tests.storage.builders import OWNER, a_row, a_session, an_append, answered, deltas, message, start, texts


async def test_a_session_comes_back_as_it_was_made(store: Store) -> None:
    """With its title, metadata and rows, and without a head."""
    session = a_session(title="T", metadata={"a": [1, None, "x"]}, parent="p", hidden=True)
    await store.create_session(
        msgspec.structs.replace(session, head="of another session"), [a_row(1, message("c", "x"))]
    )
    assert await store.session(OWNER, "s1") == session
    assert texts(await store.rows(OWNER, "s1", limit=9)) == ["x"]
    assert await store.session("bob", "s1") is None


async def test_a_session_id_is_used_once_per_owner(store: Store) -> None:
    """A second one is a conflict and changes nothing; another owner may use it."""
    await store.create_session(a_session(title="first"), [])
    with pytest.raises(Conflict):
        await store.create_session(a_session(title="second"), [a_row(1, message("c", "x"))])
    await store.create_session(a_session(owner="bob"), [])
    session = await store.session(OWNER, "s1")
    assert session is not None
    assert session.title == "first"
    assert await store.rows(OWNER, "s1", limit=9) == []


async def test_a_saved_session_keeps_its_head(store: Store) -> None:
    """Everything else is replaced."""
    await start(store)
    changed = a_session(at=5.0, title="new", metadata={"b": 2}, hidden=True, head="elsewhere")
    await store.save_session(changed)
    assert await store.session(OWNER, "s1") == msgspec.structs.replace(changed, head="r1")
    with pytest.raises(NotFound):
        await store.save_session(a_session("nowhere"))


async def test_a_deleted_session_takes_everything_with_it(store: Store) -> None:
    """Runs, events, rows and keys are gone; the ids are free again."""
    key = Idempotency(key="k", fingerprint="f", expires_at=99.0)
    run = await start(store, idempotency=key)
    await store.append(an_append(run, deltas(2, 50)))
    await answered(store, "r2", first=52, head="r1", text="a")
    assert await store.delete_session(OWNER, "s1")
    assert not await store.delete_session(OWNER, "s1")
    assert await store.session(OWNER, "s1") is None
    assert await store.runs(OWNER) == []
    assert await store.unfinished() == []
    assert await store.events(OWNER, "r1", after=0, limit=9) == []
    assert await store.rows(OWNER, "s1", limit=9) == []
    with pytest.raises(AppendConflict):
        await store.append(an_append(run, deltas(52, 1)))
    await start(store, fingerprint="g", idempotency=msgspec.structs.replace(key, fingerprint="g"))
    assert await store.last_seq(OWNER, "r1") == 1
    assert await store.last_position(OWNER, "s1") == 1


async def test_sessions_are_listed_by_their_last_change(store: Store) -> None:
    """Newest first, ties by id; hidden ones and other owners' are not there."""
    for n, at in enumerate([3.0, 1.0, 2.0, 2.0]):
        await store.create_session(a_session(f"s{n}", at=at), [])
    await store.create_session(a_session("secret", at=9.0, hidden=True), [])
    await store.create_session(a_session("his", at=9.0, owner="bob"), [])
    assert [s.id for s in await store.sessions(OWNER, limit=9)] == ["s0", "s2", "s3", "s1"]
    assert [s.id for s in await store.sessions(OWNER, limit=2, offset=1)] == ["s2", "s3"]
    await start(store, "r1", "s1", at=8.0)
    assert [s.id for s in await store.sessions(OWNER, limit=1)] == ["s1"]
    assert (await store.sessions(OWNER, limit=1))[0].head == "r1"


async def test_a_clock_that_goes_back_is_believed(store: Store) -> None:
    """`updated_at` is what the last change said, also when that is earlier."""
    run = await start(store, at=100.0)
    running = msgspec.structs.replace(run, status="running")
    await store.append(an_append(run, deltas(2, 1), run=running, at=5.0))
    session = await store.session(OWNER, "s1")
    assert session is not None
    assert session.updated_at == 5.0
    assert [e.seq for e in await store.events(OWNER, "r1", after=0, limit=9)] == [1, 2]


async def test_search_looks_into_titles(store: Store) -> None:
    """Any part of the title, in any case and script; signs of query languages mean themselves."""
    titles = {"a": "Größe 100%", "b": "ÉCOLE_x", "c": "Straße", "d": None}
    for name, title in titles.items():
        await store.create_session(a_session(name, title=title, agent="one" if name < "c" else "two"), [])

    async def found(search: str | None, agent: str | None = None) -> list[str]:
        return [s.id for s in await store.sessions(OWNER, limit=9, search=search, agent=agent)]

    assert await found("grösse 100%") == ["a"]
    assert await found("école_") == ["b"]
    assert await found("STRASSE") == ["c"]
    assert await found("%") == ["a"]
    assert await found("nothing") == []
    assert await found(None, "two") == ["c", "d"]
    assert await found("s", "two") == ["c"]
    assert await found("") == ["a", "b", "c", "d"]


async def test_a_title_is_taken_by_exactly_that_title(store: Store) -> None:
    """In its case; hidden sessions and other owners do not count."""
    await store.create_session(a_session("a", title="Plan"), [])
    await store.create_session(a_session("b", title="Secret", hidden=True), [])
    await store.create_session(a_session("c", title="His", owner="bob"), [])
    taken = [await store.is_title_taken(OWNER, title) for title in ("Plan", "plan", "Pla", "Secret", "His", "")]
    assert taken == [True, False, False, False, False, False]


async def test_a_session_that_cannot_be_written_down_is_refused(store: Store) -> None:
    """What JSON cannot carry, and ids with lone surrogates, fail alone."""
    with pytest.raises(NotStorable):
        await store.create_session(a_session(metadata={"x": object()}), [])
    with pytest.raises(NotStorable):
        await store.create_session(a_session("\ud800"), [])
    assert await store.sessions(OWNER, limit=9) == []


def a_file(file_id: str, at: float, **fields: str) -> FileRecord:
    """An uploaded file."""
    return FileRecord(
        id=file_id,
        owner=fields.get("owner", OWNER),
        name=f"{file_id}.txt",
        purpose=fields.get("purpose", "assistants"),
        size_bytes=3,
        created_at=at,
        blob="sha256-0",
    )


async def test_file_records_are_kept_and_forgotten(store: Store) -> None:
    """By owner and id."""
    await store.create_file(a_file("f1", 1.0))
    with pytest.raises(Conflict):
        await store.create_file(a_file("f1", 2.0))
    assert await store.file(OWNER, "f1") == a_file("f1", 1.0)
    assert await store.file("bob", "f1") is None
    assert not await store.delete_file("bob", "f1")
    assert await store.delete_file(OWNER, "f1")
    assert not await store.delete_file(OWNER, "f1")
    assert await store.file(OWNER, "f1") is None


async def test_files_are_listed_by_time_in_pages(store: Store) -> None:
    """Either way round, after one of them, of one purpose."""
    for n, at in enumerate([1.0, 3.0, 2.0, 2.0]):
        await store.create_file(a_file(f"f{n}", at, purpose="vision" if n == 2 else "assistants"))
    await store.create_file(a_file("his", 9.0, owner="bob"))

    async def found(**page: object) -> list[str]:
        return [file.id for file in await store.files(OWNER, limit=2, **page)]  # type: ignore[arg-type]

    assert await found() == ["f1", "f3"]
    assert await found(after="f3") == ["f2", "f0"]
    assert await found(newest_first=False) == ["f0", "f2"]
    assert await found(newest_first=False, after="f2") == ["f3", "f1"]
    assert await found(purpose="vision") == ["f2"]
    with pytest.raises(NotFound):
        await found(after="nothing")
