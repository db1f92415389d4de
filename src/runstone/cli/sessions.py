"""`runstone sessions`: look at sessions and their history in the database."""

from __future__ import annotations

import argparse
from typing import Any

from runstone.cli import reading
from runstone.cli.printing import fields, json_line, moment, short, table
from runstone.core.runs import Run, Session
from runstone.core.transcript import HistoryRow
from runstone.errors import NotFound
from runstone.protocols.hermes.history import rows_of
from runstone.protocols.hermes.types import MessageRow
from runstone.storage.base import Store


def add_to(commands: Any) -> None:  # noqa: ANN401
    """Add the commands to the grammar."""
    group = commands.add_parser("sessions", help="look at sessions", description="Look at sessions.")
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    lists = actions.add_parser(
        "list", help="sessions, newest activity first", description="Sessions in the database, newest activity first."
    )
    lists.add_argument("--search", metavar="WORDS", help="only with these in the title")
    lists.add_argument("--limit", type=int, default=20, help="how many (20)")
    lists.set_defaults(run=list_sessions)
    shows = actions.add_parser("show", help="one session and its history", description="One session and its history.")
    shows.add_argument("session_id", metavar="SESSION")
    shows.add_argument("--limit", type=int, default=200, help="how many items of history, the newest (200)")
    shows.set_defaults(run=show)
    for command in (lists, shows):
        reading.add_options(command)


def list_sessions(options: argparse.Namespace) -> int:
    """Print sessions, newest activity first."""

    async def found(store: Store) -> list[tuple[Session, Run | None]]:
        sessions = await store.sessions(options.user, limit=max(options.limit, 0), search=options.search)
        heads = await store.runs_by_id(options.user, [session.head for session in sessions if session.head])
        by_id = {run.id: run for run in heads}
        return [(session, by_id.get(session.head or "")) for session in sessions]

    sessions = reading.read(options, found)
    if options.json:
        for session, head in sessions:
            print(json_line({**reading.shown(session), "status": "idle" if head is None else head.status}))
        return 0
    rows = (
        (
            short(s.id, 60),
            short(s.title or "-", 60),
            "-" if head is None else reading.status_of(head),
            moment(s.updated_at),
        )
        for s, head in sessions
    )
    print(table(["session", "title", "newest run", "active"], rows))
    return 0


def show(options: argparse.Namespace) -> int:
    """Print one session and the newest of its history."""

    async def found(store: Store) -> tuple[Session, list[HistoryRow], list[Run]]:
        session = await store.session(options.user, options.session_id)
        if session is None:
            raise NotFound("session", options.session_id)
        rows = await store.rows(options.user, session.id, limit=max(options.limit, 1))
        return session, rows, await store.runs(options.user, session_id=session.id, limit=100)

    session, rows, runs = reading.read(options, found)
    if options.json:
        print(json_line({"session": reading.shown(session), "rows": reading.shown(rows), "runs": reading.shown(runs)}))
        return 0
    print(
        fields(
            [
                ("session", session.id),
                ("title", session.title),
                ("agent", session.agent),
                ("created", moment(session.created_at)),
                ("active", moment(session.updated_at)),
                ("parent", session.parent),
                ("runs", len(runs)),
            ]
        )
    )
    for row in rows_of(rows, session.id):
        print(f"\n{_who(row)}  {moment(row['timestamp'])}  {row['run_id'] or ''}".rstrip())
        for line in _said(row):
            print(f"  {line}")
    return 0


def _who(row: MessageRow) -> str:
    if row["role"] == "tool":
        return f"tool {short(row['tool_name'] or '', 60)}"
    return row["role"] if row["display_kind"] is None else f"{row['role']} ({row['display_kind']})"


def _said(row: MessageRow) -> list[str]:
    said = [short(row["content"], 2_000)] if row["content"] else []
    calls = row["tool_calls"] or []
    return [*said, *(f"-> {short(c['function']['name'], 60)} {short(c['function']['arguments'])}" for c in calls)]
