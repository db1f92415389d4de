"""What a runner is given: the run's recording, ids, decisions, input, bytes.

One context serves one call of `Runner.run`. Its methods belong to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptStarted,
    Body,
    InputReceived,
    InputSettled,
    RunContinued,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    StepEnded,
    TextDelta,
)
from runstone.core.items import Item
from runstone.core.runs import Decision, Usage
from runstone.engine.pauses import continue_run, pause
from runstone.engine.recording import Recording
from runstone.errors import LocalProtocolError

_OF_THE_ENGINE: Final = frozenset(
    {
        RunCreated,
        RunStarted,
        RunPaused,
        RunContinued,
        RunEnded,
        AttemptStarted,
        ApprovalDecided,
        InputReceived,
        InputSettled,
    }
)
#: How often the loop goes round before a run whose agent only waits for decisions counts as paused: a parallel branch of the
#: agent that can still say something has had its turn by then.
_QUIET_ROUNDS = 3


class EngineContext:
    """The engine, as one call of a runner sees it."""

    def __init__(
        self,
        recording: Recording,
        *,
        approval_timeout: float,
        load_blob: Callable[[str], Awaitable[bytes]],
        load_payload: Callable[[EngineContext], Awaitable[dict[str, Any]]],
    ) -> None:
        self.run_id = recording.run.id
        self.session_id = recording.run.session_id
        self.attempt = recording.run.attempt
        self.usage: Usage | None = recording.run.usage
        self.finish_reason: str | None = None
        self._recording = recording
        self._approval_timeout = approval_timeout
        self._load_blob = load_blob
        self._load_payload = load_payload
        self._payload: dict[str, Any] | None = None
        self.is_stopping = False
        self._is_disowned = False
        self._is_looking = False
        self._waiting: dict[str, asyncio.Future[Decision]] = {}
        self._numbers = {
            "i": recording.last_seq,
            "s": recording.last_seq,
            "c": recording.last_seq,
            "a": recording.last_seq,
        }

    # -- saying what happens

    @property
    def must_wait(self) -> bool:
        """Whether the runner has to `await wait()` before it emits more."""
        return self._recording.must_wait or self._is_disowned

    def emit(self, body: Body) -> None:
        """Say that `body` happened."""
        kind = type(body)
        recording = self._recording
        if kind is TextDelta and recording.state.phase == "active" and not (self._waiting or self._is_disowned):
            recording.emit(body)
            return
        if kind is StepEnded:
            self._note(body)  # type: ignore[arg-type]
        elif kind is ApprovalRequested:
            body = self._with_expiry(body)  # type: ignore[arg-type]
        elif kind in _OF_THE_ENGINE:
            raise LocalProtocolError(f"{kind.__name__} is for the engine to say, not for a runner")
        self._say(body)

    def _say(self, body: Body) -> None:
        recording = self._recording
        if self._is_disowned:
            recording.dropped += 1
            return
        if recording.state.phase == "paused" and not recording.is_sealed:
            continue_run(recording)
        recording.emit(body)
        if self._waiting:
            self._look_for_pause()

    def disown(self) -> None:
        """Drop, and count, whatever the agent still says."""
        self._is_disowned = True

    async def wait(self) -> None:
        """Let others run, and return when there is room for more events."""
        await self._recording.wait()
        if self._is_disowned:
            # It ignored one cancellation; without another it would go on for nobody, and may never let others run.
            raise asyncio.CancelledError

    def _with_expiry(self, asked: ApprovalRequested) -> ApprovalRequested:
        if asked.expires_at is not None:
            return asked
        return msgspec.structs.replace(asked, expires_at=self._recording.now() + self._approval_timeout)

    def _note(self, step: StepEnded) -> None:
        if step.usage is not None:
            self.usage = step.usage if self.usage is None else self.usage.plus(step.usage)
        if step.finish_reason is not None:
            self.finish_reason = step.finish_reason

    # -- ids, counted from the events before this call, so that they repeat in no later call and no later attempt

    def _number(self, kind: str) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind]

    def item_id(self) -> str:
        """An id for the next item."""
        return f"i{self._number('i')}"

    def step_id(self) -> str:
        """An id for the next step."""
        return f"s{self._number('s')}"

    def call_id(self) -> str:
        """An id for a call whose framework gives none."""
        return f"call_{self.run_id.removeprefix('run_')}_{self._number('c')}"

    def approval_id(self) -> str:
        """An id for an approval."""
        return f"apr_{self.run_id.removeprefix('run_')}_{self._number('a')}"

    # -- looking at the run

    def open_text(self, item_id: str) -> str:
        """The deltas of an open item joined."""
        opened = self._recording.state.open_items.get(item_id)
        if opened is None and (self._is_disowned or self._recording.is_sealed):
            return ""
        if opened is None:
            raise LocalProtocolError(f"item {item_id!r} is not open")
        return opened.text

    def open_calls(self) -> list[str]:
        """Ids of the finished calls that have no result yet."""
        return list(self._recording.state.calls)

    def open_results(self) -> dict[str, str]:
        """Tools that began to run and gave no result: call id to result item id."""
        opened = [item.started for item in self._recording.state.open_items.values()]
        return {body.call_id: body.item_id for body in opened if body.kind == "tool_result" and body.call_id}

    async def blob(self, reference: str) -> bytes:
        """The bytes behind the `blob` of a part."""
        return await self._load_blob(reference)

    async def payload(self) -> dict[str, Any]:
        """The names of the second payload contract, the same at every call; attachments are extracted once."""
        if self._payload is None:
            self._payload = await self._load_payload(self)
        return self._payload

    # -- steering

    @property
    def has_input(self) -> bool:
        """Whether the user said something since the last `take_input`."""
        return bool(self._recording.state.inputs)

    def take_input(self) -> list[Item]:
        """New input of the user since the last call; it is delivered by this call."""
        recording = self._recording
        if self._is_disowned or recording.is_sealed:
            return []
        taken: list[Item] = []
        for received in list(recording.state.inputs.values()):
            self._say(InputSettled(input_id=received.input_id, outcome="delivered"))
            taken += received.content
        return taken

    # -- decisions

    async def decision(self, approval_id: str) -> Decision:
        """The answer to a pending approval; the run counts as paused while all its agent does is wait for answers.

        An agent that gives up waiting withdraws the approval.

        Raises:
            LocalProtocolError: no such approval is pending.
        """
        for decision in self._recording.run.decided:
            if decision.approval_id == approval_id:
                self._claim(decision)
                return decision
        if approval_id not in self._recording.state.approvals or approval_id in self._waiting:
            raise LocalProtocolError(f"approval {approval_id!r} is not pending, or is waited for already")
        waiter: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiting[approval_id] = waiter
        self._look_for_pause()
        try:
            return await waiter
        finally:
            del self._waiting[approval_id]
            self._withdraw(approval_id)

    def _withdraw(self, approval_id: str) -> None:
        recording = self._recording
        if approval_id in recording.state.approvals and not (
            self.is_stopping or self._is_disowned or recording.is_sealed
        ):
            continue_run(recording, decisions=[Decision(approval_id=approval_id, decision="withdrawn")], delivered=True)
            self._look_for_pause()

    def deliver(self, decisions: list[Decision]) -> None:
        """Hand over answers that the log has already; those that nobody waits for yet stay in the record."""
        for decision in decisions:
            waiter = self._waiting.get(decision.approval_id)
            if waiter is not None and not waiter.done():
                self._claim(decision)
                waiter.set_result(decision)
        self._look_for_pause()

    def _claim(self, decision: Decision) -> None:
        recording = self._recording
        recording.update(decided=[kept for kept in recording.run.decided if kept.approval_id != decision.approval_id])

    def _look_for_pause(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._pause_when_quiet, self._recording.last_seq, _QUIET_ROUNDS)

    def _pause_when_quiet(self, seen: int, rounds: int) -> None:
        recording = self._recording
        pending = recording.state.approvals
        if (
            recording.state.phase != "active"
            or recording.is_sealed
            or not pending
            or any(id not in self._waiting or self._waiting[id].done() for id in pending)
        ):
            self._is_looking = False
            return
        if recording.last_seq != seen:
            seen, rounds = recording.last_seq, _QUIET_ROUNDS + 1
        if rounds:
            asyncio.get_running_loop().call_soon(self._pause_when_quiet, seen, rounds - 1)
            return
        self._is_looking = False
        pause(recording)
