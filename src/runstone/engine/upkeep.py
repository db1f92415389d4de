"""What nobody asks for: settling runs that a crash left, expiring approvals, deleting and compacting what is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from runstone.config import EngineConfig
from runstone.core.events import AttemptStarted, InputReceived
from runstone.core.runs import Decision, Leg, Run, Settings
from runstone.engine.execution import interruption
from runstone.engine.live import LiveRuns
from runstone.engine.recording import Recording
from runstone.errors import AlreadyDecided, NotFound, StorageError, StorageUnavailable
from runstone.runners.base import Runner
from runstone.storage.base import Store

_log = logging.getLogger("runstone.engine")
_MAX_ATTEMPTS = 3
#: Runs that one look at the store brings for deletion.
_PAGE = 200


class Decide(Protocol):
    """Answers approvals (Engine.decide)."""

    def __call__(self, owner: str, run_id: str, decisions: list[Decision]) -> Awaitable[Run]:
        """The run after."""
        ...


class Upkeep:
    """Background work of one process."""

    def __init__(
        self,
        agents: Mapping[str, Runner],
        store: Store,
        live: LiveRuns,
        *,
        config: EngineConfig,
        clock: Callable[[], float],
        decide: Decide,
    ) -> None:
        self._agents = agents
        self._store = store
        self._live = live
        self._config = config
        self._clock = clock
        self._decide = decide
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Sweep from time to time."""
        self._task = asyncio.create_task(self._sweep_forever(), name="sweep")

    async def end(self) -> None:
        """Sweep no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    # -- recovery

    async def recover(self) -> None:
        """Bring every run that an earlier process left into a documented state. Nothing else runs yet."""
        for run in await self._store.unfinished():
            try:
                await self._recover(run)
            except StorageUnavailable:
                raise
            except StorageError:
                # One damaged log must not keep all the others from being served.
                _log.exception("run %s cannot be read; it counts as interrupted", run.id)
                ended = msgspec.structs.replace(
                    run, status="interrupted", reason="storage", error=interruption("storage")
                )
                await self._store.save_run(
                    msgspec.structs.replace(ended, ended_at=self._clock(), approvals=[], decided=[])
                )

    async def _recover(self, run: Run) -> None:
        recording = await self._live.load(run.owner, run.id)
        if recording is None:
            return
        runner = self._agents.get(run.agent)
        if runner is None:
            self._live.end(recording, "interrupted", reason="agent_gone")
        elif run.status == "queued" and recording.state.phase == "created":
            await self._requeue(recording)
        elif recording.state.phase == "paused":
            if runner.capabilities.durable_approvals.level == "none":
                self._live.end(recording, "interrupted", reason="pause_lost")
            else:
                self._live.forget_idle(recording)
        elif run.policies.recovery == "interrupted":
            self._live.end(recording, "interrupted", reason="worker_lost")
        elif run.attempt >= _MAX_ATTEMPTS:
            self._live.end(recording, "interrupted", reason="attempts_exhausted")
        else:
            await self._retry(recording)
        if recording.run.outcome is not None:
            await recording.flushed()

    async def _requeue(self, recording: Recording) -> None:
        run = recording.run
        ahead = await self._live.ahead_of(await self._live.current(run.owner, run.continues))
        if ahead is None:
            self._live.launch(recording)
        else:
            await self._live.launch_after(recording, ahead)

    async def _retry(self, recording: Recording) -> None:
        run = recording.run
        rows = await self._store.run_rows(run.owner, run.id)
        steered = [row.item for row in rows if row.is_input and row.seq > 1]
        # A leg of its own: what streamed the old attempt ends there, and nothing may follow what counts no longer.
        leg = Leg(first_seq=recording.last_seq + 1, created_at=recording.now(), echo=run.legs[-1].echo)
        recording.update(attempt=run.attempt + 1, status="running", approvals=[], decided=[], legs=[*run.legs, leg])
        recording.emit(AttemptStarted(attempt=run.attempt + 1, reason="worker_lost", discard_after_seq=1))
        if steered:
            # What the user said meanwhile is not the agent's to lose: the new attempt is told again.
            recording.emit(InputReceived(input_id=f"again{run.attempt + 1}", content=steered))
        self._live.launch(recording)

    # -- sweeping

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.sweep_every)
            try:
                await self.sweep()
            except StorageError as e:
                _log.warning("the sweep waits for the store: %s", e)
            except Exception:
                _log.exception("the sweep failed; it goes on")

    async def sweep(self) -> None:
        """One round: runs that the store gave up, expired approvals, what is too old to keep."""
        await self._close_given_up()
        await self._expire_approvals()
        await self._delete_unstored()
        await self._compact()

    async def _close_given_up(self) -> None:
        for owner, run_id in list(self._live.given_up):
            broken = self._live.recordings.get((owner, run_id))
            if broken is not None and broken.broken is not None:
                self._live.forget(broken)
            recording = await self._live.load(owner, run_id)
            if recording is not None:
                if (owner, run_id) not in self._live.executions:
                    self._live.end(recording, "interrupted", reason="storage")
                await recording.flushed()
            self._live.given_up.discard((owner, run_id))

    async def _expire_approvals(self) -> None:
        now = self._clock()
        for run in await self._store.unfinished():
            expired = [a.approval_id for a in run.approvals if a.expires_at is not None and a.expires_at <= now]
            if run.status != "waiting" or not expired:
                continue
            decisions = [Decision(approval_id=id, decision="expired", reason="expired") for id in expired]
            try:
                await self._decide(run.owner, run.id, decisions)
            except (AlreadyDecided, NotFound):
                _log.info("run %s: an approval was decided while it expired", run.id)

    async def _delete_unstored(self) -> None:
        """Delete what must not be stored: soon after the end, when nobody reads it any more, and in any case after a while.

        Not at the end itself: a client whose connection broke just then comes back for the rest.
        """
        now = self._clock()
        while True:
            ended = await self._store.ended(stored=False, before=now - self._config.unstored_grace, limit=_PAGE)
            due = [run for run in ended if self._is_due(run, now)]
            await asyncio.gather(*(self._delete_content(run) for run in due))
            if len(ended) < _PAGE or not due:
                return

    def _is_due(self, run: Run, now: float) -> bool:
        recording = self._live.recordings.get((run.owner, run.id))
        is_read = recording is not None and recording.readers > 0
        return not is_read or (run.ended_at or 0.0) <= now - self._config.unstored_ttl

    async def _compact(self) -> None:
        for run in await self._store.ended(stored=True, before=self._clock() - self._config.events_ttl, limit=20):
            if (run.owner, run.id) in self._live.recordings:
                continue
            # In this order: a crash in between leaves a run that the next sweep compacts again.
            await self._store.compact(run.owner, run.id)
            await self._store.save_run(msgspec.structs.replace(run, compacted=True))

    async def _delete_content(self, run: Run) -> None:
        stripped = msgspec.structs.replace(run, compacted=True, settings=Settings(), metadata={}, legs=[])
        await self._store.save_run(stripped)
        await self._store.delete_run(run.owner, run.id, keep_record=True)
