"""Start: whether a request may become a run now, by the session it is in and the policies that hold (`creating` makes it)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from runstone.config import EngineConfig
from runstone.core.commands import Start
from runstone.core.events import ApprovalRequested
from runstone.core.items import ApprovalItem, Item
from runstone.core.runs import Decision, PendingApproval, Run
from runstone.engine.admission import (
    Choice,
    check_branch,
    check_recovery,
    check_tools,
    choose_agent,
    fingerprint,
    new_input,
    repeated,
    run_that_ends_with,
    split_answers,
    spoken,
)
from runstone.engine.blobs import Blobs
from runstone.engine.creating import Candidate, Creator, Started
from runstone.engine.ids import IdSource
from runstone.engine.live import LiveRuns
from runstone.engine.steering import check_steerable
from runstone.errors import (
    RATE_LIMIT,
    AlreadyDecided,
    Conflict,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    RunActive,
    StorageUnavailable,
)
from runstone.runners.base import Runner
from runstone.storage.base import Store

#: What has to happen before admission is tried again.
Obstacle = Awaitable[Any]
Stop = Callable[[str, str, str], Awaitable[Run]]
Answer = Callable[[Run, list[Decision], dict[str, Any]], Awaitable[int]]
Steer = Callable[[Run, list[Item]], Awaitable[int | None]]
Over = Callable[[str, str], Awaitable[None]]


class Starter:
    """Admits starts.

    `stop` ends a run for a reason; `answer` gives a waiting run decisions and returns the new leg; `steer` puts input into a
    running run and returns the event that delivered it, None when the run ended first; `over` waits for a run's outcome or
    for it to run.
    """

    def __init__(
        self,
        agents: Mapping[str, Runner],
        store: Store,
        live: LiveRuns,
        blobs: Blobs,
        *,
        config: EngineConfig,
        clock: Callable[[], float],
        ids: IdSource,
        default_agent: str,
        stop: Stop,
        answer: Answer,
        steer: Steer,
        over: Over,
    ) -> None:
        self.is_draining = False
        self._agents = agents
        self._store = store
        self._live = live
        self._blobs = blobs
        self._config = config
        self._clock = clock
        self._ids = ids
        self._default_agent = default_agent
        self._stop = stop
        self._answer = answer
        self._steer = steer
        self._over = over
        self._creator = Creator(store, live, blobs, config=config, clock=clock, ids=ids)

    async def start(self, owner: str, start: Start) -> Started:
        """See `Engine.start`. A caller that is cancelled leaves no run behind that nobody drives: the start goes on."""
        return await self._live.to_its_end(self._start(owner, start))

    async def _start(self, owner: str, start: Start) -> Started:
        choice = choose_agent(self._agents, start.agent, default=self._default_agent)
        check_tools(start, self._agents[choice.agent])
        check_recovery(start, self._agents[choice.agent])
        mark = fingerprint(start, choice.agent)
        there = await self._there(owner, start, mark)
        if there is not None:
            return there
        if self.is_draining:
            raise StorageUnavailable("The server is shutting down.", code="draining")
        self._check_room()
        parent = await self._parent(owner, start)
        session_id = parent.session_id if parent else start.session_id or self._ids.new("ses")
        candidate = Candidate(
            owner=owner,
            start=start,
            choice=choice,
            fingerprint=mark,
            session_id=session_id,
            live=self._live.sessions.get(owner, session_id),
            parent=parent,
            is_new_session=parent is None and start.session_id is None,
        )
        while True:
            async with candidate.live.lock:
                admitted = await self._admit(candidate)
            if not isinstance(admitted, Started):
                admitted = await admitted
            if isinstance(admitted, Started):
                return admitted

    def _check_room(self) -> None:
        """See that the server may take one more run.

        Raises:
            LimitExceeded: it is full.
        """
        most = self._config.max_runs
        if len(self._live.executions) >= most:
            raise LimitExceeded(
                f"{most} runs are going on; try again later.", limit=RATE_LIMIT, value=most, code="too_many_runs"
            )

    async def regenerate(self, owner: str, old: Run, start: Start) -> Started:
        """See `Engine.regenerate`."""
        return await self._live.to_its_end(self._regenerate(owner, old, start))

    async def _regenerate(self, owner: str, old: Run, start: Start) -> Started:
        """`start.input` is empty when the turn's own input is to be answered again."""
        mark = fingerprint(start, old.agent)
        there = await self._there(owner, start, mark)
        if there is not None:
            return there
        if self.is_draining:
            raise StorageUnavailable("The server is shutting down.", code="draining")
        self._check_room()
        if old.agent in self._agents:
            check_branch(self._agents[old.agent])
        candidate = Candidate(
            owner=owner,
            start=start,
            choice=Choice(agent=old.agent, model=old.model, is_override=old.settings.model is not None),
            fingerprint=mark,
            session_id=old.session_id,
            live=self._live.sessions.get(owner, old.session_id),
            parent=None,
            replaces=old,
        )
        async with candidate.live.lock:
            return await self._replace(candidate, old)

    async def _replace(self, c: Candidate, old: Run) -> Started:
        c.session = await self._store.session(c.owner, c.session_id)
        c.head = await self._live.current(c.owner, c.session.head if c.session else None)
        for run in (await self._live.current(c.owner, old.id), c.head):
            if run is not None and run.outcome is None:
                raise RunActive(
                    f"The run {run.id!r} is {run.status}; a turn is regenerated when it is over.", run_id=run.id
                )
        c.base = await self._live.current(c.owner, old.continues)
        c.input = c.start.input
        if not c.input:
            rows = await self._store.run_rows(c.owner, old.id)
            c.input = [row.item for row in rows if row.is_input and row.seq == 1]
        return await self._creator.create(c)

    async def _there(self, owner: str, start: Start, mark: str) -> Started | None:
        """The run of an equal start."""
        if start.run_id is None and start.idempotency_key is None:
            return None
        there = await self._store.existing(
            owner, mark, run_id=start.run_id, key=start.idempotency_key, now=self._clock()
        )
        run = None if there is None else await self._live.current(owner, there.id)
        return None if run is None else Started(run=run, attached=True)

    async def _parent(self, owner: str, start: Start) -> Run | None:
        if start.continues is None:
            return None
        parent = await self._store.run(owner, start.continues)
        if parent is None or not parent.store:
            raise NotFound("run", start.continues, code="previous_response_not_found", param="previous_response_id")
        if start.session_id is not None and start.session_id != parent.session_id:
            raise InvalidRequest("The session is not that of the response to continue.", param="session_id")
        return parent

    async def _admit(self, candidate: Candidate) -> Started | Obstacle:
        """One try under the session's lock: a start that was let in, or what has to happen before the next try."""
        c, start = candidate, candidate.start
        # Once more: an equal start may have been let in while this one waited for the lock.
        there = await self._there(c.owner, start, c.fingerprint)
        if there is not None:
            return there
        c.ahead = None
        if c.is_new_session:
            return await self._create_first(c)
        c.session = await self._store.session(c.owner, c.session_id)
        if c.session is None and start.session_must_exist:
            raise NotFound("session", c.session_id, param="session_id")
        c.head = await self._live.current(c.owner, c.session.head if c.session else None)
        c.base = await self._live.current(c.owner, c.parent.id) if c.parent else c.head
        c.input, decisions = split_answers(start, self._pending(c.base))
        if decisions:
            return await self._answered(c, decisions)
        settling = self._live.settling(c.base)
        if settling is not None:
            return settling
        ahead = await self._live.ahead_of(c.base)
        obstacle = None if ahead is None else self._obstacle(c, ahead)
        if obstacle is not None:
            return obstacle
        if start.reuses_history and c.head is not None:
            c.base = await self._base_of_repeated(c, c.head)
            c.input = new_input(c.input)
        if c.head is not None and (c.base is None or c.base.id != c.head.id):
            check_branch(self._agents[c.choice.agent])
        return await self._creator.create(c)

    async def _create_first(self, c: Candidate) -> Started:
        """For a session that was made for this start: nothing of it is in the store, so nothing is read."""
        c.input = c.start.input
        if c.start.decisions:
            raise NotFound("approval", c.start.decisions[0].approval_id, param="input", code="approval_not_found")
        return await self._creator.create(c)

    def _pending(self, run: Run | None) -> Sequence[PendingApproval | ApprovalRequested]:
        """The approvals that can be decided now, also while the agent goes on elsewhere."""
        if run is None or run.outcome is not None:
            return []
        recording = self._live.recordings.get((run.owner, run.id))
        return run.approvals if recording is None else list(recording.state.approvals.values())

    async def _answered(self, c: Candidate, decisions: list[Decision]) -> Started:
        waiting = c.base
        if waiting is None:
            raise NotFound("approval", decisions[0].approval_id, param="input", code="approval_not_found")
        if waiting.outcome is not None:
            raise await self._too_late(waiting, decisions[0].approval_id)
        if c.input:
            raise InvalidRequest(
                "Answers to approvals cannot come together with new messages; send the messages when the run has ended.",
                param="input",
            )
        leg_index = await self._answer(waiting, decisions, c.start.echo)
        run = await self._live.current(c.owner, waiting.id)
        assert run is not None
        return Started(run=run, leg_index=leg_index)

    async def _too_late(self, run: Run, approval_id: str) -> NotFound | AlreadyDecided:
        for row in await self._store.run_rows(run.owner, run.id):
            if isinstance(row.item, ApprovalItem) and row.item.approval_id == approval_id:
                return AlreadyDecided(
                    f"The approval {approval_id!r} has its decision already.",
                    run_id=run.id,
                    code="approval_not_pending",
                )
        return NotFound("approval", approval_id, param="input", code="approval_not_found")

    async def _steered(self, c: Candidate, head: Run) -> Started | None:
        """Put the input into the running run; None when that came too late, so that it has to become a start of its own."""
        items = await self._blobs.stored(c.owner, c.input)
        delivered = await self._steer(head, items)
        return None if delivered is None else Started(run=head, attached=True, after=delivered)

    def _obstacle(self, c: Candidate, ahead: Run) -> Obstacle | None:
        """What has to happen to `ahead` before this start, by the busy policy; None when it is queued behind it.

        Raises:
            RunActive: the policy is to reject.
        """
        policy = c.start.busy or self._creator.policies(c).busy or self._config.busy
        if policy == "queue":
            c.ahead = ahead
            return None
        if ahead.status == "waiting":
            return self._stop(c.owner, ahead.id, "superseded")
        if policy == "stop":
            return self._stop(c.owner, ahead.id, "replaced")
        if policy == "steer":
            check_steerable(self._agents[ahead.agent])
            return self._steered(c, ahead) if ahead.status == "running" else self._over(c.owner, ahead.id)
        raise RunActive(
            f"The run {ahead.id!r} of this session is {ahead.status}; wait for it, stop it, or ask to queue.",
            run_id=ahead.id,
        )

    async def _base_of_repeated(self, c: Candidate, head: Run) -> Run:
        """For a request that repeats the session's history: the run whose end it repeats.

        Raises:
            Conflict: it repeats something else (`history_mismatch`).
        """
        said = repeated(c.input)
        rows = await self._store.chain_rows(c.owner, c.session_id, head.id)
        known = spoken([row.item for row in rows])
        if not said or said == known[-len(said) :]:
            return head
        # A turn that got no answer is asked again: clients leave it out of what they repeat.
        answered = known[:-1] if known and known[-1][0] == "user" else known
        if not c.start.replaces_history and said != answered[-len(said) :]:
            raise Conflict(
                "The messages before the last one differ from the session's history; `history: replace` makes a branch.",
                code="history_mismatch",
            )
        run = await self._live.current(c.owner, run_that_ends_with(said, rows))
        if run is not None:
            return run
        raise Conflict("No turn of this session ends with the messages given.", code="history_mismatch")
