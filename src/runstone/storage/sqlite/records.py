"""What is done to sessions, runs and files, each inside the writer's transaction.

Rule: a function checks first and then writes.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import msgspec

from runstone.core.lifecycle import RunState
from runstone.core.runs import Session
from runstone.core.serde import events_to_json, run_from_json
from runstone.core.transcript import HistoryRow, row_change
from runstone.errors import AppendConflict, Conflict, NotFound, NotStorable
from runstone.storage.base import Created, FileRecord, Idempotency, NewRun
from runstone.storage.sqlite.ledger import UNENDED, Ledger, OpenLog, encoded, record_values
from runstone.storage.sqlite.reads import existing

#: What one job takes away or rewrites, so that it holds the writer for a few milliseconds only.
SLICE_STRETCHES: Final = 200

_CHAIN: Final = """
    WITH RECURSIVE chain (key) AS (
        SELECT :head
        UNION ALL
        SELECT r.continues FROM runs r JOIN chain USING (key) WHERE r.continues IS NOT NULL
    )
"""
_HEAD: Final = """
    SELECT s.key, s.head, h.id
    FROM sessions s LEFT JOIN runs h ON h.key = s.head
    WHERE s.owner = ? AND s.id = ?
"""
_SAVE_POSITION: Final = """
    UPDATE sessions SET floor = max(
        floor,
        (SELECT coalesce(max(position), 0) FROM history WHERE session = sessions.key),
        coalesce((
            SELECT last_position FROM stretches WHERE id > :run << 32 AND id < (:run + 1) << 32 ORDER BY id DESC LIMIT 1
        ), 0)
    )
    WHERE key = :session
"""


def create_session(ledger: Ledger, session: Session, rows: list[HistoryRow]) -> None:
    """Insert a session without runs, and a client's rows."""
    values = [_client_values(row) for row in rows]
    if _session_key(ledger, session.owner, session.id) is not None:
        raise Conflict(f"A session with the id {session.id!r} exists.", code="session_exists")
    key = _insert_session(ledger, session, head=None)
    _insert_rows(ledger, key, None, values)


def save_session(ledger: Ledger, session: Session) -> None:
    """Replace a session's record."""
    changed = ledger.execute(
        "UPDATE sessions SET agent = ?, hidden = ?, updated_at = ?, title = ?, record = ? WHERE owner = ? AND id = ?",
        (*_session_values(session), session.owner, session.id),
    )
    if changed.rowcount == 0:
        raise NotFound("session", session.id)


def delete_session(ledger: Ledger, owner: str, session_id: str) -> bool:
    """Delete a session; the stretches of its runs become `discarded`."""
    key = _session_key(ledger, owner, session_id)
    if key is None:
        return False
    ledger.close_logs(key)
    for statement in (
        "DELETE FROM idempotency WHERE run IN (SELECT key FROM runs WHERE session = ?)",
        "INSERT OR IGNORE INTO discarded SELECT key FROM runs WHERE session = ?",
        "DELETE FROM tail WHERE run IN (SELECT key FROM runs WHERE session = ?)",
        "DELETE FROM runs WHERE session = ?",
        "DELETE FROM history WHERE session = ?",
        "DELETE FROM sessions WHERE key = ?",
    ):
        ledger.execute(statement, (key,))
    return True


def create_run(ledger: Ledger, new: NewRun) -> Created:
    """Insert a run with its session, first event and rows, or find the one that is attached to."""
    run, event = new.run, new.event
    key = new.idempotency.key if new.idempotency is not None else None
    known = existing(ledger.execute, run.owner, new.fingerprint, run_id=run.id, key=key, now=run.created_at)
    if known is not None:
        return Created(run=known, is_new=False)
    session, head, head_id = ledger.execute(_HEAD, (run.owner, run.session_id)).fetchone() or (None, None, None)
    if head_id != new.expected_head:
        raise Conflict("Another run of the session was first.", code="head_moved")
    if event.seq != 1:
        raise AppendConflict(f"The first event of a run has seq 1, not {event.seq}.")
    try:
        data = events_to_json([event])
    except (TypeError, ValueError, RecursionError) as e:
        raise NotStorable("The input holds a value that cannot be stored.") from e
    change, record = row_change(run.id, event, RunState()), encoded(run)
    encoded(change)
    if session is None:
        session = _insert_session(ledger, new.session, head=None)
    continues = head if run.continues == head_id else _run_key(ledger, run.owner, run.continues)
    number = _insert_run(ledger, new, session, continues, record)
    log = OpenLog(number, session, run.session_id, shown=1)
    ledger.open_log(run.owner, run.id, log)
    if continues != head:
        _show_chain(ledger, session, number)
    ledger.add_stretch(log, 1, 1, event.position, data)
    ledger.add_rows(log, change.added if change is not None else [])
    ledger.execute("UPDATE sessions SET head = ?, updated_at = ? WHERE key = ?", (number, event.at, session))
    if new.idempotency is not None:
        _remember_key(ledger, new, new.idempotency, number)
    return Created(run=run, is_new=True)


def delete_run(ledger: Ledger, owner: str, run_id: str, *, keep_record: bool) -> bool:
    """Delete a run's rows, and its record unless that is kept; its stretches become `discarded`."""
    found = ledger.execute(
        "SELECT key, session, continues FROM runs WHERE owner = ? AND id = ?", (owner, run_id)
    ).fetchone()
    if found is None:
        return False
    key, session, continues = found
    ledger.close_logs(session, key)
    ledger.execute(_SAVE_POSITION, {"run": key, "session": session})
    ledger.execute("DELETE FROM history WHERE session = ? AND anchor = ? AND own = 1", (session, key))
    ledger.execute("INSERT OR IGNORE INTO discarded VALUES (?)", (key,))
    ledger.execute("DELETE FROM tail WHERE run = ?", (key,))
    if keep_record:
        ledger.execute("UPDATE runs SET last_position = 0 WHERE key = ?", (key,))
        return True
    _mend_chain(ledger, key, session, continues)
    ledger.execute("DELETE FROM idempotency WHERE run = ?", (key,))
    ledger.execute("DELETE FROM runs WHERE key = ?", (key,))
    return True


def purge(ledger: Ledger) -> bool:
    """Take away a slice of the stretches of deleted runs; False when there are none left."""
    found = ledger.execute("SELECT run FROM discarded LIMIT 1").fetchone()
    if found is None:
        return False
    (run,) = found
    deleted = ledger.execute(
        "DELETE FROM stretches WHERE id IN (SELECT id FROM stretches WHERE id > :run << 32 AND id < (:run + 1) << 32 LIMIT :n)",
        {"run": run, "n": SLICE_STRETCHES},
    )
    if deleted.rowcount < SLICE_STRETCHES:
        ledger.execute("DELETE FROM discarded WHERE run = ?", (run,))
    return True


def add_rows(ledger: Ledger, owner: str, session_id: str, rows: list[HistoryRow]) -> None:
    """Insert a client's rows; they belong to the chain of the head."""
    values = [_client_values(row) for row in rows]
    session, head, _ = ledger.execute(_HEAD, (owner, session_id)).fetchone() or (None, None, None)
    if session is None:
        raise NotFound("session", session_id)
    _insert_rows(ledger, session, head, values)


def delete_row(ledger: Ledger, owner: str, session_id: str, position: int, ordinal: int) -> bool:
    """Delete one row."""
    key = _session_key(ledger, owner, session_id)
    deleted = ledger.execute(
        "DELETE FROM history WHERE session = ? AND position = ? AND ordinal = ?", (key, position, ordinal)
    )
    ledger.execute(
        "UPDATE sessions SET floor = max(floor, ?) WHERE key = ?", (position if deleted.rowcount else 0, key)
    )
    return deleted.rowcount > 0


def create_file(ledger: Ledger, record: FileRecord) -> None:
    """Insert a file's record."""
    data = encoded(record)
    try:
        ledger.execute(
            "INSERT INTO files (owner, id, created_at, purpose, record) VALUES (?, ?, ?, ?, ?)",
            (record.owner, record.id, record.created_at, record.purpose, data),
        )
    except sqlite3.IntegrityError as e:
        raise Conflict(f"A file with the id {record.id!r} exists.", code="file_exists") from e


def delete_file(ledger: Ledger, owner: str, file_id: str) -> bool:
    """Delete a file's record."""
    return ledger.execute("DELETE FROM files WHERE owner = ? AND id = ?", (owner, file_id)).rowcount > 0


def _remember_key(ledger: Ledger, new: NewRun, idempotency: Idempotency, run: int) -> None:
    ledger.execute("DELETE FROM idempotency WHERE expires_at <= ?", (new.run.created_at,))
    ledger.execute(
        "INSERT INTO idempotency (owner, key, fingerprint, expires_at, run) VALUES (?, ?, ?, ?, ?)",
        (new.run.owner, idempotency.key, idempotency.fingerprint, idempotency.expires_at, run),
    )


def _session_key(ledger: Ledger, owner: str, session_id: str) -> int | None:
    found = ledger.execute("SELECT key FROM sessions WHERE owner = ? AND id = ?", (owner, session_id)).fetchone()
    return None if found is None else int(found[0])


def _run_key(ledger: Ledger, owner: str, run_id: str | None) -> int | None:
    found = ledger.execute("SELECT key FROM runs WHERE owner = ? AND id = ?", (owner, run_id)).fetchone()
    return None if found is None else int(found[0])


def _session_values(session: Session) -> tuple[Any, ...]:
    title = (session.title or "").casefold()
    return session.agent, int(session.hidden), session.updated_at, title, encoded(session)


def _insert_session(ledger: Ledger, session: Session, *, head: int | None) -> int:
    inserted = ledger.execute(
        "INSERT INTO sessions (owner, id, head, agent, hidden, updated_at, title, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (session.owner, session.id, head, *_session_values(session)),
    )
    assert inserted.lastrowid is not None
    return inserted.lastrowid


def _insert_run(ledger: Ledger, new: NewRun, session: int, continues: int | None, record: bytes) -> int:
    run, position = new.run, new.event.position
    inserted = ledger.execute(
        "INSERT INTO runs (owner, id, session, turn, status, ended, ended_at, stored, compacted, continues, shown,"
        " first_position, last_position, fingerprint, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)",
        (
            *(run.owner, run.id, session, run.turn, *record_values(run), continues, position),
            *(UNENDED if run.outcome is None else position, new.fingerprint, record),
        ),
    )
    assert inserted.lastrowid is not None
    return inserted.lastrowid


def _client_values(row: HistoryRow) -> tuple[Any, ...]:
    return row.position, row.ordinal, row.run_id, row.item.item_id, row.seq, encoded(row)


def _insert_rows(ledger: Ledger, session: int, anchor: int | None, values: list[tuple[Any, ...]]) -> None:
    ledger.execute_many(
        "INSERT INTO history (session, anchor, own, shown, position, ordinal, maker, item_id, seq, record)"
        " VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?, ?)",
        [(session, anchor, *row) for row in values],
    )


def _show_chain(ledger: Ledger, session: int, head: int | None) -> None:
    """Make the session's page that of the chain that ends in `head`."""
    names = {"session": session, "head": head}
    ledger.execute(
        f"{_CHAIN} UPDATE runs SET shown = (key IN (SELECT key FROM chain)) WHERE session = :session"
        " AND shown <> (key IN (SELECT key FROM chain))",
        names,
    )
    ledger.execute(
        f"{_CHAIN} UPDATE history SET shown = (anchor IS NULL OR anchor IN (SELECT key FROM chain))"
        " WHERE session = :session AND shown <> (anchor IS NULL OR anchor IN (SELECT key FROM chain))",
        names,
    )
    ledger.show_again(session)


def _mend_chain(ledger: Ledger, key: int, session: int, continues: int | None) -> None:
    """Let everything that pointed to a run point past it."""
    (before,) = ledger.execute("SELECT id FROM runs WHERE key = ?", (continues,)).fetchone() or (None,)
    children = ledger.execute(
        "SELECT key, record FROM runs WHERE continues = ? ORDER BY shown DESC, key", (key,)
    ).fetchall()
    moved = ledger.execute("UPDATE sessions SET head = ? WHERE key = ? AND head = ?", (continues, session, key))
    # A client's rows stay on the chain they are on: at the head that of the run before, else that of a run that follows.
    if children or moved.rowcount:
        heir = continues if moved.rowcount else children[0][0]
        ledger.execute("UPDATE history SET anchor = ? WHERE session = ? AND anchor = ?", (heir, session, key))
    else:
        ledger.execute("DELETE FROM history WHERE session = ? AND anchor = ?", (session, key))
    for child, record in children:
        mended = encoded(msgspec.structs.replace(run_from_json(record), continues=before))
        ledger.execute("UPDATE runs SET continues = ?, record = ? WHERE key = ?", (continues, mended, child))
