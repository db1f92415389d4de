"""What a runner is, and what it is given.

A runner drives an agent and says what happens with `context.emit`. Rules:

- Nothing per run is kept on the runner: one runner serves many runs at once.
- `run` is called in a task of its own that is cancelled when the run is stopped; what is open then is closed by the engine.
- When `run` returns while approvals are pending, the run waits, and `run` is called again with the decisions.
- When `run` returns while calls for the client are open, the run is completed and its next turn brings the results.
- What `run` raises makes the run fail: a `RunnerError`'s message is shown to callers, anything else is not.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from runstone.core.events import Body
from runstone.core.items import Item
from runstone.core.runs import Decision, RunRequest

Level = Literal["native", "emulated", "none"]


class Capability(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether an agent can do something, by itself or with our help, and why not."""

    level: Level
    reason: str | None = None


NATIVE = Capability(level="native")
EMULATED = Capability(level="emulated")


def no(reason: str) -> Capability:
    """Not offered, because of `reason`."""
    return Capability(level="none", reason=reason)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can.

    `steer`: take new input while it runs. `approvals`: pause for a decision. `durable_approvals`: a pause survives a
    restart. `checkpoints`: go on after a crash where it was. `regenerate`: answer an earlier turn again, and begin a branch.
    `client_tools`: honour tools that the client declares. `models`: another model may be asked for by name;
    `model_names` are those it knows, empty when any name may be tried.
    """

    stop: Capability = NATIVE
    steer: Capability = no("the agent does not read its inbox")
    approvals: Capability = no("the agent does not ask for approvals")
    durable_approvals: Capability = no("the agent's pauses live in this process")
    checkpoints: Capability = no("the agent keeps nothing to go on from after a crash")
    regenerate: Capability = NATIVE
    client_tools: Capability = no("the agent does not use tools that the client declares")
    models: Capability = no("the agent chooses its model itself")
    model_names: list[str] = []


class RunContext(Protocol):
    """The engine, as a runner sees it during one call of `run`. To be used on the event loop's thread only."""

    run_id: str
    session_id: str
    attempt: int

    @property
    def must_wait(self) -> bool:
        """True when the runner has to `await wait()` before it emits more: far ahead of the log, or its slice is used."""
        ...

    def emit(self, body: Body) -> None:
        """Say that `body` happened. Returns at once; the order of calls is the order in the log.

        Raises:
            LocalProtocolError: it may not come here (core.lifecycle).
        """
        ...

    async def wait(self) -> None:
        """Let others run, and return when there is room for more events."""
        ...

    def item_id(self) -> str:
        """An id for the next item, counted in the run: `i1`, `i2` ..."""
        ...

    def step_id(self) -> str:
        """An id for the next step: `s1`, `s2` ..."""
        ...

    def call_id(self) -> str:
        """An id for a call whose framework gives none; unique in the session."""
        ...

    def approval_id(self) -> str:
        """An id for an approval; unique for the owner."""
        ...

    def open_text(self, item_id: str) -> str:
        """The deltas of an open item joined."""
        ...

    def open_calls(self) -> list[str]:
        """Ids of the finished calls that have no result yet."""
        ...

    def open_results(self) -> dict[str, str]:
        """Tools that began to run and gave no result, also in a call of `run` before a pause: call id to result item id."""
        ...

    async def decision(self, approval_id: str) -> Decision:
        """The answer to an approval that was asked for with `emit`; the run waits meanwhile."""
        ...

    @property
    def has_input(self) -> bool:
        """Whether `take_input` would give something. End what is being said before you take it."""
        ...

    def take_input(self) -> list[Item]:
        """New input of the user since the last call, in order; it counts as delivered here."""
        ...

    async def blob(self, reference: str) -> bytes:
        """The bytes behind the `blob` of a part.

        Raises:
            NotFound: this owner has no such bytes.
        """
        ...

    async def payload(self) -> dict[str, Any]:
        """The second names of the input, for user functions and hooks (runners.payload); attachments are extracted first."""
        ...


class Runner(Protocol):
    """An agent of some framework."""

    #: The framework in one word, as the start banner shows it.
    name: str
    capabilities: Capabilities

    async def run(self, request: RunRequest, context: RunContext) -> None:
        """Drive the agent for `request` until it has nothing more to say."""
        ...

    async def close(self) -> None:
        """Give back what the runner holds. Called once, when no run uses it."""
        ...
