"""Drives one run: agent code in a task of its own, everything it says into the recording, exactly one outcome at the end.

Rule: the outcome is one compare-and-set (`finish`); everything else hangs on its success.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from runstone.config import EngineConfig
from runstone.core.events import RunEnded, RunStarted
from runstone.core.lifecycle import closing
from runstone.core.runs import Leg, Outcome, RunFailure, RunRequest, Usage
from runstone.engine.context import EngineContext
from runstone.engine.pauses import pause
from runstone.engine.recording import Recording
from runstone.engine.scrub import storable
from runstone.errors import LocalProtocolError, RunnerError, StorageError
from runstone.runners.base import Runner

_log = logging.getLogger("runstone.engine")
#: A model's words for a cut answer, and the reason of the outcome `completed` that they become.
_CUT = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}


def interruption(reason: str) -> RunFailure:
    """What is said of a run that ended without anyone's wish."""
    return RunFailure(code="interrupted", message=f"The run was interrupted ({reason}).")


def finish(
    recording: Recording,
    outcome: Outcome,
    *,
    reason: str | None = None,
    error: RunFailure | None = None,
    usage: Usage | None = None,
) -> bool:
    """Give the run its outcome and close what is open; False when it has one already, or is not ours any more."""
    state = recording.state
    if state.ended is not None or recording.is_sealed:
        return False
    returned = list(state.inputs)
    if state.phase == "paused":
        run = recording.run
        leg = Leg(first_seq=recording.last_seq + 1, created_at=recording.now(), echo=run.legs[-1].echo)
        recording.update(legs=[*run.legs, leg])
    for body in closing(state, approvals="expired" if reason == "approval_expired" else "withdrawn"):
        if state.phase == "created":
            recording.emit(RunStarted())
        recording.emit(body)
    usage = usage if usage is not None else recording.run.usage
    error = None if error is None else storable(error)
    recording.emit(RunEnded(outcome=outcome, reason=reason, error=error, usage=usage, returned=returned))
    recording.update(
        status=outcome, reason=reason, error=error, usage=usage, ended_at=recording.now(), approvals=[], decided=[]
    )
    recording.seal()
    return True


class Execution:
    """The driving of one run by one call of its runner. `task` ends when the run has ended or paused."""

    def __init__(
        self,
        recording: Recording,
        runner: Runner,
        context: EngineContext,
        *,
        config: EngineConfig,
        request: Callable[[], Coroutine[Any, Any, RunRequest]],
        on_done: Callable[[Execution], None],
    ) -> None:
        self.recording = recording
        self.context = context
        self._runner = runner
        self._config = config
        self._request = request
        self._on_done = on_done
        self._stop: asyncio.Future[tuple[Outcome, str | None]] = asyncio.get_running_loop().create_future()
        #: The agent's code, when it did not unwind in time and is left alone.
        self.disowned: asyncio.Task[None] | None = None
        self._is_over = False
        self.task = asyncio.create_task(self._drive(), name=f"run {recording.run.id}")

    def stop(self, outcome: Outcome = "cancelled", reason: str | None = None) -> None:
        """Ask the agent to end; the outcome is recorded at most `engine.stop_after` later."""
        if not self._stop.done():
            self._stop.set_result((outcome, reason))

    @property
    def is_over(self) -> bool:
        """Whether the agent's code came to its end and the run waits: `task` ends as soon as that is in the store."""
        return self._is_over

    @property
    def is_stopping(self) -> bool:
        """Whether somebody asked it to end."""
        return self._stop.done()

    async def _drive(self) -> None:
        try:
            await self._run()
            await self.recording.flushed()
        except StorageError as e:
            _log.error("run %s: %s", self.recording.run.id, e)
        finally:
            self._on_done(self)

    async def _run(self) -> None:
        recording = self.recording
        run = recording.run
        if recording.state.phase == "created":
            recording.emit(RunStarted())
            recording.update(status="running", started_at=recording.now())
        elif run.decided:
            recording.update(decided=[])
        if not self._stop.done():
            agent = asyncio.create_task(self._agent(), name=f"agent {run.id}")
            await self._agent_or_stop(agent)
            if agent.done():
                self._conclude(agent)
                return
            await self._unwind(agent)
        outcome, reason = self._stop.result() if self._stop.done() else ("interrupted", "deadline")
        error = interruption(reason or "unknown") if outcome == "interrupted" else None
        finish(recording, outcome, reason=reason, error=error, usage=self.context.usage)

    async def _agent_or_stop(self, agent: asyncio.Task[None]) -> None:
        """Return when either is there, or the time is up. A wait for people is not the agent's time."""
        waits: set[asyncio.Future[Any]] = {agent, self._stop}
        limit = left = self._config.run_timeout
        began = self.recording.active_time
        while True:
            done, _ = await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if done or limit is None:
                return
            left = limit - (self.recording.active_time - began)
            if self.recording.is_paused:
                left = limit
            elif left <= 0:
                return

    async def _agent(self) -> None:
        try:
            await self._runner.run(await self._request(), self.context)
        except (SystemExit, KeyboardInterrupt) as e:
            # These two would leave the task, end the event loop, and the server with it.
            raise RunnerError("The agent called exit.") from e

    async def _unwind(self, agent: asyncio.Task[None]) -> None:
        """Cancel the agent's code and wait for it, but not for ever."""
        self.context.is_stopping = True
        agent.cancel()
        await asyncio.wait({agent}, timeout=self._config.stop_after)
        if agent.done():
            if not agent.cancelled() and (error := agent.exception()) is not None:
                _log.info("run %s: the agent raised while it was stopped", self.recording.run.id, exc_info=error)
            return
        self.context.disown()
        _log.warning(
            "run %s: the agent did not stop in %g s and is left alone", self.recording.run.id, self._config.stop_after
        )
        agent.add_done_callback(_forget)
        self.disowned = agent

    def _conclude(self, agent: asyncio.Task[None]) -> None:
        """The agent's code came to its end by itself."""
        recording, usage = self.recording, self.context.usage
        error = asyncio.CancelledError() if agent.cancelled() else agent.exception()
        if isinstance(error, StorageError):
            _log.error("run %s: %s", recording.run.id, error.message)
            finish(recording, "interrupted", reason="storage", error=interruption("storage"), usage=usage)
        elif error is not None:
            finish(recording, "failed", reason="agent_error", error=self._failure(error), usage=usage)
        elif recording.state.approvals:
            if recording.state.phase == "active":
                pause(recording)
                self._is_over = True
                recording.update(usage=usage)
        elif recording.run.decided:
            # Answered before the agent came back: its runner is called again at once.
            recording.update(usage=usage)
        elif any(call.executor == "client" for call in recording.state.calls.values()):
            finish(recording, "completed", reason="client_tools", usage=usage)
        else:
            finish(recording, "completed", reason=_CUT.get(self.context.finish_reason or ""), usage=usage)

    def _failure(self, error: BaseException) -> RunFailure:
        run_id = self.recording.run.id
        if isinstance(error, RunnerError):
            _log.error("run %s: %s", run_id, error.message, exc_info=error.__cause__)
            return RunFailure(code=error.code, message=error.message)
        if isinstance(error, LocalProtocolError):
            _log.error("run %s: the agent said something that may not come there", run_id, exc_info=error)
        else:
            _log.error("run %s: the agent raised %s", run_id, type(error).__name__, exc_info=error)
        return RunFailure(code="agent_error", message="The agent failed.")


def _forget(agent: asyncio.Task[None]) -> None:
    """Take the result of a task that nobody waits for."""
    if not agent.cancelled():
        agent.exception()
