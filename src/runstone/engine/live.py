"""The runs that this process owns: their recordings, the agents being driven, and who waits behind whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from runstone.config import EngineConfig
from runstone.core.events import Event
from runstone.core.lifecycle import RunState
from runstone.core.runs import Outcome, Run, RunRequest
from runstone.engine.blobs import Blobs
from runstone.engine.context import EngineContext
from runstone.engine.execution import Execution, finish, interruption
from runstone.engine.recording import Recording
from runstone.engine.sessions import LiveSession, LiveSessions
from runstone.engine.soon import Soon
from runstone.engine.turns import has_attachments, request_of
from runstone.errors import NotFound, StorageError
from runstone.runners.base import Runner
from runstone.storage.base import Store

_log = logging.getLogger("runstone.engine")
Key = tuple[str, str]
#: How often, in seconds, it is looked whether runs that had time to end wait for people instead.
_LOOK_AGAIN = 0.1
Value = TypeVar("Value")
LoadPayload = Callable[[Run, RunRequest, EngineContext], Awaitable[dict[str, Any]]]


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
        self._soon = Soon()
        self.executions: dict[Key, Execution] = {}
        #: Runs that the store gave up; the sweep closes them once it works again.
        self.given_up: set[Key] = set()
        self._agents = agents
        self._store = store
        self._blobs = blobs
        self._config = config
        self._clock = clock
        self._load_payload = load_payload
        #: Queued runs by the run whose end they wait for.
        self._followers: dict[Key, list[Key]] = {}
        self._loading: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Agents' code that did not unwind when it was stopped.
        self.disowned: set[asyncio.Task[None]] = set()
        self.is_closing = False
        self._is_left = False

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A task that is kept until it ends; a failure is logged."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_done)
        return task

    async def to_its_end(self, work: Coroutine[Any, Any, Value]) -> Value:
        """The result of `work`, which is done also when the caller is cancelled meanwhile."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done_to_its_end)
        return await asyncio.shield(task)

    def _done_to_its_end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Somebody waits for it and is told; if not, nobody is left who could be.
            task.exception()

    def _spawned_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, StorageError):
            _log.error("%s failed", task.get_name(), exc_info=error)

    # -- recordings

    def record(
        self,
        run: Run,
        session: LiveSession,
        state: RunState,
        *,
        last_seq: int,
        last_at: float = 0.0,
        newest: list[Event] | None = None,
    ) -> Recording:
        """Own the run from here on. `loading` is held."""
        recording = Recording(
            run,
            log=self._store,
            session=session,
            clock=self._clock,
            config=self._config,
            state=state,
            last_seq=last_seq,
            last_at=last_at,
            newest=newest,
            soon=self._soon,
            on_broken=self._give_up,
        )
        if self._is_left:
            recording.leave()
        self.recordings[(run.owner, run.id)] = recording
        return recording

    def leave(self) -> None:
        """Nothing is driven any more in this process: who follows a run or a session is told to come again."""
        self._is_left = True
        for recording in list(self.recordings.values()):
            recording.leave()
        self.sessions.end()

    async def load(self, owner: str, run_id: str) -> Recording | None:
        """The recording of a run without an outcome, from memory or the log; None when the run has its outcome.

        Raises:
            NotFound: the owner has no such run.
        """
        recording = self.recordings.get((owner, run_id))
        if recording is not None:
            return recording
        async with self.loading(owner, run_id):
            recording = self.recordings.get((owner, run_id))
            return recording if recording is not None else await self._loaded(owner, run_id)

    def loading(self, owner: str, run_id: str) -> asyncio.Lock:
        """Held from the first look at a run in the store until it is recorded here.

        Without it a second look could find the log before somebody wrote to it, and go on from there when that is done.
        """
        return self._loading.setdefault((owner, run_id), asyncio.Lock())

    async def _loaded(self, owner: str, run_id: str) -> Recording | None:
        run = await self._store.run(owner, run_id)
        if run is None:
            raise NotFound("run", run_id)
        if run.outcome is not None:
            return None
        session = self.sessions.get(owner, run.session_id)
        await self.sessions.positions(owner, run.session_id, session)
        state, seq, at = await self._state(run)
        return self.record(run, session, state, last_seq=seq, last_at=at)

    def settling(self, run: Run | None) -> Awaitable[None] | None:
        """What to await before the run's last words are in the store, None when they are."""
        recording = None if run is None else self.recordings.get((run.owner, run.id))
        if recording is None or recording.run.outcome is None or recording.is_over:
            return None
        return recording.flushed()

    async def current(self, owner: str, run_id: str | None) -> Run | None:
        """The run as it is now, None when there is none."""
        if run_id is None:
            return None
        recording = self.recordings.get((owner, run_id))
        return recording.run if recording is not None else await self._store.run(owner, run_id)

    async def ahead_of(self, run: Run | None) -> Run | None:
        """The run that has to end before one that continues `run` may begin: itself or, if it never ran, one before it."""
        while run is not None and run.outcome is not None and run.started_at is None:
            run = await self.current(run.owner, run.continues)
        return run if run is not None and run.outcome is None else None

    async def _state(self, run: Run) -> tuple[RunState, int, float]:
        state, seq, at = RunState(), 0, 0.0
        while events := await self._store.events(run.owner, run.id, after=seq, limit=self._config.page_events):
            for event in events:
                state.advance(event.body)
            seq, at = events[-1].seq, events[-1].at
            await asyncio.sleep(0)
        return state, seq, at

    def forget_idle(self, recording: Recording) -> None:
        """Let go of a recording that nobody reads, drives or waits for."""
        key = (recording.run.owner, recording.run.id)
        idle = recording.readers == 0 and key not in self.executions and recording.run.status != "queued"
        if idle and recording.is_settled:
            self.forget(recording)

    def forget(self, recording: Recording) -> None:
        """Let go of a recording."""
        key = (recording.run.owner, recording.run.id)
        if self.recordings.get(key) is recording:
            del self.recordings[key]
            recording.session.writing.pop(key[1], None)

    # -- driving

    def launch(self, recording: Recording, *, is_new_session: bool = False) -> None:
        """Drive the run: call its runner with what was decided since the last call.

        `is_new_session`: the session was made for this run, so there is no history to read.
        """
        run = recording.run
        if self.is_closing or recording.is_sealed:
            return
        runner = self._agents.get(run.agent)
        if runner is None:
            self.end(recording, "interrupted", reason="agent_gone")
            return
        created = recording.state.created
        assert created is not None
        is_first_call = recording.state.phase == "created"
        told: list[RunRequest] = []

        async def request() -> RunRequest:
            if not is_first_call:
                # What the run said and what became of it is read from the store: it has to be there.
                await recording.flushed()
            told.append(
                await request_of(self._store, run, created, is_first_call=is_first_call, is_new_session=is_new_session)
            )
            if is_first_call and has_attachments(told[0].input):
                # The run's first act: seen in its log, and stopped with it.
                await context.payload()
            return told[0]

        async def payload(context: EngineContext) -> dict[str, Any]:
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

    async def launch_after(self, recording: Recording, before: Run) -> None:
        """Drive the run when `before` has its outcome, and all that it said is in the store."""
        key = (before.owner, before.id)
        self._followers.setdefault(key, []).append((recording.run.owner, recording.run.id))
        ahead = self.recordings.get(key)
        if ahead is not None:
            is_over = ahead.is_over and key not in self.executions
        else:
            stored = await self._store.run(*key)
            is_over = stored is None or stored.outcome is not None
        if is_over:
            self._launch_followers(key)

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
        if execution.disowned is not None:
            self.disowned.add(execution.disowned)
            execution.disowned.add_done_callback(self.disowned.discard)
        if recording.run.decided and recording.state.phase == "active" and not (recording.is_sealed or self.is_closing):
            # Decided between the agent's asking and its return: there is no pause to wait in.
            self.launch(recording)
        else:
            self._ended(recording)

    def _ended(self, recording: Recording) -> None:
        if recording.run.outcome is not None and recording.broken is None:
            key = (recording.run.owner, recording.run.id)
            if recording.run.started_at is None:
                self._leave_queue(key)
            self._launch_followers(key)
        self.forget_idle(recording)

    def _give_up(self, recording: Recording) -> None:
        """The store failed for too long: the agent is cancelled now, the run closed by the sweep."""
        key = (recording.run.owner, recording.run.id)
        self.given_up.add(key)
        execution = self.executions.get(key)
        if execution is not None:
            execution.stop("interrupted", "storage")
        self.forget_idle(recording)

    def _leave_queue(self, key: Key) -> None:
        """A queued run ended without having run: who waited for it waits for whom it waited for."""
        for waiting in self._followers.values():
            if key in waiting:
                waiting.remove(key)
                waiting += self._followers.pop(key, [])
                return

    def _launch_followers(self, key: Key) -> None:
        for follower in self._followers.pop(key, []):
            recording = self.recordings.get(follower)
            if recording is not None and recording.run.status == "queued":
                self.launch(recording)

    async def wait_for_work(self, seconds: float) -> None:
        """Wait until no agent works any more, for `seconds` at most; one that waits for people does not count."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while at_work := [e.task for e in self.executions.values() if not e.recording.is_paused]:
            left = until - loop.time()
            if left <= 0:
                return
            # A run that pauses does not end: look again.
            await asyncio.wait(at_work, timeout=min(left, _LOOK_AGAIN))

    async def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing is driven; False when `seconds` did not suffice."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while tasks := [execution.task for execution in self.executions.values()] + list(self._tasks):
            if loop.time() >= until:
                return False
            await asyncio.wait(tasks, timeout=until - loop.time())
        return True
