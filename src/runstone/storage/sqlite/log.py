"""The log as readers see it: stretches of one run, and of a session's runs merged by position.

Rule: a function that needs several statements runs them in one read transaction (`Readers`), or it would see a stretch
leave the tail and not arrive.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import deque
from collections.abc import Iterator
from typing import Final

from runstone.core.events import DELTAS, Event, ToolProgress
from runstone.core.serde import VERSION, events_from_json, events_to_json
from runstone.storage.base import SessionEvent
from runstone.storage.sqlite.ledger import UNENDED, Ledger

#: Stretches that one job of a compaction rewrites, so that it holds the writer for a few milliseconds only.
SLICE_STRETCHES: Final = 16

#: The key of a run, and whether it goes on. A run whose log was deleted is not found.
_RUN: Final = "SELECT key, ended FROM runs WHERE owner = ? AND id = ? AND last_position <> 0"
_RUNS_ABOVE: Final = """
    SELECT r.key, r.ended, r.id, r.first_position FROM sessions s JOIN runs r ON r.session = s.key
    WHERE s.owner = ? AND s.id = ? AND r.last_position > ? ORDER BY r.first_position
"""
_FOLDED: Final = """
    SELECT last_seq, version, data FROM stretches
    WHERE id >= coalesce(
        (SELECT max(id) FROM stretches WHERE id > :run << 32 AND id <= (:run << 32) + :after + 1), :run << 32
    ) AND id < (:run + 1) << 32
    ORDER BY id
"""
_IN_TAIL: Final = "SELECT last_seq, version, data FROM tail WHERE run = ? AND last_seq > ? ORDER BY first_seq"
_NEWEST_FOLDED: Final = """
    SELECT last_seq, last_position FROM stretches WHERE id > :run << 32 AND id < (:run + 1) << 32 ORDER BY id DESC LIMIT 1
"""
_STRETCH_OF: Final = (
    "SELECT id, last_seq, last_position FROM stretches WHERE id > ? AND id <= ? ORDER BY id DESC LIMIT 1"
)
_NEWEST_IN_TAIL: Final = (
    "SELECT last_seq, last_position FROM tail WHERE run = ? AND last_seq > ? ORDER BY id DESC LIMIT 1"
)


def events(db: sqlite3.Connection, owner: str, run_id: str, after: int, limit: int) -> list[Event]:
    """A page of one run's events."""
    found = db.execute(_RUN, (owner, run_id)).fetchone()
    page: list[Event] = []
    if found is not None:
        run, ended = found
        for stretch in _stretches(db, run, ended, after):
            page += stretch if stretch[0].seq > after else [event for event in stretch if event.seq > after]
            if len(page) >= limit:
                break
    return page[:limit]


def session_events(db: sqlite3.Connection, owner: str, session_id: str, after: int, limit: int) -> list[SessionEvent]:
    """A page of the events of a session's runs, merged by position."""
    candidates = deque(db.execute(_RUNS_ABOVE, (owner, session_id, after)))
    page: list[SessionEvent] = []
    open_runs: list[tuple[int, str, Event, Iterator[Event]]] = []
    while len(page) < limit and (candidates or open_runs):
        # A run is opened when its first event may be the next one.
        while candidates and (not open_runs or candidates[0][3] < open_runs[0][0]):
            key, ended, run_id, first_position = candidates.popleft()
            _push(open_runs, run_id, _from_position(db, key, ended, first_position, after))
        if open_runs:
            _, run_id, event, following = heapq.heappop(open_runs)
            page.append(SessionEvent(run_id=run_id, event=event))
            _push(open_runs, run_id, following)
    return page


def last_seq(db: sqlite3.Connection, owner: str, run_id: str) -> int:
    """The newest seq of a run."""
    found = db.execute(_RUN, (owner, run_id)).fetchone()
    if found is None:
        return 0
    run, ended = found
    return _newest(db, run, ended)[0]


def first_seq(db: sqlite3.Connection, owner: str, run_id: str) -> int:
    """The oldest seq of a run."""
    first = events(db, owner, run_id, 0, 1)
    return first[0].seq if first else 0


def last_position(db: sqlite3.Connection, owner: str, session_id: str) -> int:
    """The newest position of a session, what is deleted included."""
    found = db.execute("SELECT key, floor FROM sessions WHERE owner = ? AND id = ?", (owner, session_id)).fetchone()
    if found is None:
        return 0
    session, floor = found
    (of_rows,) = db.execute("SELECT max(position) FROM history WHERE session = ?", (session,)).fetchone()
    (of_ended,) = db.execute(
        "SELECT max(last_position) FROM runs WHERE session = ? AND last_position < ?", (session, UNENDED)
    ).fetchone()
    going_on = db.execute("SELECT key FROM runs WHERE session = ? AND last_position = ?", (session, UNENDED)).fetchall()
    return max(int(floor), of_rows or 0, of_ended or 0, *(_newest(db, key, 0)[1] for (key,) in going_on))


def _stretches(db: sqlite3.Connection, run: int, ended: int, after: int) -> Iterator[list[Event]]:
    """A run's stretches from the one that holds what follows `after`; none of them is empty."""
    for seq, version, data in db.execute(_FOLDED, {"run": run, "after": after}):
        if seq > after:
            yield events_from_json(data, version=version)
            after = seq
    if not ended:
        for _, version, data in db.execute(_IN_TAIL, (run, after)):
            yield events_from_json(data, version=version)


def _newest(db: sqlite3.Connection, run: int, ended: int) -> tuple[int, int]:
    """The last seq and position of a run."""
    folded = db.execute(_NEWEST_FOLDED, {"run": run}).fetchone() or (0, 0)
    in_tail = None if ended else db.execute(_NEWEST_IN_TAIL, (run, folded[0])).fetchone()
    return in_tail or folded


def _push(open_runs: list[tuple[int, str, Event, Iterator[Event]]], run_id: str, following: Iterator[Event]) -> None:
    event = next(following, None)
    if event is not None:
        heapq.heappush(open_runs, (event.position, run_id, event, following))


def _from_position(db: sqlite3.Connection, run: int, ended: int, first_position: int, after: int) -> Iterator[Event]:
    """A run's events with a position above `after`."""
    start = 0 if first_position > after else _first_seq_above(db, run, after - first_position + 2, after) - 1
    for stretch in _stretches(db, run, ended, start):
        yield from (event for event in stretch if event.position > after)


def _first_seq_above(db: sqlite3.Connection, run: int, at_most: int, position: int) -> int:
    """A seq before which no event has a position above `position`; that of such an event, or of its stretch, if it is folded.

    Positions rise with seq, by one or more: `at_most` is the answer when no other run wrote in between.
    """
    low, high = 1, at_most
    while low < high:
        middle = (low + high) // 2
        found = db.execute(_STRETCH_OF, (run << 32, (run << 32) + middle)).fetchone()
        if found is None:
            return low
        packed, last_seq, last_position = found
        if last_position > position:
            high = packed & 0xFFFFFFFF
        elif last_seq >= middle:
            low = last_seq + 1
        else:  # what follows is in the tail, or was compacted away
            return int(last_seq) + 1
    return low


def compacted_slice(
    db: sqlite3.Connection, owner: str, run_id: str, after: int
) -> tuple[int, list[int], list[Event], int] | None:
    """The next stretches of an ended run without what compaction takes: run key, their ids, what stays, what goes."""
    found = db.execute(_RUN, (owner, run_id)).fetchone()
    if found is None or not found[1]:
        return None
    run = found[0]
    rows = db.execute(
        "SELECT id, version, data FROM stretches WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
        ((run << 32) + after, (run + 1) << 32, SLICE_STRETCHES),
    ).fetchall()
    if not rows:
        return None
    all_events = [event for _, version, data in rows for event in events_from_json(data, version=version)]
    stay = [event for event in all_events if not isinstance(event.body, (*DELTAS, ToolProgress))]
    return run, [row[0] for row in rows], stay, len(all_events) - len(stay)


def rewrite(ledger: Ledger, run: int, ids: list[int], stay: list[Event]) -> bool:
    """Replace stretches by one of what stays of them; False when they are not all there any more."""
    span = ids[0], ids[-1]
    (count,) = ledger.execute("SELECT count(*) FROM stretches WHERE id BETWEEN ? AND ?", span).fetchone()
    if count != len(ids):
        return False
    ledger.execute("DELETE FROM stretches WHERE id BETWEEN ? AND ?", span)
    if stay:
        ledger.execute(
            "INSERT INTO stretches (id, last_seq, last_position, version, data) VALUES (?, ?, ?, ?, ?)",
            (run << 32 | stay[0].seq, stay[-1].seq, stay[-1].position, VERSION, events_to_json(stay)),
        )
    return True
