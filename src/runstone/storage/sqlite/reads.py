"""What is read of sessions, runs, rows and files, on one of the readers' connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final

import msgspec

from runstone.core.runs import OUTCOMES, Run, Session
from runstone.core.serde import run_from_json, session_from_json
from runstone.core.transcript import HistoryRow
from runstone.errors import IdempotencyConflict, NotFound
from runstone.storage.base import FileRecord
from runstone.storage.sqlite.ledger import row_from_json

_file_from_json: Final = msgspec.json.Decoder(FileRecord).decode

_SESSION: Final = "SELECT record, updated_at, (SELECT id FROM runs r WHERE r.key = s.head) FROM sessions s"
_CHAIN: Final = """
    WITH RECURSIVE chain (key, depth) AS (
        SELECT key, 0 FROM runs WHERE owner = :owner AND id = :run
        UNION ALL
        SELECT r.continues, depth + 1 FROM runs r JOIN chain USING (key) WHERE r.continues IS NOT NULL
    )
"""
_SHOWN: Final = """
    SELECT record FROM history
    WHERE session = (SELECT key FROM sessions WHERE owner = :owner AND id = :session) AND shown = 1
"""


def session(db: sqlite3.Connection, owner: str, session_id: str) -> Session | None:
    """One session."""
    found = db.execute(f"{_SESSION} WHERE owner = ? AND id = ?", (owner, session_id)).fetchone()
    return None if found is None else _session(*found)


def sessions(
    db: sqlite3.Connection, owner: str, limit: int, offset: int, search: str | None, agent: str | None
) -> list[Session]:
    """A page of the list."""
    where, values = "owner = ? AND hidden = 0", [owner]
    if search:
        where, values = f"{where} AND instr(title, ?) > 0", [*values, search.casefold()]
    if agent is not None:
        where, values = f"{where} AND agent = ?", [*values, agent]
    # The page is found in the index alone; only what is on it is looked up.
    query = (
        f"{_SESSION} WHERE key IN (SELECT key FROM sessions INDEXED BY sessions_listed WHERE {where}"
        " ORDER BY updated_at DESC, id LIMIT ? OFFSET ?) ORDER BY updated_at DESC, id"
    )
    return [_session(*found) for found in db.execute(query, (*values, limit, offset)).fetchall()]


def is_title_taken(db: sqlite3.Connection, owner: str, title: str) -> bool:
    """Whether a listed session has the title."""
    query = "SELECT record FROM sessions WHERE owner = ? AND title = ? AND hidden = 0"
    return any(session_from_json(record).title == title for (record,) in db.execute(query, (owner, title.casefold())))


def existing(
    execute: Callable[[str, tuple[Any, ...]], sqlite3.Cursor],
    owner: str,
    fingerprint: str,
    *,
    run_id: str | None,
    key: str | None,
    now: float,
) -> Run | None:
    """The run of a key or an id."""
    found, word = None, "idempotency key"
    if key is not None:
        found = execute(
            "SELECT i.fingerprint, r.id, r.record FROM idempotency i JOIN runs r ON r.key = i.run"
            " WHERE i.owner = ? AND i.key = ? AND i.expires_at > ?",
            (owner, key, now),
        ).fetchone()
    if found is None and run_id is not None:
        word = f"run id {run_id!r}"
        found = execute(
            "SELECT fingerprint, id, record FROM runs WHERE owner = ? AND id = ?", (owner, run_id)
        ).fetchone()
    if found is None:
        return None
    if found[0] != fingerprint:
        raise IdempotencyConflict(f"The {word} was used with another request.", run_id=found[1])
    return run_from_json(found[2])


def run(db: sqlite3.Connection, owner: str, run_id: str) -> Run | None:
    """One run."""
    found = db.execute("SELECT record FROM runs WHERE owner = ? AND id = ?", (owner, run_id)).fetchone()
    return None if found is None else run_from_json(found[0])


def runs(
    db: sqlite3.Connection,
    owner: str,
    *,
    session_id: str | None,
    statuses: list[str] | None,
    turn: str | None,
    limit: int,
    before: str | None,
) -> list[Run]:
    """A page of runs, newest first."""
    if statuses == []:
        return []
    where: list[str] = ["owner = ?"]
    values: list[Any] = [owner]
    index = "runs_of_owner"
    if statuses is not None:
        where.append(f"status IN ({', '.join('?' * len(statuses))})")
        values += statuses
        if OUTCOMES.isdisjoint(statuses):
            where.append("ended = 0")
            index = "runs_unfinished"
    if session_id is not None:
        where.append("session = (SELECT key FROM sessions WHERE owner = ? AND id = ?)")
        values += [owner, session_id]
        index = "runs_of_session" if turn is None else "runs_of_turn"
    if turn is not None:
        where.append("turn = ?")
        values.append(turn)
    if before is not None:
        where.append("key < ?")
        values.append(_key_of(db, owner, before))
    query = f"SELECT record FROM runs INDEXED BY {index} WHERE {' AND '.join(where)} ORDER BY key DESC LIMIT ?"
    return [run_from_json(record) for (record,) in db.execute(query, (*values, limit)).fetchall()]


def runs_by_id(db: sqlite3.Connection, owner: str, run_ids: list[str]) -> list[Run]:
    """Runs in the given order."""
    query = f"SELECT id, record FROM runs WHERE owner = ? AND id IN ({', '.join('?' * len(run_ids))})"
    found = dict(db.execute(query, (owner, *run_ids)).fetchall())
    return [run_from_json(found[run_id]) for run_id in run_ids if run_id in found]


def unfinished(db: sqlite3.Connection) -> list[Run]:
    """All runs without an outcome."""
    query = "SELECT record FROM runs INDEXED BY runs_unfinished WHERE ended = 0 ORDER BY key"
    return [run_from_json(record) for (record,) in db.execute(query).fetchall()]


def ended(db: sqlite3.Connection, stored: bool, before: float, limit: int) -> list[Run]:
    """Runs that retention has not dealt with."""
    query = (
        "SELECT record FROM runs INDEXED BY runs_to_tidy WHERE ended = 1 AND compacted = 0 AND stored = ? AND ended_at < ?"
        " ORDER BY ended_at LIMIT ?"
    )
    return [run_from_json(record) for (record,) in db.execute(query, (int(stored), before, limit)).fetchall()]


def chain(db: sqlite3.Connection, owner: str, run_id: str) -> list[Run]:
    """A run after those that it continues."""
    query = f"{_CHAIN} SELECT r.record FROM chain JOIN runs r USING (key) ORDER BY depth DESC"
    return [run_from_json(record) for (record,) in db.execute(query, {"owner": owner, "run": run_id}).fetchall()]


def rows(
    db: sqlite3.Connection,
    owner: str,
    session_id: str,
    *,
    limit: int,
    before: tuple[int, int] | None,
    after: tuple[int, int] | None,
    newest_first: bool,
) -> list[HistoryRow]:
    """A slice of the session's page."""
    query, names = _SHOWN, {"owner": owner, "session": session_id, "limit": limit}
    if before is not None:
        query += " AND (position, ordinal) < (:before, :before_ordinal)"
        names |= {"before": before[0], "before_ordinal": before[1]}
    if after is not None:
        query += " AND (position, ordinal) > (:after, :after_ordinal)"
        names |= {"after": after[0], "after_ordinal": after[1]}
    order = "DESC" if after is None else "ASC"
    query += f" ORDER BY position {order}, ordinal {order} LIMIT :limit"
    found = [row_from_json(record) for (record,) in db.execute(query, names).fetchall()]
    return found if newest_first == (after is None) else found[::-1]


def chain_rows(db: sqlite3.Connection, owner: str, session_id: str, run_id: str | None) -> list[HistoryRow]:
    """The rows of a chain."""
    key = "(SELECT key FROM sessions WHERE owner = :owner AND id = :session)"
    query = (
        f"{_CHAIN} SELECT position, ordinal, record FROM history WHERE session = {key} AND anchor IN (SELECT key FROM chain)"
        f" UNION ALL SELECT position, ordinal, record FROM history WHERE session = {key} AND anchor IS NULL"
        " ORDER BY position, ordinal"
    )
    found = db.execute(query, {"owner": owner, "session": session_id, "run": run_id}).fetchall()
    return [row_from_json(record) for _, _, record in found]


def run_rows(db: sqlite3.Connection, owner: str, run_id: str) -> list[HistoryRow]:
    """The rows that one run's events made."""
    query = (
        "SELECT h.record FROM runs r JOIN history h ON h.session = r.session AND h.anchor = r.key"
        " WHERE r.owner = ? AND r.id = ? AND h.own = 1 ORDER BY h.position, h.ordinal"
    )
    return [row_from_json(record) for (record,) in db.execute(query, (owner, run_id)).fetchall()]


def row(db: sqlite3.Connection, owner: str, session_id: str, run_id: str | None, item_id: str) -> HistoryRow | None:
    """One row by its item."""
    query = (
        "SELECT record FROM history WHERE session = (SELECT key FROM sessions WHERE owner = ? AND id = ?)"
        " AND item_id = ? AND maker IS ? ORDER BY position, ordinal LIMIT 1"
    )
    found = db.execute(query, (owner, session_id, item_id, run_id)).fetchone()
    return None if found is None else row_from_json(found[0])


def file(db: sqlite3.Connection, owner: str, file_id: str) -> FileRecord | None:
    """One file's record."""
    found = db.execute("SELECT record FROM files WHERE owner = ? AND id = ?", (owner, file_id)).fetchone()
    return None if found is None else _file_from_json(found[0])


def files(
    db: sqlite3.Connection, owner: str, *, limit: int, after: str | None, purpose: str | None, newest_first: bool
) -> list[FileRecord]:
    """A page of files."""
    query, values = "SELECT record FROM files WHERE owner = ?", [owner]
    order, sign = ("DESC", "<") if newest_first else ("ASC", ">")
    if after is not None:
        place = db.execute("SELECT created_at, id FROM files WHERE owner = ? AND id = ?", (owner, after)).fetchone()
        if place is None:
            raise NotFound("file", after, param="after")
        query, values = f"{query} AND (created_at, id) {sign} (?, ?)", [*values, *place]
    if purpose is not None:
        query, values = f"{query} AND purpose = ?", [*values, purpose]
    query += f" ORDER BY created_at {order}, id {order} LIMIT ?"
    return [_file_from_json(record) for (record,) in db.execute(query, (*values, limit)).fetchall()]


def _session(record: bytes, updated_at: float, head: str | None) -> Session:
    return msgspec.structs.replace(session_from_json(record), updated_at=updated_at, head=head)


def _key_of(db: sqlite3.Connection, owner: str, run_id: str) -> int:
    found = db.execute("SELECT key FROM runs WHERE owner = ? AND id = ?", (owner, run_id)).fetchone()
    if found is None:
        raise NotFound("run", run_id, param="before")
    return int(found[0])
