"""What a runner is told of the conversation: the chain before the turn and the turn's input, well formed."""

from __future__ import annotations

from runstone.core.content import FilePart, ImagePart, TextPart
from runstone.core.events import RunCreated
from runstone.core.items import ApprovalItem, Item, Message, ToolCall, ToolResult
from runstone.core.runs import PendingApproval, Run, RunRequest
from runstone.core.transcript import HistoryRow
from runstone.storage.base import RunStore

NOT_ANSWERED = "No result was given for this call."


async def request_of(
    store: RunStore, run: Run, created: RunCreated, *, is_first_call: bool, is_new_session: bool = False
) -> RunRequest:
    """What the runner of a run is given now.

    `is_first_call`: the run has said nothing yet. `is_new_session`: nothing was said before it. What is known need not be read.
    """
    rows = [] if is_first_call else await store.run_rows(run.owner, run.id)
    before = [] if is_new_session else await store.chain_rows(run.owner, run.session_id, run.continues)
    history, input_items = well_formed(items_of(before), created.input)
    return RunRequest(
        run_id=run.id,
        session_id=run.session_id,
        agent=run.agent,
        history=history,
        input=input_items,
        settings=run.settings,
        metadata=run.metadata,
        owner=run.owner,
        attempt=run.attempt,
        decisions=run.decided,
        transcript=items_of([row for row in rows if row.seq > 1]),
        asked={row.item.approval_id: _asked(row.item) for row in rows if isinstance(row.item, ApprovalItem)},
    )


def has_attachments(items: list[Item]) -> bool:
    """Whether a message among `items` has an image or a file."""
    return any(
        isinstance(part, (ImagePart, FilePart)) for item in items if isinstance(item, Message) for part in item.parts
    )


def items_of(rows: list[HistoryRow]) -> list[Item]:
    """The rows' items, approvals left out: a model has no word for them."""
    return [row.item for row in rows if not isinstance(row.item, ApprovalItem)]


def well_formed(history: list[Item], input_items: list[Item]) -> tuple[list[Item], list[Item]]:
    """Both such that every call has exactly one result right after the calls it was made with, and no result is alone.

    A missing result becomes an error result (providers refuse a conversation with an open call), unless the input brings it.
    """
    given = {item.call_id for item in input_items if isinstance(item, ToolResult)}
    told, _ = _settled(history, set(), leave_open=given)
    answered = {item.call_id for item in told if isinstance(item, ToolResult)}
    open_calls = {item.call_id for item in told if isinstance(item, ToolCall)} - answered
    return told, _settled(input_items, open_calls, leave_open=set())[0]


def _settled(items: list[Item], open_calls: set[str], *, leave_open: set[str]) -> tuple[list[Item], set[str]]:
    results = {item.call_id: item for item in items if isinstance(item, ToolResult)}
    if not results and not any(isinstance(item, ToolCall) for item in items):
        return items, open_calls
    told: list[Item] = []
    due: list[ToolCall] = []
    seen: set[str] = set()
    for item in items:
        if isinstance(item, ToolCall):
            if item.call_id not in seen:
                seen.add(item.call_id)
                told.append(item)
                due.append(item)
            continue
        told += _results(due, results, leave_open)
        due = []
        if not isinstance(item, ToolResult) or item.call_id in open_calls:
            told.append(item)
    return [*told, *_results(due, results, leave_open)], open_calls


def _results(due: list[ToolCall], results: dict[str, ToolResult], leave_open: set[str]) -> list[Item]:
    found: list[Item] = []
    for call in due:
        result = results.get(call.call_id)
        if result is not None:
            found.append(result)
        elif call.call_id not in leave_open:
            found.append(_missing(call))
    return found


def _missing(call: ToolCall) -> ToolResult:
    return ToolResult(
        item_id=f"{call.item_id}.result",
        call_id=call.call_id,
        name=call.name,
        output=[TextPart(text=NOT_ANSWERED)],
        is_error=True,
        synthetic=True,
    )


def _asked(item: ApprovalItem) -> PendingApproval:
    return PendingApproval(
        approval_id=item.approval_id,
        kind=item.approval_kind,
        call_id=item.call_id,
        name=item.name,
        arguments=item.arguments,
        prompt=item.prompt,
        choices=item.choices,
    )
