"""Which event may follow which.

`RunState` is the state of one run as its events make it; `advance` takes the next body or refuses it. Two tables hold the
rules: in which phase a body may come (`PHASES`), and what it needs and changes (`_RULES`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from runstone.core.content import TextPart
from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    AttemptStarted,
    Body,
    Custom,
    InputReceived,
    InputSettled,
    ItemEnded,
    ItemReplaced,
    ItemStarted,
    ReasoningDelta,
    RunContinued,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    StepEnded,
    StepStarted,
    TextDelta,
    ToolProgress,
)
from runstone.core.items import ApprovalItem, FileItem, Item, Message, Reasoning, ToolCall, ToolResult
from runstone.errors import LocalProtocolError

Phase = Literal["new", "created", "active", "paused", "ended"]

PHASES: Final[dict[type, frozenset[Phase]]] = {
    RunCreated: frozenset({"new"}),
    RunStarted: frozenset({"created"}),
    RunPaused: frozenset({"active"}),
    RunContinued: frozenset({"paused"}),
    RunEnded: frozenset({"created", "active", "paused"}),
    AttemptStarted: frozenset({"active", "paused"}),
    StepStarted: frozenset({"active"}),
    StepEnded: frozenset({"active", "paused"}),
    # While paused only to close a call whose run will not go on (`closing`).
    ItemStarted: frozenset({"active", "paused"}),
    ItemEnded: frozenset({"active", "paused"}),
    ItemReplaced: frozenset({"active"}),
    TextDelta: frozenset({"active"}),
    ReasoningDelta: frozenset({"active"}),
    ArgumentsDelta: frozenset({"active"}),
    ToolProgress: frozenset({"active"}),
    ApprovalRequested: frozenset({"active"}),
    ApprovalDecided: frozenset({"active", "paused"}),
    InputReceived: frozenset({"created", "active", "paused"}),
    InputSettled: frozenset({"created", "active", "paused"}),
    Custom: frozenset({"active"}),
}
_KIND_OF_ITEM: Final[dict[type, str]] = {
    Message: "message",
    Reasoning: "reasoning",
    ToolCall: "tool_call",
    ToolResult: "tool_result",
    ApprovalItem: "approval",
    FileItem: "file",
}


MOST_PIECES: Final = 2_048


class OpenItem:
    """An item that has begun and not ended: how it began, and its text so far. `pieces` is the newest part of the text."""

    __slots__ = ("_text", "pieces", "started")

    def __init__(self, started: ItemStarted) -> None:
        self.started = started
        self.pieces: list[str] = []
        self._text = ""

    def join(self) -> None:
        """Make one text of the pieces. Done from time to time: many small strings weigh ten times their text."""
        if self.pieces:
            self._text += "".join(self.pieces)
            self.pieces.clear()

    def replace(self, text: str) -> None:
        """All of the text so far is `text`."""
        self._text = text
        self.pieces.clear()

    @property
    def text(self) -> str:
        """The deltas joined."""
        self.join()
        return self._text

    def item(self) -> Item:
        """The item as far as it goes; a message, reasoning or call is marked incomplete, a result is an error."""
        started = self.started
        common: dict[str, Any] = {"item_id": started.item_id, "step": started.step, "author": started.author}
        match started.kind:
            case "reasoning":
                return Reasoning(text=self.text, status="incomplete", **common)
            case "tool_call":
                return ToolCall(
                    call_id=started.call_id or "",
                    name=started.name or "",
                    arguments=self.text,
                    executor=started.executor or "server",
                    status="incomplete",
                    **common,
                )
            case "tool_result":
                return ToolResult(
                    call_id=started.call_id or "",
                    name=started.name,
                    output=[TextPart(text=NOT_FINISHED)],
                    is_error=True,
                    synthetic=True,
                    **common,
                )
            case "file":
                return FileItem(parts=[], **common)
            case _:
                parts = [TextPart(text=self.text)] if self.text else []
                return Message(role="assistant", parts=list(parts), status="incomplete", **common)


NOT_FINISHED: Final = "The run ended before this tool gave a result."


class RunState:
    """One run so far: phase, open steps and items, calls without results, pending approvals, unsettled input."""

    def __init__(self) -> None:
        self.phase: Phase = "new"
        self.created: RunCreated | None = None
        self.attempt = 1
        self.open_items: dict[str, OpenItem] = {}
        self.open_steps: dict[str, StepStarted] = {}
        self.calls: dict[str, ToolCall] = {}
        self.approvals: dict[str, ApprovalRequested] = {}
        self.inputs: dict[str, InputReceived] = {}
        self.ended: RunEnded | None = None
        self._seen_items: set[str] = set()
        self._seen_approvals: set[str] = set()

    def advance(self, body: Body) -> None:
        """Take `body` as the next fact.

        Raises:
            LocalProtocolError: it may not come here; the state is unchanged.
        """
        kind = type(body)
        if self.phase not in PHASES[kind]:
            raise LocalProtocolError(f"{kind.__name__} may not come while the run is {self.phase!r}")
        rule = _RULES.get(kind)
        if rule is not None:
            rule(self, body)

    def advance_delta(self, item_id: str, text: str, kind: str) -> None:
        """Take one more delta of an open item of `kind`: what `advance` does for the three deltas, without its look-ups.

        Raises:
            LocalProtocolError: it may not come here; the state is unchanged.
        """
        opened = self.open_items.get(item_id)
        if opened is None or opened.started.kind != kind or self.phase != "active":
            raise LocalProtocolError(f"no open {kind} has the id {item_id!r} while the run is {self.phase!r}")
        pieces = opened.pieces
        pieces.append(text)
        if len(pieces) >= MOST_PIECES:
            opened.join()

    def advance_all(self, bodies: Iterable[Body]) -> None:
        """Take each of `bodies` in order."""
        for body in bodies:
            self.advance(body)

    def has_asked(self, approval_id: str) -> bool:
        """Whether the run asked for this approval, decided or not."""
        return approval_id in self._seen_approvals

    # -- the run

    def _created(self, body: RunCreated) -> None:
        self.phase = "created"
        self.created = body

    def _active(self, body: Body) -> None:
        self.phase = "active"

    def _paused(self, body: RunPaused) -> None:
        if not body.approvals or any(id not in self.approvals for id in body.approvals):
            raise LocalProtocolError(f"run_paused names {body.approvals!r}; pending are {list(self.approvals)!r}")
        self.phase = "paused"

    def _ended(self, body: RunEnded) -> None:
        if self.open_items or self.open_steps:
            left = [*self.open_items, *self.open_steps]
            raise LocalProtocolError(f"run_ended while {left!r} are open")
        if self.approvals or self.inputs:
            raise LocalProtocolError("run_ended while approvals are pending or input is not settled")
        self.phase = "ended"
        self.ended = body

    def _attempt_started(self, body: AttemptStarted) -> None:
        if body.attempt <= self.attempt:
            raise LocalProtocolError(f"attempt {body.attempt} does not follow attempt {self.attempt}")
        self.attempt = body.attempt
        self.open_items.clear()
        self.open_steps.clear()
        self.calls.clear()
        self.approvals.clear()
        self.phase = "active"

    # -- steps and items

    def _step_started(self, body: StepStarted) -> None:
        if body.step in self.open_steps:
            raise LocalProtocolError(f"step {body.step!r} is open already")
        self.open_steps[body.step] = body

    def _step_ended(self, body: StepEnded) -> None:
        if self.open_steps.pop(body.step, None) is None:
            raise LocalProtocolError(f"step {body.step!r} is not open")

    def _item_started(self, body: ItemStarted) -> None:
        if body.item_id in self._seen_items:
            raise LocalProtocolError(f"item {body.item_id!r} was there before")
        if body.kind in ("tool_call", "tool_result") and not body.call_id:
            raise LocalProtocolError(f"{body.kind} {body.item_id!r} has no call id")
        if body.kind == "tool_result" and body.call_id not in self.calls:
            raise LocalProtocolError(f"no finished call without a result has the id {body.call_id!r}")
        self._seen_items.add(body.item_id)
        self.open_items[body.item_id] = OpenItem(body)

    def _item_ended(self, body: ItemEnded) -> None:
        item = body.item
        opened = self.open_items.get(item.item_id)
        if opened is None or opened.started.kind != _KIND_OF_ITEM[type(item)]:
            raise LocalProtocolError(f"no open {_KIND_OF_ITEM[type(item)]} has the id {item.item_id!r}")
        del self.open_items[item.item_id]
        if isinstance(item, ToolCall):
            self.calls[item.call_id] = item
        elif isinstance(item, ToolResult):
            self.calls.pop(item.call_id, None)

    def _item_replaced(self, body: ItemReplaced) -> None:
        opened = self.open_items.get(body.item.item_id)
        if opened is None:
            raise LocalProtocolError(f"item {body.item.item_id!r} is not open")
        item = body.item
        opened.replace(item.arguments if isinstance(item, ToolCall) else getattr(item, "text", ""))

    def _text(self, body: TextDelta) -> None:
        self.advance_delta(body.item_id, body.text, "message")

    def _reasoning(self, body: ReasoningDelta) -> None:
        self.advance_delta(body.item_id, body.text, "reasoning")

    def _arguments(self, body: ArgumentsDelta) -> None:
        self.advance_delta(body.item_id, body.text, "tool_call")

    # -- approvals and steering

    def _approval_requested(self, body: ApprovalRequested) -> None:
        if body.approval_id in self._seen_approvals:
            raise LocalProtocolError(f"approval {body.approval_id!r} was there before")
        self._seen_approvals.add(body.approval_id)
        self.approvals[body.approval_id] = body

    def _approval_decided(self, body: ApprovalDecided) -> None:
        if self.approvals.pop(body.approval_id, None) is None:
            raise LocalProtocolError(f"approval {body.approval_id!r} is not pending")

    def _input_received(self, body: InputReceived) -> None:
        if body.input_id in self.inputs:
            raise LocalProtocolError(f"input {body.input_id!r} was there before")
        self.inputs[body.input_id] = body

    def _input_settled(self, body: InputSettled) -> None:
        if self.inputs.pop(body.input_id, None) is None:
            raise LocalProtocolError(f"input {body.input_id!r} is not waiting to be settled")


#: What a body needs and changes; a body without a row does neither. No row is bound to a state: it would be a cycle, and
#: every run that ended would stay until the next collection.
_RULES: Final[dict[type, Callable[[RunState, Any], None]]] = {
    RunCreated: RunState._created,
    RunStarted: RunState._active,
    RunPaused: RunState._paused,
    RunContinued: RunState._active,
    RunEnded: RunState._ended,
    AttemptStarted: RunState._attempt_started,
    StepStarted: RunState._step_started,
    StepEnded: RunState._step_ended,
    ItemStarted: RunState._item_started,
    ItemEnded: RunState._item_ended,
    ItemReplaced: RunState._item_replaced,
    TextDelta: RunState._text,
    ReasoningDelta: RunState._reasoning,
    ArgumentsDelta: RunState._arguments,
    ApprovalRequested: RunState._approval_requested,
    ApprovalDecided: RunState._approval_decided,
    InputReceived: RunState._input_received,
    InputSettled: RunState._input_settled,
}


def closing(state: RunState, *, approvals: Literal["withdrawn", "expired"] = "withdrawn") -> list[Body]:
    """What has to be said before `run_ended` so that nothing stays open, in a legal order.

    Open items end as far as they go; each server-run call without a result gets a synthetic error result, so that the next
    turn's model input is well formed; pending approvals are withdrawn; unsettled input is returned.
    """
    bodies: list[Body] = []
    calls = dict(state.calls)
    for opened in list(state.open_items.values()):
        item = opened.item()
        bodies.append(ItemEnded(item=item))
        if isinstance(item, ToolCall):
            calls[item.call_id] = item
        elif isinstance(item, ToolResult):
            calls.pop(item.call_id, None)
    for call in calls.values():
        if call.executor == "server":
            bodies += synthetic_result(call)
    bodies += [StepEnded(step=step) for step in state.open_steps]
    bodies += [ApprovalDecided(approval_id=id, decision=approvals) for id in state.approvals]
    bodies += [InputSettled(input_id=id, outcome="returned", reason="run_ended") for id in state.inputs]
    return bodies


def synthetic_result(call: ToolCall, text: str = NOT_FINISHED) -> list[Body]:
    """A result for a call that no tool will answer."""
    item_id = f"{call.item_id}.result"
    return [
        ItemStarted(item_id=item_id, kind="tool_result", call_id=call.call_id, name=call.name, step=call.step),
        ItemEnded(
            item=ToolResult(
                item_id=item_id,
                call_id=call.call_id,
                name=call.name,
                output=[TextPart(text=text)],
                is_error=True,
                synthetic=True,
                step=call.step,
            )
        ),
    ]
