"""The write side of one connection: what happens to runs, collected for few statements per commit.

Rules: the thread that writes is the only user. A method checks first and then writes, so that what it refuses leaves nothing
behind. After a failed statement comes `forget`.

A new stretch of events goes to the end of `tail`; when a run has many of them, or has ended, they are folded into one row of
`stretches`. `OpenLog` keeps a copy of the pieces in between, so that folding needs no reading. A run that has no `OpenLog`
has nothing in `tail` that counts.
"""

from __future__ import annotations

import sqlite3
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec

from runstone.core.items import Item
from runstone.core.runs import Run
from runstone.core.serde import VERSION, events_to_json, to_json
from runstone.core.transcript import HistoryRow, RowChange
from runstone.errors import AppendConflict, NotStorable
from runstone.storage.base import Append

#: `runs.last_position` of a run that goes on.
UNENDED: Final = 1 << 62
#: A run's pieces are folded at the first of these.
FOLD_PIECES: Final = 256
FOLD_BYTES: Final = 64 << 10
#: The whole tail is folded at the first of these: readers of a run that goes on look through all of it.
TAIL_ROWS: Final = 8_000
TAIL_BYTES: Final = 8 << 20
OPEN_LOGS: Final = 10_000
ROWS_PER_INSERT: Final = 64

row_from_json: Final = msgspec.json.Decoder(HistoryRow).decode

_INSERT_TAIL: Final = "INSERT INTO tail (run, first_seq, last_seq, last_position, version, data) VALUES "
_INSERT_STRETCH: Final = "INSERT INTO stretches (id, last_seq, last_position, version, data) VALUES "
_INSERT_HISTORY: Final = (
    "INSERT INTO history (session, position, ordinal, anchor, own, shown, maker, item_id, seq, record) VALUES "
)
_UPDATE_RUN: Final = """
    UPDATE runs SET status = ?, ended = ?, ended_at = ?, stored = ?, compacted = ?, last_position = ?, record = ?
    WHERE key = ?
"""
_OPEN_LOG: Final = """
    SELECT r.key, r.session, s.id, r.shown, r.ended, coalesce(l.last_seq, 0), coalesce(l.last_position, 0)
    FROM runs r
    JOIN sessions s ON s.key = r.session
    LEFT JOIN stretches l ON r.last_position <> 0 AND l.id = (
        SELECT max(id) FROM stretches WHERE id > r.key << 32 AND id < (r.key + 1) << 32
    )
    WHERE r.owner = ? AND r.id = ?
"""


def encoded(value: object) -> bytes:
    """`value` as JSON.

    Raises:
        NotStorable: JSON cannot carry it.
    """
    try:
        return to_json(value)
    except (TypeError, ValueError, RecursionError) as e:
        raise NotStorable("A record holds a value that cannot be stored.") from e


def joined(pieces: list[bytes]) -> bytes:
    """JSON arrays, none of them empty, as one."""
    return pieces[0] if len(pieces) == 1 else b"[" + b",".join([piece[1:-1] for piece in pieces]) + b"]"


class OpenLog:
    """What the writer knows of a run that goes on. `pieces` are its stretches in `tail`, from `first_seq` on."""

    __slots__ = (
        "ended",
        "first_seq",
        "key",
        "last_position",
        "last_seq",
        "pieces",
        "session",
        "session_id",
        "shown",
        "size",
    )

    def __init__(
        self,
        key: int,
        session: int,
        session_id: str,
        shown: int,
        ended: int = 0,
        last_seq: int = 0,
        last_position: int = 0,
    ) -> None:
        self.key = key
        self.session = session
        self.session_id = session_id
        self.shown = shown
        self.ended = ended
        self.last_seq = last_seq
        self.last_position = last_position
        self.pieces: list[bytes] = []
        self.first_seq = 0
        self.size = 0


class Ledger:
    """Collects a transaction's writes. Runs are known by (owner, run id)."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute
        self.execute_many = connection.executemany
        self._logs: dict[tuple[str, str], OpenLog] = {}
        self._is_begun = False
        self._is_fresh = False
        self._tail_rows = self._tail_bytes = 0
        self._clear_pending()

    def _clear_pending(self) -> None:
        self._tail: list[Any] = []
        self._stretches: list[Any] = []
        self._history: list[Any] = []
        self._records: dict[int, tuple[Any, ...]] = {}
        self._touched: dict[int, float] = {}
        self._ended: list[tuple[str, str]] = []

    # One transaction -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the transaction if it has not begun. The first one folds what an earlier process left in the tail."""
        if self._is_begun:
            return
        self.execute("BEGIN IMMEDIATE")
        self._is_begun = True
        if not self._is_fresh:
            self._fold_leftovers()
            self._is_fresh = True

    @property
    def is_fresh(self) -> bool:
        """False before the first transaction and after `forget`: then `begin` has to come before anything is collected."""
        return self._is_fresh

    def commit(self) -> None:
        """Send what is collected and make it durable. One statement alone needs no transaction around it."""
        is_full = self._tail_rows > TAIL_ROWS or self._tail_bytes > TAIL_BYTES or len(self._logs) > OPEN_LOGS
        is_one_insert = len(self._tail) <= ROWS_PER_INSERT * 6
        if is_full or not is_one_insert or self._stretches or self._history or self._records or self._touched:
            self.begin()
        if is_full:
            self._fold_tail()
        self.flush()
        if self._is_begun:
            self.execute("COMMIT")
            self._is_begun = False

    def forget(self) -> None:
        """Nothing that was collected or remembered is true any more."""
        self._logs.clear()
        self._clear_pending()
        self._is_fresh = self._is_begun = False

    def flush(self) -> None:
        """Send what is collected."""
        if self._tail:
            self._insert(_INSERT_TAIL, self._tail, width=6)
            self._tail = []
        if self._stretches:
            self._insert(_INSERT_STRETCH, self._stretches, width=5)
            self._stretches = []
        self._flush_history()
        if self._records:
            self.execute_many(_UPDATE_RUN, self._records.values())
            self._records = {}
        if self._touched:
            self.execute_many(
                "UPDATE sessions SET updated_at = ? WHERE key = ?", [(at, key) for key, at in self._touched.items()]
            )
            self._touched = {}
        if self._ended:
            for key in self._ended:
                self._logs.pop(key, None)
            self._ended = []

    def _flush_history(self) -> None:
        if self._history:
            self._insert(_INSERT_HISTORY, self._history, width=10)
            self._history = []

    def _insert(self, head: str, values: list[Any], *, width: int) -> None:
        """Insert rows by few statements: each statement gives up Python's lock and has to wait for it again."""
        row = f"({', '.join('?' * width)})"
        for n in range(0, len(values), ROWS_PER_INSERT * width):
            part = values[n : n + ROWS_PER_INSERT * width]
            self.execute(head + ", ".join([row] * (len(part) // width)), part)

    # Runs ------------------------------------------------------------------------------------------------------------

    def append(self, batch: Append) -> None:
        """Collect the batch; it counts when `commit` has returned."""
        log = self._logs.get((batch.owner, batch.run_id)) or self._load(batch.owner, batch.run_id)
        if log is None or log.session_id != batch.session_id:
            raise AppendConflict(f"The run {batch.run_id!r} is gone.")
        events = batch.events
        data = b""
        if events:
            last_seq = events[-1].seq
            if events[0].seq != log.last_seq + 1 or last_seq - log.last_seq != len(events) or log.ended:
                raise _conflict(batch, log)
            try:
                data = events_to_json(events)
            except (TypeError, ValueError, RecursionError) as e:
                raise NotStorable("An event holds a value that cannot be stored.") from e
        if batch.run is None and not batch.changes:
            if events:
                self.add_stretch(log, events[0].seq, last_seq, events[-1].position, data)
        else:
            self._append_with_changes(log, batch, data)

    def _append_with_changes(self, log: OpenLog, batch: Append, data: bytes) -> None:
        record = encoded(batch.run) if batch.run is not None else b""
        added = [[history_values(log, row) for row in change.added] for change in batch.changes]
        for change in batch.changes:
            encoded(change.replaced)  # refused here or not at all
        if batch.events:
            self.add_stretch(log, batch.events[0].seq, batch.events[-1].seq, batch.events[-1].position, data)
        for change, rows in zip(batch.changes, added, strict=True):
            self._change_history(log, batch.run_id, change, rows)
        self._touched[log.session] = batch.at
        if batch.run is not None:
            self._set_record(log, batch.run, record)

    def add_stretch(self, log: OpenLog, first_seq: int, last_seq: int, last_position: int, data: bytes) -> None:
        """Put a stretch at the end of a run's log: into the tail or, with the run's pieces there, into one folded row."""
        pieces = log.pieces
        if not pieces:
            log.first_seq = first_seq
        pieces.append(data)
        log.last_seq = last_seq
        log.last_position = last_position
        log.size += len(data)
        if len(pieces) >= FOLD_PIECES or log.size >= FOLD_BYTES:
            self._fold(log)
            return
        self._tail += (log.key, first_seq, last_seq, last_position, VERSION, data)
        self._tail_rows += 1
        self._tail_bytes += len(data)

    def add_rows(self, log: OpenLog, rows: list[HistoryRow]) -> None:
        """Put a run's rows into its session's history."""
        for row in rows:
            self._history += history_values(log, row)

    def open_log(self, owner: str, run_id: str, log: OpenLog) -> None:
        """Remember a run."""
        self._logs[owner, run_id] = log

    def set_record(self, run: Run) -> bool:
        """Replace a run's record; False when there is no such run."""
        log = self._logs.get((run.owner, run.id)) or self._load(run.owner, run.id)
        if log is None:
            return False
        self._set_record(log, run, encoded(run))
        return True

    def show_again(self, session: int) -> None:
        """Learn anew which of a session's runs are on its page."""
        for log in self._logs.values():
            if log.session == session:
                (log.shown,) = self.execute("SELECT shown FROM runs WHERE key = ?", (log.key,)).fetchone()

    def close_logs(self, session: int, run: int | None = None) -> None:
        """Fold a session's runs, or one of them, and forget them."""
        for log in self._logs.values():
            if log.session == session and run in (None, log.key):
                self._fold(log)
        self.flush()
        for key in [key for key, log in self._logs.items() if log.session == session and run in (None, log.key)]:
            del self._logs[key]

    def _load(self, owner: str, run_id: str) -> OpenLog | None:
        found = self.execute(_OPEN_LOG, (owner, run_id)).fetchone()
        if found is None:
            return None
        self._logs[owner, run_id] = log = OpenLog(*found)
        return log

    def _set_record(self, log: OpenLog, run: Run, record: bytes) -> None:
        log.ended = int(run.outcome is not None)
        last_position = log.last_position if log.ended else UNENDED
        self._records[log.key] = (*record_values(run), last_position, record, log.key)
        if log.ended:
            self._fold(log)
            self._ended.append((run.owner, run.id))

    def _change_history(self, log: OpenLog, run_id: str, change: RowChange, added: list[tuple[Any, ...]]) -> None:
        if change.discard_after_seq is not None:
            self.begin()
            self._flush_history()
            self.execute(
                "DELETE FROM history WHERE session = ? AND anchor = ? AND own = 1 AND seq > ?",
                (log.session, log.key, change.discard_after_seq),
            )
        if change.replaced is not None:
            self.begin()
            self._flush_history()
            self._replace_item(log, run_id, change.replaced)
        for values in added:
            self._history += values

    def _replace_item(self, log: OpenLog, run_id: str, item: Item) -> None:
        found = self.execute(
            "SELECT record FROM history WHERE session = ? AND item_id = ? AND maker = ? AND own = 1",
            (log.session, item.item_id, run_id),
        ).fetchall()
        for row in [row_from_json(record) for (record,) in found]:
            if type(row.item) is type(item):
                self.execute(
                    "UPDATE history SET record = ? WHERE session = ? AND position = ? AND ordinal = ?",
                    (encoded(msgspec.structs.replace(row, item=item)), log.session, row.position, row.ordinal),
                )

    # Folding ---------------------------------------------------------------------------------------------------------

    def _fold(self, log: OpenLog) -> None:
        if log.pieces:
            packed = log.key << 32 | log.first_seq
            self._stretches += (packed, log.last_seq, log.last_position, VERSION, joined(log.pieces))
            log.pieces = []
            log.size = 0

    def _fold_tail(self) -> None:
        """Fold every run and empty the tail."""
        for log in self._logs.values():
            self._fold(log)
        self.flush()
        self.execute("DELETE FROM tail")
        self._tail_rows = self._tail_bytes = 0
        if len(self._logs) > OPEN_LOGS:
            self._logs.clear()

    def _fold_leftovers(self) -> None:
        """Fold the tail from its rows, when no copy of them is in memory: after a crash, and after `forget`."""
        rows = self.execute(
            "SELECT run, version, first_seq, last_seq, last_position, data FROM tail t WHERE last_seq > coalesce("
            "(SELECT last_seq FROM stretches WHERE id < (t.run + 1) << 32 AND id > t.run << 32 ORDER BY id DESC LIMIT 1), 0)"
            " ORDER BY run, first_seq"
        ).fetchall()
        for (run, version), group in groupby(rows, key=itemgetter(0, 1)):
            pieces = list(group)
            for n in range(0, len(pieces), FOLD_PIECES):
                part = pieces[n : n + FOLD_PIECES]
                data = joined([piece[5] for piece in part])
                self.execute(
                    f"{_INSERT_STRETCH}(?, ?, ?, ?, ?)", (run << 32 | part[0][2], *part[-1][3:5], version, data)
                )
        self.execute("DELETE FROM tail")
        self._tail_rows = self._tail_bytes = 0


def record_values(run: Run) -> tuple[Any, ...]:
    """The columns of a run that follow its record."""
    return run.status, int(run.outcome is not None), run.ended_at, int(run.store), int(run.compacted)


def _conflict(batch: Append, log: OpenLog) -> AppendConflict:
    if log.ended:
        return AppendConflict(f"The log of run {batch.run_id!r} has ended.")
    seqs = f"{batch.events[0].seq} to {batch.events[-1].seq}"
    return AppendConflict(f"The log of run {batch.run_id!r} goes on with {log.last_seq + 1}, not with {seqs}.")


def history_values(log: OpenLog, row: HistoryRow) -> tuple[Any, ...]:
    """The columns of a row that belongs to a run's chain."""
    own = int(row.origin == "run" and row.run_id is not None)
    place = log.session, row.position, row.ordinal
    return *place, log.key, own, log.shown, row.run_id, row.item.item_id, row.seq, encoded(row)
