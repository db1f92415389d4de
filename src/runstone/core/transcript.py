"""Events folded into items; pages of history.

Rule: live view, history rows and non-stream bodies are this one fold. A row's place is the event that finished it, so rows
only ever come at the end, and paging is stable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptStarted,
    Event,
    InputSettled,
    ItemEnded,
    RunCreated,
    RunEnded,
    RunStarted,
)
from runstone.core.items import ApprovalItem, Item
from runstone.core.lifecycle import RunState
from runstone.core.runs import PendingApproval, Run, RunStatus

Origin = Literal["run", "client", "fork"]


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item in its session's history, ordered by (`position`, `ordinal`).

    `seq` is the event of `run_id` that has its item, 0 when no run made it; `is_input`: it came from the user of that run.
    """

    position: int
    ordinal: int
    at: float
    item: Item
    run_id: str | None = None
    seq: int = 0
    is_input: bool = False
    origin: Origin = "run"


class RowChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an event does to the rows of its run: rows that come, a row that is replaced, or all after a seq that go."""

    added: list[HistoryRow] = []
    replaced: Item | None = None
    discard_after_seq: int | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a session's history, oldest first, with the runs that its rows belong to.

    `before` is the cursor of the page before this one, None when this is the first. `active` is the run that is going on and
    the newest event whose effect the rows contain, None when the session is idle. `open_items` are that run's items that are
    not finished, as they stood at that event.
    """

    rows: list[HistoryRow]
    runs: list[Run]
    before: str | None = None
    active: ActiveRun | None = None
    open_items: list[Item] = []

    @property
    def has_more(self) -> bool:
        """Whether older rows exist."""
        return self.before is not None


class ActiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run without an outcome; `seq` is the cursor to read on from."""

    run_id: str
    status: RunStatus
    seq: int


def row_change(run_id: str, event: Event, state: RunState) -> RowChange | None:
    """What `event` does to the history rows; None when nothing. `state` is the run's state before the event."""
    match event.body:
        case RunCreated(input=items, queued=False):
            return RowChange(added=_rows(run_id, event, items, is_input=True))
        case RunStarted() | RunEnded() if (
            state.phase == "created" and state.created is not None and state.created.queued
        ):
            rows = _rows(run_id, event, state.created.input, is_input=True)
            return RowChange(added=[msgspec.structs.replace(row, seq=1) for row in rows])
        case ItemEnded(item=item):
            return RowChange(added=_rows(run_id, event, [item]))
        case InputSettled(outcome="delivered", input_id=input_id):
            received = state.inputs.get(input_id)
            return RowChange(added=_rows(run_id, event, received.content, is_input=True)) if received else None
        case ApprovalRequested():
            return RowChange(added=_rows(run_id, event, [approval_item(event.body)]))
        case ApprovalDecided(approval_id=approval_id):
            asked = state.approvals.get(approval_id)
            return RowChange(replaced=approval_item(asked, event.body)) if asked else None
        case AttemptStarted(discard_after_seq=seq):
            return RowChange(discard_after_seq=seq)
        case _:
            return None


def _rows(run_id: str, event: Event, items: Iterable[Item], *, is_input: bool = False) -> list[HistoryRow]:
    return [
        HistoryRow(
            position=event.position, ordinal=n, at=event.at, item=item, run_id=run_id, seq=event.seq, is_input=is_input
        )
        for n, item in enumerate(items)
    ]


def approval_item(asked: ApprovalRequested, decided: ApprovalDecided | None = None) -> ApprovalItem:
    """The history item of an approval, with its decision once there is one."""
    return ApprovalItem(
        item_id=asked.approval_id,
        approval_id=asked.approval_id,
        approval_kind=asked.kind,
        call_id=asked.call_id,
        name=asked.name,
        arguments=decided.arguments if decided and decided.arguments is not None else asked.arguments,
        prompt=asked.prompt,
        choices=asked.choices,
        decision=decided.decision if decided else None,
        value=decided.value if decided else None,
        reason=decided.reason if decided else None,
    )


def pending_approval(asked: ApprovalRequested) -> PendingApproval:
    """The request as the record of its run has it."""
    return PendingApproval(
        approval_id=asked.approval_id,
        kind=asked.kind,
        call_id=asked.call_id,
        name=asked.name,
        arguments=asked.arguments,
        prompt=asked.prompt,
        choices=asked.choices,
        schema=asked.schema,
        expires_at=asked.expires_at,
    )


class Transcript:
    """The fold of one run's events. Feed them in order; `rows` and `open_items` are right after each."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.state = RunState()
        self.rows: list[HistoryRow] = []
        self.last_seq = 0

    def feed(self, event: Event) -> None:
        """Take the next event.

        Raises:
            LocalProtocolError: it may not come here.
        """
        change = row_change(self.run_id, event, self.state)
        self.state.advance(event.body)
        self.last_seq = event.seq
        if change is not None:
            self.rows = apply_change(self.rows, change)

    @property
    def items(self) -> list[Item]:
        """What the run said and did, its input not included, finished items only, in order."""
        return [row.item for row in self.rows if not row.is_input or row.seq > 1]

    @property
    def open_items(self) -> list[Item]:
        """The items that are not finished, as they stand."""
        return [opened.item() for opened in self.state.open_items.values()]


def apply_change(rows: list[HistoryRow], change: RowChange) -> list[HistoryRow]:
    """`rows` after `change`."""
    if change.discard_after_seq is not None:
        rows = [row for row in rows if row.seq <= change.discard_after_seq]
    if change.replaced is not None:
        new = change.replaced
        rows = [
            msgspec.structs.replace(row, item=new)
            if type(row.item) is type(new) and row.item.item_id == new.item_id
            else row
            for row in rows
        ]
    return [*rows, *change.added] if change.added else rows


def fold(run_id: str, events: Iterable[Event]) -> Transcript:
    """The transcript of `events`, which begin with the run's first."""
    transcript = Transcript(run_id)
    for event in events:
        transcript.feed(event)
    return transcript
