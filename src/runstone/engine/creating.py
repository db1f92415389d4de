"""From a start that was admitted to a run that is there: items stored, record and first event written, agent launched."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from runstone.config import AgentPolicies, EngineConfig
from runstone.core.commands import Start
from runstone.core.events import Event, RunCreated
from runstone.core.items import Item, ToolCall, ToolResult
from runstone.core.lifecycle import RunState
from runstone.core.runs import Leg, Policies, Run, Session, Trigger
from runstone.engine.admission import Choice, check_results
from runstone.engine.blobs import Blobs
from runstone.engine.ids import IdSource
from runstone.engine.live import LiveRuns
from runstone.engine.scrub import storable
from runstone.engine.sessions import LiveSession, Positions
from runstone.engine.titles import title_of
from runstone.storage.base import Idempotency, NewRun, Store

_NO_POLICIES = AgentPolicies()


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """What a start led to: the run, the leg that answers it, and whether it only attached to a run that was there.

    `after`: the event from which on the run answers this start; above 0 only when the input was steered into a running run.
    """

    run: Run
    leg_index: int = 0
    attached: bool = False
    after: int = 0


class Candidate(msgspec.Struct, kw_only=True):
    """A start on its way through admission."""

    owner: str
    start: Start
    choice: Choice
    fingerprint: str
    session_id: str
    live: LiveSession
    parent: Run | None
    session: Session | None = None
    head: Run | None = None
    base: Run | None = None
    input: list[Item] = []
    ahead: Run | None = None
    replaces: Run | None = None
    is_new_session: bool = False

    @property
    def trigger(self) -> Trigger:
        """What brings the run about."""
        return "start" if self.replaces is None else "regenerate"


class Creator:
    """Makes runs. It decides nothing: what may be made was decided before (`starting`)."""

    def __init__(
        self,
        store: Store,
        live: LiveRuns,
        blobs: Blobs,
        *,
        config: EngineConfig,
        clock: Callable[[], float],
        ids: IdSource,
    ) -> None:
        self._store = store
        self._live = live
        self._blobs = blobs
        self._config = config
        self._clock = clock
        self._ids = ids

    async def create(self, c: Candidate) -> Started:
        """Make the run and have it driven, or queued behind `c.ahead`. Called with the session's lock held.

        Raises:
            InvalidRequest: a tool result answers nothing, or a file is not there.
            IdempotencyConflict: the id or the key was used with another body.
            StorageUnavailable: the store does not work.
        """
        check_results(c.input, await self._open_client_calls(c))
        items = [storable(item) for item in await self._blobs.stored(c.owner, c.input)]
        if c.is_new_session and c.live.positions is None:
            c.live.positions = Positions(1)
        positions = await self._live.sessions.positions(c.owner, c.session_id, c.live)
        title = await self._title(c, items)
        base = c.base.id if c.base is not None else None
        body = RunCreated(
            agent=c.choice.agent,
            model=c.choice.model,
            input=items,
            continues=base,
            trigger=c.trigger,
            queued=c.ahead is not None,
        )
        event = Event(1, positions.next(), self._clock(), 1, body)
        run = storable(self._run(c, event, base))
        session = c.session or Session(
            id=c.session_id,
            owner=c.owner,
            agent=c.choice.agent,
            created_at=event.at,
            updated_at=event.at,
            title=title,
            hidden=c.start.session_id is None,
        )
        new = NewRun(
            run=run,
            session=storable(session),
            event=event,
            fingerprint=c.fingerprint,
            idempotency=self._idempotency(c, event.at),
            expected_head=session.head,
        )
        async with self._live.loading(c.owner, run.id):
            with c.live.creating(run.id, event.position):
                created = await self._store.create_run(new)
            if not created.is_new:
                return Started(run=created.run, attached=True)
            state = RunState()
            state.advance(body)
            recording = self._live.record(run, c.live, state, last_seq=1, newest=[event])
        c.live.became_visible(run.id, [event])
        if c.ahead is not None:
            await self._live.launch_after(recording, c.ahead)
        else:
            self._live.launch(recording, is_new_session=c.is_new_session)
        return Started(run=run)

    async def _title(self, c: Candidate, items: list[Item]) -> str | None:
        """What the session is called by the first words said in it, also when it was made before; None when it keeps its name.

        Asked for before a position is taken: nothing may be awaited between that and `creating`.
        """
        session = c.session
        if session is None:
            return None if c.start.session_id is None else await title_of(self._store, c.owner, items)
        if session.head is not None or session.title is not None or session.hidden:
            return None
        title = await title_of(self._store, c.owner, items)
        if title is not None:
            c.session = msgspec.structs.replace(session, title=storable(title))
            await self._store.save_session(c.session)
        return None

    def policies(self, c: Candidate) -> AgentPolicies:
        """What is set for the agent that answers."""
        return self._config.agents.get(c.choice.agent, _NO_POLICIES)

    def _run(self, c: Candidate, event: Event, base: str | None) -> Run:
        start = c.start
        run_id = start.run_id or self._ids.new("run")
        model = c.choice.model if c.choice.is_override else None
        return Run(
            id=run_id,
            owner=c.owner,
            session_id=c.session_id,
            agent=c.choice.agent,
            turn=run_id if c.replaces is None else c.replaces.turn,
            trigger=c.trigger,
            created_at=event.at,
            continues=base,
            surface=start.surface,
            model=c.choice.model,
            settings=msgspec.structs.replace(start.settings, model=model),
            policies=Policies(
                disconnect=start.disconnect or self.policies(c).disconnect or self._config.disconnect,
                recovery=start.recovery or self.policies(c).recovery or self._config.recovery,
            ),
            metadata=start.metadata,
            store=start.store,
            background=start.background,
            first_position=event.position,
            last_seq=1,
            legs=[Leg(first_seq=1, created_at=event.at, echo=start.echo)],
        )

    def _idempotency(self, c: Candidate, now: float) -> Idempotency | None:
        key = c.start.idempotency_key
        if key is None:
            return None
        return Idempotency(key=key, fingerprint=c.fingerprint, expires_at=now + self._config.idempotency_ttl)

    async def _open_client_calls(self, c: Candidate) -> set[str]:
        if c.base is None or not any(isinstance(item, ToolResult) for item in c.input):
            return set()
        rows = await self._store.chain_rows(c.owner, c.session_id, c.base.id)
        return {row.item.call_id for row in rows if isinstance(row.item, ToolCall) and row.item.executor == "client"}
