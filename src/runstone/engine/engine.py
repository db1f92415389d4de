"""The verbs over one store: start, read, stop, decide, history. Everything a surface needs; nothing of any protocol.

Rule: every method takes the owner first and answers for that owner alone; what another owner has does not exist.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from runstone.config import EngineConfig
from runstone.core.commands import Start
from runstone.core.items import Item
from runstone.core.runs import Decision, PendingApproval, Run
from runstone.core.transcript import Page, pending_approval
from runstone.engine.blobs import Blobs
from runstone.engine.creating import Started
from runstone.engine.directory import Directory
from runstone.engine.history import History
from runstone.engine.ids import IdSource
from runstone.engine.live import LiveRuns
from runstone.engine.pauses import checked_decisions, continue_run, pause
from runstone.engine.payloads import NoPayloads, Payloads
from runstone.engine.reader import Reader
from runstone.engine.recording import Recording
from runstone.engine.sessions import SessionReader, oldest_cursor
from runstone.engine.starting import Starter
from runstone.engine.steering import Receipt, check_steerable, not_accepting, receive, settled
from runstone.engine.upkeep import Upkeep
from runstone.errors import (
    AlreadyDecided,
    ConfigError,
    Conflict,
    CursorExpired,
    CursorUnknown,
    NotFound,
    RunstoneError,
    StorageUnavailable,
)
from runstone.runners.base import Runner
from runstone.storage.base import FileStore, Store

__all__ = ["Engine", "Started"]
_log = logging.getLogger("runstone.engine")


class Engine:
    """Runs of some agents over one store. `open` before use, `close` after."""

    def __init__(
        self,
        agents: Mapping[str, Runner],
        store: Store,
        files: FileStore,
        *,
        config: EngineConfig | None = None,
        payloads: Payloads | None = None,
        clock: Callable[[], float] = time.time,
        ids: IdSource | None = None,
    ) -> None:
        self.agents = dict(agents)
        unknown = sorted(set((config or EngineConfig()).agents) - set(self.agents))
        if unknown:
            raise ConfigError(
                f"engine.agents has {unknown[0]!r}; there are {', '.join(map(repr, self.agents))}",
                option="engine.agents",
            )
        self.default_agent = next(iter(self.agents))
        self.store = store
        self.config = config or EngineConfig()
        self.clock = clock
        self.ids = ids or IdSource()
        self.blobs = Blobs(store, files)
        payloads = payloads or NoPayloads()
        self.live = LiveRuns(
            self.agents, store, self.blobs, config=self.config, clock=clock, load_payload=payloads.payload
        )
        self._starter = Starter(
            self.agents,
            store,
            self.live,
            self.blobs,
            config=self.config,
            clock=clock,
            ids=self.ids,
            default_agent=self.default_agent,
            stop=lambda owner, run_id, reason: self.stop(owner, run_id, reason=reason),
            answer=self._answer,
            steer=self._steer_and_see,
            over=self._started_or_over,
        )
        self.directory = Directory(
            store,
            self.live,
            blobs=self.blobs,
            clock=clock,
            ids=self.ids,
            default_agent=self.default_agent,
            stop=self.stop,
        )
        self._history = History(store, self.live)
        self._upkeep = Upkeep(self.agents, store, self.live, config=self.config, clock=clock, decide=self.decide)

    async def open(self) -> None:
        """Open the store, settle what an earlier process left, and start the upkeep."""
        await self.store.open()
        await self._upkeep.recover()
        self._upkeep.begin()

    async def end_runs(self, *, drain_timeout: float = 0.0) -> None:
        """Admit nothing more, let what runs end for up to `drain_timeout` seconds, interrupt the rest; readers end.

        What is queued or waits is left for the next process.
        """
        self._starter.is_draining = self.live.is_closing = True
        await self.live.wait_for_work(drain_timeout)
        for execution in list(self.live.executions.values()):
            execution.stop("interrupted", "shutdown")
        await self.live.wait_idle(self.config.stop_after + 5.0)
        self.live.leave()

    async def close(self, *, drain_timeout: float = 0.0) -> None:
        """End the runs (`end_runs`) and close runners and store."""
        await self.end_runs(drain_timeout=drain_timeout)
        await self._upkeep.end()
        closed = await asyncio.gather(*(runner.close() for runner in self.agents.values()), return_exceptions=True)
        for name, error in zip(self.agents, closed, strict=True):
            if error is not None:
                _log.error("the agent %s did not close", name, exc_info=error)
        await self.store.close()

    @property
    def is_draining(self) -> bool:
        """Whether new starts are refused because the server shuts down."""
        return self._starter.is_draining

    def drain(self) -> None:
        """Refuse new starts from here on."""
        self._starter.is_draining = True

    async def start(self, owner: str, start: Start) -> Started:
        """Begin a turn, attach to the run of an equal start, or answer a waiting run. The run is durable when this returns.

        Raises:
            NotFound: no such agent, session, run to continue, or approval.
            InvalidRequest: the input does not fit the conversation.
            RunActive: the session is busy and the policy is to reject.
            IdempotencyConflict: the key or the run id was used with another body.
            AlreadyDecided: an approval has its decision.
            Unsupported: a policy or a demand that the agent cannot meet.
            StorageUnavailable: the store does not work, or the server shuts down.
        """
        return await self._starter.start(owner, start)

    async def run(self, owner: str, run_id: str) -> Run:
        """The run as it is now.

        Raises:
            NotFound: the owner has none of that id.
        """
        recording = self.live.recordings.get((owner, run_id))
        if recording is not None:
            return recording.run
        run = await self.store.run(owner, run_id)
        if run is None:
            raise NotFound("run", run_id)
        return run

    async def durable_run(self, owner: str, run_id: str) -> Run:
        """The run as it is now, when that is in the store: what a caller is told is still so after a crash.

        Raises:
            NotFound: the owner has none of that id.
            StorageError: the store gave up.
        """
        recording = self.live.recordings.get((owner, run_id))
        if recording is None:
            return await self.run(owner, run_id)
        run, seq = recording.run, recording.last_seq
        await recording.reached(seq)
        return run

    async def reader(self, owner: str, run_id: str, *, after: int = 0) -> Reader:
        """A reader of what follows the event `after`.

        Raises:
            NotFound: the owner has no such run.
            CursorUnknown: the run has no event of that number.
            CursorExpired: what follows is no longer kept.
        """
        recording = await self.live.load(owner, run_id)
        newest = recording.committed if recording else await self.store.last_seq(owner, run_id)
        if not 0 <= after <= newest:
            if recording is not None:
                self.live.forget_idle(recording)
            raise CursorUnknown(str(after), expected=f"a number from 0 to {newest}")
        if recording is None:
            run = await self.run(owner, run_id)
            if run.compacted or newest == 0:
                raise CursorExpired(str(after), oldest=None)
        return Reader(
            self.store,
            owner=owner,
            run_id=run_id,
            after=after,
            newest=newest,
            recording=recording,
            page_events=self.config.page_events,
            on_close=self._reader_closed,
        )

    def _reader_closed(self, recording: Recording) -> None:
        self.live.forget_idle(recording)

    async def stop(self, owner: str, run_id: str, *, reason: str | None = None) -> Run:
        """End the run as cancelled and return it with its outcome; on a run that has one, return it as it is.

        Returns at the latest about `engine.stop_after` seconds later, whatever the agent does.

        Raises:
            NotFound: the owner has no such run.
            StorageError: the outcome could not be stored.
        """
        while True:
            recording = await self.live.load(owner, run_id)
            if recording is None:
                return await self.run(owner, run_id)
            execution = self.live.executions.get((owner, run_id))
            if execution is None:
                break
            # The agent may pause in the same moment, and somebody let it go on: look again afterwards.
            execution.stop("cancelled", reason)
            await asyncio.wait({execution.task})
        self.live.end(recording, "cancelled", reason=reason)
        await recording.flushed()
        return recording.run

    async def delete_run(self, owner: str, run_id: str) -> None:
        """Delete the run with its events and rows; one that is going on is stopped first. A hidden session goes with its last.

        Raises:
            NotFound: the owner has no such run.
            StorageError: it could not be stopped or deleted.
        """
        run = await self.stop(owner, run_id, reason="deleted")
        live = self.live.sessions.get(owner, run.session_id)
        async with live.lock:
            await self.store.delete_run(owner, run_id)
            session = await self.store.session(owner, run.session_id)
            if session is not None and session.hidden:
                left = await self.store.runs(owner, session_id=session.id, limit=1)
                if not left:
                    await self.store.delete_session(owner, session.id)
                    live.deleted()

    def begin_stop(self, owner: str, run_id: str, *, reason: str | None = None) -> None:
        """`stop` for a caller that does not wait for the outcome."""
        self.live.spawn(self.stop(owner, run_id, reason=reason), f"stop of run {run_id}")

    def is_stopping(self, owner: str, run_id: str) -> bool:
        """Whether somebody asked the run to end and it has no outcome yet."""
        execution = self.live.executions.get((owner, run_id))
        return execution is not None and execution.is_stopping

    def pending(self, run: Run) -> list[PendingApproval]:
        """The run's approvals that can be decided now, also while its agent goes on elsewhere."""
        recording = self.live.recordings.get((run.owner, run.id))
        if recording is None or recording.is_sealed:
            return run.approvals
        return [pending_approval(asked) for asked in recording.state.approvals.values()]

    def stopping(self, owner: str, run_id: str, *, reason: str | None = None) -> None:
        """Ask a run that is being driven, or waits for its turn, to end, without waiting for it."""
        execution = self.live.executions.get((owner, run_id))
        recording = self.live.recordings.get((owner, run_id))
        if execution is not None:
            execution.stop("cancelled", reason)
        elif recording is not None and recording.run.status == "queued":
            self.live.end(recording, "cancelled", reason=reason)

    async def steer(self, owner: str, run_id: str, content: list[Item], *, by: str | None = None) -> Receipt:
        """Put new input into a run that is going on. The receipt says that it is in the log; the log says what became of it.

        Raises:
            NotFound: the owner has no such run.
            Unsupported: the agent takes no input while it runs.
            Conflict: the run is not running (`run_not_accepting_steer`).
        """
        run = await self.run(owner, run_id)
        check_steerable(self._runner(run))
        recording = await self.live.load(owner, run_id)
        if recording is None:
            raise not_accepting(run.id, run.status)
        items = await self.blobs.stored(owner, content)
        execution = self.live.executions.get((owner, run_id))
        if execution is None or execution.is_stopping:
            self.live.forget_idle(recording)
            raise not_accepting(run.id, "stopping" if execution else recording.run.status)
        receipt = receive(recording, self._runner(run), items, input_id=self.ids.new("inp"), by=by)
        await recording.reached(receipt.seq)
        return receipt

    async def _steer_and_see(self, run: Run, items: list[Item]) -> int | None:
        try:
            receipt = await self.steer(run.owner, run.id, items)
        except Conflict:
            return None
        return await settled(await self.reader(run.owner, run.id, after=receipt.seq), receipt)

    async def _started_or_over(self, owner: str, run_id: str) -> None:
        recording = self.live.recordings.get((owner, run_id))
        while recording is not None and recording.run.status == "queued" and recording.broken is None:
            await recording.changed()

    def _runner(self, run: Run) -> Runner:
        runner = self.agents.get(run.agent)
        if runner is None:
            raise NotFound("agent", run.agent)
        return runner

    async def regenerate(self, owner: str, run_id: str, start: Start) -> Started:
        """Answer the run's turn again, as a new run beside it: the session shows the new one, the old one stays readable.

        `start.input`, when not empty, replaces the turn's input; its `agent` and `session_id` are ignored. Later turns stay
        with the old run's branch.

        Raises:
            NotFound: the owner has no such run.
            RunActive: it, or the session's newest run, is not over.
            Unsupported: the agent keeps what was said itself.
        """
        return await self._starter.regenerate(owner, await self.run(owner, run_id), start)

    async def alternatives(self, owner: str, run_id: str) -> list[Run]:
        """The runs that answer the same turn, oldest first, itself among them."""
        run = await self.run(owner, run_id)
        runs = await self.store.runs(owner, session_id=run.session_id, turn=run.turn, limit=1_000)
        return [await self.run(owner, found.id) for found in reversed(runs)]

    async def session_reader(self, owner: str, session_id: str, *, after: int | None = None) -> SessionReader:
        """A reader of all the session's events above position `after`; from now on when it is None.

        Raises:
            NotFound: the owner has no such session.
            CursorUnknown: no event has that position yet.
            CursorExpired: events after that position are no longer kept.
        """
        if await self.store.session(owner, session_id) is None:
            raise NotFound("session", session_id)
        live = self.live.sessions.get(owner, session_id)
        await self.live.sessions.positions(owner, session_id, live)
        safe = live.safe_position
        if after is not None and not 0 <= after <= safe:
            raise CursorUnknown(str(after), expected=f"a position from 0 to {safe}")
        if after is not None and after < safe:
            oldest = await oldest_cursor(self.store, owner, session_id, after)
            if oldest > after:
                raise CursorExpired(str(after), oldest=str(oldest))
        if live.positions is None:
            # Deleted while this looked.
            raise NotFound("session", session_id)
        return SessionReader(
            self.store,
            live,
            owner=owner,
            session_id=session_id,
            after=safe if after is None else after,
            page_events=self.config.page_events,
        )

    async def decide(
        self, owner: str, run_id: str, decisions: list[Decision], *, echo: dict[str, Any] | None = None
    ) -> Run:
        """Answer approvals of a run; it goes on when none is left.

        Raises:
            NotFound: no such run or approval.
            AlreadyDecided: an approval has its decision, or the run its outcome.
        """
        run = await self.run(owner, run_id)
        session = self.live.sessions.get(owner, run.session_id)
        async with session.lock:
            await self._answer(run, decisions, echo or {})
        return await self.run(owner, run_id)

    async def _answer(self, run: Run, decisions: list[Decision], echo: dict[str, Any]) -> int:
        """Record decisions with the session's lock held; the index of the leg that they began."""
        leaving = self.live.executions.get((run.owner, run.id))
        if leaving is not None and leaving.is_over:
            # It paused a moment ago: what is decided now is for the next call of the runner.
            await asyncio.wait({leaving.task})
        recording = await self.live.load(run.owner, run.id)
        if recording is None or recording.is_sealed:
            raise AlreadyDecided(f"The run {run.id!r} has ended.", run_id=run.id, code="approval_not_pending")
        execution = self.live.executions.get((run.owner, run.id))
        try:
            if self.is_draining and execution is None:
                raise StorageUnavailable("The server is shutting down.", code="draining")
            checked = checked_decisions(recording, decisions)
        except RunstoneError:
            self.live.forget_idle(recording)
            raise
        continue_run(recording, decisions=checked, echo=echo)
        if execution is not None:
            execution.context.deliver(checked)
        elif recording.state.approvals:
            pause(recording)
        else:
            self.live.launch(recording)
        await recording.reached(recording.last_seq)
        return len(recording.run.legs) - 1

    async def history(self, owner: str, session_id: str, *, before: str | None = None, limit: int = 50) -> Page:
        """A page of the session's history; the newest without `before`.

        Raises:
            NotFound: the owner has no such session.
            CursorUnknown: `before` is not a cursor of a page.
        """
        return await self._history.page(owner, session_id, before=before, limit=limit)
