"""The facts a run consists of.

Rule: runners and decoders make bodies; only the engine wraps a body into an `Event`. Field names here are the format of
the log: renaming or removing one needs a new version in serde.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from runstone.core.items import Executor, Item, ItemKind
from runstone.core.runs import ApprovalKind, DecisionWord, Outcome, RunFailure, Trigger, Usage


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    pass


class RunCreated(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="run_created"):
    """Always seq 1. `input`: the items that started the run, bytes by reference.

    `queued`: it waits for a run ahead of it. Its input then stands in history where the run begins, after all of that one.
    """

    agent: str
    input: list[Item]
    trigger: Trigger = "start"
    model: str | None = None
    continues: str | None = None
    queued: bool = False


class RunStarted(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="run_started"):
    """The agent is being driven for the first time."""


class RunPaused(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="run_paused"):
    """Approvals are pending and nothing else runs. Ends a leg."""

    approvals: list[str]


class RunContinued(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="run_continued"):
    """The agent goes on after a pause. Begins a leg."""


class RunEnded(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="run_ended"):
    """The one outcome; nothing follows it. `returned`: ids of steering input that was never delivered."""

    outcome: Outcome
    reason: str | None = None
    error: RunFailure | None = None
    usage: Usage | None = None
    returned: list[str] = []


class AttemptStarted(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="attempt_started"):
    """Recovery began the work again: what came after `discard_after_seq` no longer counts."""

    attempt: int
    reason: str
    discard_after_seq: int


class StepStarted(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="step_started"):
    """One model call begins. `branch`: the parallel branch of the agent it belongs to."""

    step: str
    author: str | None = None
    branch: str | None = None


class StepEnded(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="step_ended"):
    """The model call is over."""

    step: str
    finish_reason: str | None = None
    model: str | None = None
    usage: Usage | None = None


class ItemStarted(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="item_started"):
    """An item begins. A `tool_result` item starts when the tool starts to run."""

    item_id: str
    kind: ItemKind
    step: str | None = None
    call_id: str | None = None
    name: str | None = None
    executor: Executor | None = None
    author: str | None = None


class ItemEnded(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="item_ended"):
    """The item is finished, and this is what it is: it replaces the deltas where they differ."""

    item: Item


class ItemReplaced(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="item_replaced"):
    """What the open item is up to here; it goes on."""

    item: Item


class TextDelta(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="text_delta"):
    """More text of an open message."""

    item_id: str
    text: str


class ReasoningDelta(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="reasoning_delta"):
    """More text of an open reasoning item."""

    item_id: str
    text: str


class ArgumentsDelta(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="arguments_delta"):
    """More of the JSON text of an open tool call's arguments."""

    item_id: str
    text: str


class ToolProgress(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="tool_progress"):
    """What a running tool says before its one result."""

    call_id: str
    data: Any


class ApprovalRequested(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="approval_requested"):
    """Somebody has to decide. `arguments`: JSON text of what would run."""

    approval_id: str
    kind: ApprovalKind
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    prompt: str | None = None
    choices: list[str] | None = None
    schema: dict[str, Any] | None = None
    expires_at: float | None = None


class ApprovalDecided(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="approval_decided"):
    """The answer. `arguments` are what runs."""

    approval_id: str
    decision: DecisionWord
    arguments: str | None = None
    value: Any = None
    scope: str | None = None
    reason: str | None = None
    by: str | None = None


class InputReceived(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="input_received"):
    """Steering: new input for a run that is still going."""

    input_id: str
    content: list[Item]
    by: str | None = None


class InputSettled(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="input_settled"):
    """What became of the steering; the place of `delivered` is its place in history."""

    input_id: str
    outcome: Literal["delivered", "returned"]
    reason: str | None = None


class Custom(_Body, frozen=True, kw_only=True, omit_defaults=True, tag="custom"):
    """What a framework emits and no word here covers."""

    name: str
    data: Any


Body = (
    RunCreated
    | RunStarted
    | RunPaused
    | RunContinued
    | RunEnded
    | AttemptStarted
    | StepStarted
    | StepEnded
    | ItemStarted
    | ItemEnded
    | ItemReplaced
    | TextDelta
    | ReasoningDelta
    | ArgumentsDelta
    | ToolProgress
    | ApprovalRequested
    | ApprovalDecided
    | InputReceived
    | InputSettled
    | Custom
)
DELTAS = (TextDelta, ReasoningDelta, ArgumentsDelta)


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A body with its numbers. `seq`: 1, 2, 3 ... in the run; `position`: rising in the session; `at`: seconds UTC."""

    seq: int
    position: int
    at: float
    attempt: int
    body: Body
