"""Runs, what starts one, what may be asked of one, and how one ends.

Times are float seconds since 1970, UTC.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from runstone.core.items import Item

Outcome = Literal["completed", "failed", "cancelled", "interrupted"]
RunStatus = Literal["queued", "running", "waiting", "completed", "failed", "cancelled", "interrupted"]
SessionStatus = Literal["idle", "running", "error", "unknown"]
Trigger = Literal["start", "regenerate", "steer"]
BusyPolicy = Literal["reject", "queue", "steer", "stop"]
DisconnectPolicy = Literal["continue", "stop"]
RecoveryPolicy = Literal["interrupted", "resume", "retry"]
ApprovalKind = Literal["confirm", "input", "tool_output"]
DecisionWord = Literal["approved", "denied", "answered", "expired", "withdrawn"]
OUTCOMES = frozenset({"completed", "failed", "cancelled", "interrupted"})


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens as the model's provider counted them; None where nobody said."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def total(self) -> int | None:
        """All tokens: as counted, else the sum of input and output; None when one of them is not known."""
        if self.total_tokens is not None or self.input_tokens is None or self.output_tokens is None:
            return self.total_tokens
        return self.input_tokens + self.output_tokens

    @property
    def _has_total(self) -> bool:
        return self.total_tokens is not None

    def plus(self, other: Usage) -> Usage:
        """The sum, field by field; a field that nobody said stays None, and a total that one side did not say is its sum."""

        def add(a: int | None, b: int | None) -> int | None:
            return b if a is None else a if b is None else a + b

        return Usage(
            input_tokens=add(self.input_tokens, other.input_tokens),
            output_tokens=add(self.output_tokens, other.output_tokens),
            total_tokens=add(self.total, other.total) if self._has_total or other._has_total else None,
            cached_tokens=add(self.cached_tokens, other.cached_tokens),
            reasoning_tokens=add(self.reasoning_tokens, other.reasoning_tokens),
        )


class RunFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run failed or was interrupted, in words fit for any caller."""

    code: str
    message: str


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function tool that the client declared and will run itself; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request asks of the agent beside its input. Absent means the agent's own choice."""

    model: str | None = None
    instructions: str | None = None
    model_options: dict[str, Any] = {}
    model_metadata: dict[str, Any] = {}
    tools: list[ToolSpec] = []
    tool_choice: Any = None
    user: str | None = None


class Policies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the run behaves towards others."""

    disconnect: DisconnectPolicy = "continue"
    recovery: RecoveryPolicy = "interrupted"


class Leg(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stretch of a run between pauses; k counts from 0. `first_seq` is its first event, `echo` what its request said.

    `echo` maps a protocol's name to the values its encoder needs to answer this leg's request.
    """

    first_seq: int
    created_at: float
    echo: dict[str, Any] = {}


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for a decision that has none yet."""

    approval_id: str
    kind: ApprovalKind
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    prompt: str | None = None
    choices: list[str] | None = None
    schema: dict[str, Any] | None = None
    expires_at: float | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer to an approval. `arguments` (JSON text), when given, replace the asked ones and are what runs."""

    approval_id: str
    decision: DecisionWord
    arguments: str | None = None
    value: Any = None
    scope: str | None = None
    reason: str | None = None
    by: str | None = None
    native: Any = None


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of an agent, from start to exactly one outcome.

    `turn` names the place in the session that it answers, `continues` the run before it in its chain. `last_seq` is exact
    once the run has ended and only a lower bound before. `encoder_version` fixes how its events become frames.
    `decided`: answers that the runner has not been given yet.
    """

    id: str
    owner: str
    session_id: str
    agent: str
    turn: str
    created_at: float
    status: RunStatus = "queued"
    trigger: Trigger = "start"
    continues: str | None = None
    surface: str | None = None
    model: str | None = None
    settings: Settings = Settings()
    policies: Policies = Policies()
    metadata: dict[str, Any] = {}
    store: bool = True
    background: bool = False
    started_at: float | None = None
    ended_at: float | None = None
    reason: str | None = None
    error: RunFailure | None = None
    usage: Usage | None = None
    attempt: int = 1
    last_seq: int = 0
    first_position: int = 0
    legs: list[Leg] = []
    approvals: list[PendingApproval] = []
    decided: list[Decision] = []
    encoder_version: int = 1
    compacted: bool = False

    @property
    def outcome(self) -> Outcome | None:
        """Its outcome, None while it has none."""
        return self.status if self.status in OUTCOMES else None  # type: ignore[return-value]

    @property
    def is_active(self) -> bool:
        """Queued or running: what makes a session busy."""
        return self.status in ("queued", "running")


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Turns that share memory. `head` is the newest run of the chain it shows. `hidden`: made for a start that named none."""

    id: str
    owner: str
    agent: str
    created_at: float
    updated_at: float
    title: str | None = None
    metadata: dict[str, Any] = {}
    head: str | None = None
    hidden: bool = False
    parent: str | None = None


def session_status(head: Run | None) -> SessionStatus:
    """The status of a session by the newest run that it shows; None when it has none.

    A run that waits for a decision leaves its session idle: the next start is not refused.
    """
    if head is None:
        return "idle"
    if head.is_active:
        return "running"
    return "error" if head.status in ("failed", "interrupted") else "idle"


def backend_status(head: Run | None) -> str:
    """Our finer word for it: the run's status, or `idle`."""
    return "idle" if head is None else head.status


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner is given. `history`: the chain before this turn, oldest first; `input`: this turn's items.

    `owner` and `run_id` together name the run; a run id alone may be another owner's too.
    `decisions` is empty on the first call; when a paused run goes on they are the answers, and `history` and `input` are as
    before. `transcript` is what this run has said so far (empty on the first call of the first attempt).
    """

    run_id: str
    session_id: str
    agent: str
    history: list[Item]
    input: list[Item]
    settings: Settings = Settings()
    metadata: dict[str, Any] = {}
    attempt: int = 1
    decisions: list[Decision] = []
    transcript: list[Item] = []
    asked: dict[str, PendingApproval] = {}
    owner: str = "local"
