"""The runs that this process owns: their recordings, the agents being driven, and who waits behind whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from runstone.config import EngineConfig
from runstone.core.events import Event
from runstone.core.lifecycle import RunState
from runstone.core.runs import Decision, Outcome, Run, RunFailure, RunRequest
from runstone.engine.blobs import Blobs
from runstone.engine.context import EngineContext
from runstone.engine.execution import Execution, finish
from runstone.engine.recording import Recording
from runstone.engine.sessions import LiveSession, LiveSessions
from runstone.engine.turns import request_of
from runstone.errors import NotFound, StorageError
from runstone.runners.base import Runner
from runstone.storage.base import Store

_log = logging.getLogger("runstone.engine")
Key = tuple[str, str]
LoadPayload = Callable[[Run, RunRequest, EngineContext], Awaitable[dict[str, Any]]]


def interruption(reason: str) -> RunFailure:
    """What is said of a run that ended without anyone's wish."""
    return RunFailure(code="interrupted", message=f"The run was interrupted ({reason}).")


class LiveRuns:
    """Recordings and executions of this process. Keys are (owner, run id)."""

    def __init__(
        self,
        agents: Mapping[str, Runner],
        store: Store,
        blobs: Blobs,
        *,
        config: EngineConfig,
        clock: Callable[[], float],
        load_payload: LoadPayload,
    ) -> None:
        self.sessions = LiveSessions(store)
        self.recordings: dict[Key, Recording] = {}
        self.executions: dict[Key, Execution] = {}
        #: Runs that the store gave up; the sweep closes them once it works again.
        self.given_up: set[Key] = set()
        self._agents = agents
        self._store = store
        self._blobs = blobs
        self._config = config
        self._clock = clock
        self._load_payload = load_payload
        self._followers: dict[Key, Key] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.on_ended: Callable[[Recording], None] = lambda recording: None

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A task that is kept until it ends; a failure is logged."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_done)
        return task

    def _spawned_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, StorageError):
            _log.error("%s failed", task.get_name(), exc_info=error)

    # -- recordings

    def record(
        self, run: Run, session: LiveSession, state: RunState, *, last_seq: int, newest: list[Event] | None = None
    ) -> Recording:
        """Own the run from here on."""
        recording = Recording(
            run,
            log=self._store,
            session=session,
            clock=self._clock,
            config=self._config,
            state=state,
            last_seq=last_seq,
            newest=newest,
        )
        self.recordings[(run.owner, run.id)] = recording
        return recording

    async def load(self, owner: str, run_id: str) -> Recording | None:
        """The recording of a run without an outcome, from memory or the log; None when the run has its outcome.

        Raises:
            NotFound: the owner has no such run.
        """
        recording = self.recordings.get((owner, run_id))
        if recording is not None:
            return recording
        run = await self._store.run(owner, run_id)
        if run is None:
            raise NotFound("run", run_id)
        if run.outcome is not None:
            return None
        session = self.sessions.get(owner, run.session_id)
        await self.sessions.positions(owner, run.session_id, session)
        state, last_seq = await self._state(run)
        recording = self.recordings.get((owner, run_id))
        if recording is not None:
            return recording
        return self.record(run, session, state, last_seq=last_seq)

    async def _state(self, run: Run) -> tuple[RunState, int]:
        state, seq = RunState(), 0
        while events := await self._store.events(run.owner, run.id, after=seq, limit=self._config.page_events):
            for event in events:
                state.advance(event.body)
            seq = events[-1].seq
            await asyncio.sleep(0)
        return state, seq

    def forget_idle(self, recording: Recording) -> None:
        """Let go of a recording that nobody reads, drives or waits for."""
        key = (recording.run.owner, recording.run.id)
        idle = recording.readers == 0 and key not in self.executions and recording.run.status != "queued"
        settled = recording.broken is not None or recording.committed == recording.last_seq
        if idle and settled and self.recordings.get(key) is recording:
            del self.recordings[key]
            recording.session.writing.pop(key[1], None)

    # -- driving

    def launch(self, recording: Recording) -> None:
        """Drive the run: call its runner with what was decided since the last call."""
        run = recording.run
        runner = self._agents.get(run.agent)
        if runner is None:
            self.end(recording, "interrupted", reason="agent_gone")
            return
        decisions: list[Decision] = run.decided
        told: list[RunRequest] = []

        async def request() -> RunRequest:
            told.append(await request_of(self._store, run, decisions))
            return told[0]

        async def payload() -> dict[str, Any]:
            return await self._load_payload(run, told[0], context)

        context = EngineContext(
            recording,
            approval_timeout=self._config.approval_timeout,
            load_blob=lambda reference: self._blobs.content(run.owner, reference),
            load_payload=payload,
        )
        execution = Execution(
            recording, runner, context, config=self._config, request=request, on_done=self._execution_done
        )
        self.executions[(run.owner, run.id)] = execution

    def launch_after(self, recording: Recording, before: Run) -> None:
        """Drive the run when `before` has its outcome."""
        run = recording.run
        self._followers[(before.owner, before.id)] = (run.owner, run.id)
        ahead = self.recordings.get((before.owner, before.id))
        if ahead is not None and ahead.run.outcome is not None:
            self._launch_follower(ahead)

    def end(self, recording: Recording, outcome: Outcome, *, reason: str | None = None) -> bool:
        """Give a run that is not being driven its outcome; False when it has one."""
        error = interruption(reason or "unknown") if outcome == "interrupted" else None
        ended = finish(recording, outcome, reason=reason, error=error)
        if ended:
            self.spawn(self._settle(recording), f"end of run {recording.run.id}")
        return ended

    async def _settle(self, recording: Recording) -> None:
        try:
            await recording.flushed()
        finally:
            self._ended(recording)

    def _execution_done(self, execution: Execution) -> None:
        recording = execution.recording
        key = (recording.run.owner, recording.run.id)
        if self.executions.get(key) is execution:
            del self.executions[key]
        if recording.broken is not None:
            self.given_up.add(key)
        self._ended(recording)

    def _ended(self, recording: Recording) -> None:
        if recording.run.outcome is not None or recording.broken is not None:
            self._launch_follower(recording)
            self.on_ended(recording)
        self.forget_idle(recording)

    def _launch_follower(self, recording: Recording) -> None:
        follower = self.recordings.get(self._followers.pop((recording.run.owner, recording.run.id), ("", "")))
        if follower is None:
            return
        if follower.run.status == "queued":
            self.launch(follower)
        else:
            # A queued run that was stopped: whoever waits behind it waits no longer.
            self._launch_follower(follower)

    async def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing is driven; False when `seconds` did not suffice."""
        tasks = [execution.task for execution in self.executions.values()] + list(self._tasks)
        if not tasks:
            return True
        _, pending = await asyncio.wait(tasks, timeout=seconds)
        return not pending
