"""Fakes for testing agents, runners and servers.

Rule: everything is counted. Ids and times are the same in every run of a test, so whole streams compare equal, and what
a runner says is checked against the lifecycle as it is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from runstone.core.content import TextPart
from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Body,
    Event,
    InputReceived,
    InputSettled,
    ItemEnded,
    ItemStarted,
    RunContinued,
    RunCreated,
    RunPaused,
    RunStarted,
    TextDelta,
)
from runstone.core.items import Item, Message, ToolResult, user_message
from runstone.core.lifecycle import RunState
from runstone.core.runs import Decision, PendingApproval, RunRequest, Settings
from runstone.core.transcript import Transcript, pending_approval
from runstone.errors import NotFound
from runstone.runners.base import NATIVE, Capabilities, RunContext, Runner

START_TIME = 1_760_000_000.0


class ManualClock:
    """A clock that moves when told to. Call it for the time; `sleep` ends when `advance` has come far enough."""

    def __init__(self, now: float = START_TIME) -> None:
        self.now = now
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; whoever slept until then wakes."""
        self.now += seconds
        due = [future for at, future in self._sleepers if at <= self.now]
        self._sleepers = [(at, future) for at, future in self._sleepers if at > self.now]
        for future in due:
            if not future.done():
                future.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed on this clock."""
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future


class CountingIds:
    """Ids by prefix: `call_1`, `call_2`, `appr_1` ... Call it with the prefix."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, prefix: str) -> str:
        """The next id of that prefix."""
        count = self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}{count}"


def run_request(
    text: str = "hello",
    *,
    run_id: str = "run_1",
    session_id: str = "session_1",
    agent: str = "agent",
    history: Sequence[Item] = (),
    input: Sequence[Item] | None = None,
    settings: Settings | None = None,
    metadata: dict[str, Any] | None = None,
) -> RunRequest:
    """A request with one user message, or with `input`."""
    return RunRequest(
        run_id=run_id,
        session_id=session_id,
        agent=agent,
        history=list(history),
        input=[user_message("in1", text)] if input is None else list(input),
        settings=settings or Settings(),
        metadata=metadata or {},
    )


def events(bodies: Iterable[Body], *, first_seq: int = 1, at: float = START_TIME) -> list[Event]:
    """`bodies` with numbers: `seq` and `position` count from `first_seq`, a second lies between two."""
    return [Event(seq, seq, at + seq - 1, 1, body) for seq, body in enumerate(bodies, first_seq)]


def said(text: str, *, item_id: str = "i1", step: str = "s1", chunks: Sequence[str] | None = None) -> list[Body]:
    """A whole message: start, deltas (one unless `chunks`), end."""
    message = Message(item_id=item_id, role="assistant", parts=[TextPart(text=text)], step=step)
    deltas = [TextDelta(item_id=item_id, text=chunk) for chunk in (chunks or [text])]
    return [ItemStarted(item_id=item_id, kind="message", step=step), *deltas, ItemEnded(item=message)]


Decide = Callable[[ApprovalRequested], Decision | Awaitable[Decision]]


class FakeContext:
    """The engine as a runner sees it, in memory. An illegal body raises where it is emitted.

    `bodies` is what the runner said, in order, the engine's own (created, started, paused ...) left out. `decide`
    answers `decision`, `blobs` and `payload_fields` answer `blob` and `payload`; `wait_every` asks for a wait at each
    n-th body.
    """

    def __init__(
        self,
        request: RunRequest | None = None,
        *,
        decide: Decide | None = None,
        blobs: dict[str, bytes] | None = None,
        payload_fields: dict[str, Any] | None = None,
        wait_every: int = 0,
    ) -> None:
        request = request or run_request()
        self.run_id = request.run_id
        self.session_id = request.session_id
        self.attempt = request.attempt
        self.must_wait = False
        self.waits = 0
        self.bodies: list[Body] = []
        self.transcript = Transcript(request.run_id)
        self._decide = decide
        self._blobs = blobs or {}
        self._payload = payload_fields or {}
        self._wait_every = wait_every
        self._ids = CountingIds()
        self._seq = 0
        self._take(RunCreated(agent=request.agent, input=request.input))
        self._take(RunStarted())

    def _take(self, body: Body) -> None:
        self._seq += 1
        self.transcript.feed(Event(self._seq, self._seq, START_TIME + self._seq, self.attempt, body))

    @property
    def state(self) -> RunState:
        """The run's state after what was said."""
        return self.transcript.state

    @property
    def items(self) -> list[Item]:
        """What the run said and did, as history shows it."""
        return self.transcript.items

    @property
    def text(self) -> str:
        """The texts of the finished messages of the assistant joined."""
        return "".join(item.text for item in self.items if isinstance(item, Message) and item.role == "assistant")

    @property
    def is_closed(self) -> bool:
        """No item and no step is open."""
        return not self.state.open_items and not self.state.open_steps

    def of(self, kind: type[Body]) -> list[Any]:
        """The bodies of one type, in order."""
        return [body for body in self.bodies if isinstance(body, kind)]

    # -- RunContext

    def emit(self, body: Body) -> None:
        """Record `body`.

        Raises:
            LocalProtocolError: it may not come here.
        """
        self._take(body)
        self.bodies.append(body)
        self.must_wait = self._wait_every > 0 and len(self.bodies) % self._wait_every == 0

    async def wait(self) -> None:
        """Let others run."""
        self.waits += 1
        self.must_wait = False
        await asyncio.sleep(0)

    def item_id(self) -> str:
        """`i1`, `i2` ..."""
        return self._ids("i")

    def step_id(self) -> str:
        """`s1`, `s2` ..."""
        return self._ids("s")

    def call_id(self) -> str:
        """`call_1`, `call_2` ..."""
        return self._ids("call_")

    def approval_id(self) -> str:
        """`appr_1`, `appr_2` ..."""
        return self._ids("appr_")

    def open_text(self, item_id: str) -> str:
        """The deltas of an open item joined."""
        return self.state.open_items[item_id].text

    def open_calls(self) -> list[str]:
        """Ids of the finished calls that have no result yet."""
        return list(self.state.calls)

    def open_results(self) -> dict[str, str]:
        """Tools that began to run and gave no result: call id to result item id."""
        opened = [item.started for item in self.state.open_items.values()]
        return {body.call_id: body.item_id for body in opened if body.kind == "tool_result" and body.call_id}

    async def decision(self, approval_id: str) -> Decision:
        """What `decide` says, or never when there is no `decide`."""
        asked = self.state.approvals[approval_id]
        if self._decide is None:
            await asyncio.get_running_loop().create_future()
        assert self._decide is not None
        self._take(RunPaused(approvals=[approval_id]))
        answer = self._decide(asked)
        decision = await answer if isinstance(answer, Awaitable) else answer
        self._decided(decision)
        self._take(RunContinued())
        return decision

    @property
    def has_input(self) -> bool:
        """Whether `steer` brought something since the last `take_input`."""
        return bool(self.state.inputs)

    def take_input(self) -> list[Item]:
        """What `steer` brought since the last call."""
        taken: list[Item] = []
        for received in list(self.state.inputs.values()):
            self._take(InputSettled(input_id=received.input_id, outcome="delivered"))
            taken += received.content
        return taken

    async def blob(self, reference: str) -> bytes:
        """The bytes given at construction.

        Raises:
            NotFound: none were given under that reference.
        """
        if reference not in self._blobs:
            raise NotFound("file", reference)
        return self._blobs[reference]

    async def payload(self) -> dict[str, Any]:
        """The fields given at construction."""
        return self._payload

    # -- the other side

    def steer(self, text: str) -> None:
        """New input of the user for the run."""
        input_id = self._ids("input_")
        self._take(InputReceived(input_id=input_id, content=[user_message(input_id, text)]))

    def pause(self) -> dict[str, PendingApproval]:
        """End the leg as the engine does when `run` returns with approvals pending; what was asked, by id."""
        self._take(RunPaused(approvals=list(self.state.approvals)))
        return {id: pending_approval(asked) for id, asked in self.state.approvals.items()}

    def resume(self, decisions: Sequence[Decision]) -> None:
        """Begin the next leg as the engine does when decisions came."""
        for decision in decisions:
            self._decided(decision)
        self._take(RunContinued())

    def _decided(self, decision: Decision) -> None:
        self._take(
            ApprovalDecided(
                approval_id=decision.approval_id,
                decision=decision.decision,
                arguments=decision.arguments,
                value=decision.value,
            )
        )


def tool_results(context: FakeContext) -> list[ToolResult]:
    """The finished tool results of a run, in order."""
    return [item for item in context.items if isinstance(item, ToolResult)]


Script = Callable[[RunRequest, RunContext], Awaitable[None]]


class ScriptedRunner:
    """A runner that emits what it is told: the bodies, or whatever a function does with the request and the context.

    `requests` are those it was given, in order.
    """

    name = "scripted"

    def __init__(self, script: Sequence[Body] | Script, *, capabilities: Capabilities | None = None) -> None:
        self._script = script
        self.capabilities = capabilities or Capabilities(
            steer=NATIVE, approvals=NATIVE, durable_approvals=NATIVE, client_tools=NATIVE, models=NATIVE
        )
        self.requests: list[RunRequest] = []
        self.is_closed = False

    async def run(self, request: RunRequest, context: RunContext) -> None:
        """Emit the script, waiting where the context asks for it."""
        self.requests.append(request)
        if callable(self._script):
            await self._script(request, context)
            return
        for body in self._script:
            context.emit(body)
            if context.must_wait:
                await context.wait()

    async def close(self) -> None:
        """Remember that it was called."""
        self.is_closed = True


async def drive(
    runner: Runner,
    request: RunRequest | None = None,
    *,
    decide: Decide | None = None,
    blobs: dict[str, bytes] | None = None,
    payload_fields: dict[str, Any] | None = None,
    wait_every: int = 0,
) -> FakeContext:
    """Run `runner` once on a `FakeContext`, and the context after it."""
    request = request or run_request()
    context = FakeContext(request, decide=decide, blobs=blobs, payload_fields=payload_fields, wait_every=wait_every)
    await runner.run(request, context)
    return context
