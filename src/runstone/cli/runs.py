"""`runstone runs`: look at runs in the database; follow and stop those of a server."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from runstone.cli import asking, reading
from runstone.cli.printing import fields, json_line, moment, plain, short, table
from runstone.cli.timeline import Timeline, timeline
from runstone.core.items import Message
from runstone.core.runs import Run, RunStatus
from runstone.core.transcript import HistoryRow
from runstone.protocols.native.encode import native_event
from runstone.storage.base import Store


def add_to(commands: Any) -> None:  # noqa: ANN401
    """Add the commands to the grammar."""
    group = commands.add_parser("runs", help="look at runs", description="Look at runs, follow and stop them.")
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    lists = actions.add_parser("list", help="runs, newest first", description="Runs in the database, newest first.")
    lists.add_argument("--session", metavar="ID", help="only of this session")
    lists.add_argument(
        "--status", choices=get_args(RunStatus), action="append", help="only with this one; repeat for more"
    )
    lists.add_argument("--limit", type=int, default=20, help="how many (20)")
    lists.set_defaults(run=list_runs)
    reading.add_options(lists)
    for name, run, text in (
        ("show", show, "one run: what it is, what it said, what it waits for"),
        ("replay", replay, "a run's events as a timeline"),
    ):
        reads = actions.add_parser(name, help=text, description=f"In the database: {text}.")
        reads.add_argument("run_id", metavar="RUN")
        reads.set_defaults(run=run)
        reading.add_options(reads)
    follows = actions.add_parser(
        "follow", help="a run's events as they come", description="On a server: a run's events as they come."
    )
    follows.add_argument("run_id", metavar="RUN")
    follows.add_argument("--after", metavar="EVENT", help="begin after this event")
    follows.set_defaults(run=follow)
    stops = actions.add_parser("stop", help="ask a run to end", description="On a server: ask a run to end.")
    stops.add_argument("run_id", metavar="RUN")
    stops.add_argument("--reason", help="kept with the outcome")
    stops.set_defaults(run=stop)
    for command in (follows, stops):
        asking.add_options(command)


def list_runs(options: argparse.Namespace) -> int:
    """Print runs, newest first."""

    async def found(store: Store) -> list[Run]:
        return await store.runs(
            options.user, session_id=options.session, statuses=options.status, limit=max(options.limit, 0)
        )

    runs = reading.read(options, found)
    if options.json:
        for run in runs:
            print(json_line(run))
    else:
        head = ["run", "session", "agent", "status", "created", "seconds"]
        print(table(head, ([*_row(run)] for run in runs)))
    return 0


def _row(run: Run) -> tuple[str, ...]:
    seconds = "-" if run.ended_at is None else f"{run.ended_at - run.created_at:.1f}"
    names = (run.id, plain(run.session_id), plain(run.agent), plain(reading.status_of(run)))
    return (*names, moment(run.created_at), seconds)


def show(options: argparse.Namespace) -> int:
    """Print one run."""

    async def found(store: Store) -> tuple[Run, list[HistoryRow]]:
        run = await reading.run_of(store, options.user, options.run_id)
        return run, await store.run_rows(options.user, run.id)

    run, rows = reading.read(options, found)
    if options.json:
        print(json_line({"run": reading.shown(run), "rows": reading.shown(rows)}))
        return 0
    error = None if run.error is None else f"{run.error.code}: {run.error.message}"
    waits = ", ".join(asked.approval_id for asked in run.approvals) or None
    print(
        fields(
            [
                ("run", run.id),
                ("session", run.session_id),
                ("agent", run.agent),
                ("model", run.model),
                ("status", reading.status_of(run)),
                ("error", error),
                ("waits for", waits),
                ("created", moment(run.created_at)),
                ("ended", None if run.ended_at is None else moment(run.ended_at)),
                ("attempt", run.attempt if run.attempt > 1 else None),
                ("continues", run.continues),
                ("turn", None if run.turn == run.id else run.turn),
                ("usage", None if run.usage is None else json_line(run.usage)),
                ("events", run.last_seq),
            ]
        )
    )
    for row in rows:
        if isinstance(row.item, Message):
            print(f"\n{row.item.role}:\n  {short(row.item.text, 2_000)}")
    return 0


def replay(options: argparse.Namespace) -> int:
    """Print a run's events as they happened."""

    async def found(store: Store) -> list[dict[str, Any]]:
        run = await reading.run_of(store, options.user, options.run_id)
        return [native_event(run.id, event) for event in await reading.events_of(store, run)]

    events = reading.read(options, found)
    for line in map(json_line, events) if options.json else timeline(events):
        print(line)
    return 0


def follow(options: argparse.Namespace) -> int:
    """Print a run's events as they come, to its end; 0 when it completed, 1 when it did not."""
    server = asking.Server(options.url, options.key)
    shown, completed = Timeline(), False
    path = ("v1", "runs", options.run_id, "events")
    for event in server.events(*path, query="?format=native", after=options.after):
        completed = event["type"] == "run_ended" and event["outcome"] == "completed"
        for line in [json_line(event)] if options.json else shown.lines(event):
            print(line, flush=True)
    return 0 if completed else 1


def stop(options: argparse.Namespace) -> int:
    """Ask a run to end, and print what it is then."""
    body = {} if options.reason is None else {"reason": options.reason}
    answer = asking.Server(options.url, options.key).post("v1", "runs", options.run_id, "stop", body=body)
    print(json_line(answer) if options.json else f"{answer['run_id']}  {answer['status']}")
    return 0
