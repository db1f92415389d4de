"""Engines over a store that can fail, fakes for agents, and short ways to say what a test does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from runstone.config import EngineConfig
from runstone.core.commands import Start
from runstone.core.events import Event, TextDelta
from runstone.core.items import Item, Message, user_message
from runstone.core.runs import Run, RunRequest
from runstone.engine.engine import Engine
from runstone.errors import StorageUnavailable
from runstone.runners.base import RunContext, Runner
from runstone.runners.compose import Composer
from runstone.runners.function import FunctionRunner
from runstone.storage.base import Append, Store
from runstone.storage.memory import MemoryFiles, MemoryStore
from runstone.storage.sqlite import SqliteStore
from runstone.testing import ManualClock, ScriptedRunner

OWNER = "local"
#: Longer than anything here takes; a test that waits so long has failed.
PATIENCE = 10.0


class TroubledStore:
    """A store whose appends can be made to fail, or to hang for ever as those of a dead process do."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.failing: Exception | None = None
        self.failing_runs: set[str] | None = None
        self.is_dead = False
        self.failures = 0
        self.appends = 0
        self.hold: asyncio.Event | None = None
        #: Methods that are called in place of the inner store's.
        self.instead: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return self.instead[name] if name in self.instead else getattr(self.inner, name)

    def append(self, batch: Append) -> asyncio.Future[None]:
        """Fail, hang, wait or pass the batch on, as the test wants it."""
        loop = asyncio.get_running_loop()
        if self.is_dead:
            return loop.create_future()
        if self.failing is not None and (self.failing_runs is None or batch.run_id in self.failing_runs):
            self.failures += 1
            failed: asyncio.Future[None] = loop.create_future()
            failed.set_exception(self.failing)
            return failed
        self.appends += 1
        if self.hold is not None and not self.hold.is_set():
            return asyncio.ensure_future(self._later(batch, self.hold))
        return self.inner.append(batch)

    async def _later(self, batch: Append, hold: asyncio.Event) -> None:
        await hold.wait()
        await self.inner.append(batch)

    def fail(self, *, only: str | None = None) -> None:
        """Take no more appends, of one run or of all."""
        self.failing = StorageUnavailable("The disk is full.")
        self.failing_runs = None if only is None else {only}

    def heal(self) -> None:
        """Work again."""
        self.failing = None


class World:
    """One database and whoever uses it, one engine after the other."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._path = folder / "runs.db"
        self._memory = MemoryStore()
        self._files = MemoryFiles()
        self.store = self._new_store()
        self._others: set[asyncio.Task[Any]] = set()

    def _new_store(self) -> TroubledStore:
        if self.kind == "memory":
            return TroubledStore(self._memory)
        return TroubledStore(SqliteStore(self._path, longest_wait=0.0))

    def engine(
        self, agents: Agent | Mapping[str, Agent], *, clock: Callable[[], float] | None = None, **config: Any
    ) -> Engine:
        """An engine that is not open yet."""
        self._others = asyncio.all_tasks()
        self.store = self._new_store()
        named = agents if isinstance(agents, Mapping) else {"agent": agents}
        return Engine(
            {name: runner_of(agent) for name, agent in named.items()},
            self.store,
            self._files,
            config=msgspec.structs.replace(EngineConfig(stop_after=0.3), **config),
            clock=clock or ManualClock(),
        )

    @asynccontextmanager
    async def running(
        self, agents: Agent | Mapping[str, Agent], *, clock: Callable[[], float] | None = None, **config: Any
    ) -> AsyncIterator[Engine]:
        """An open engine; when it has closed, nothing of it may be left behind."""
        engine = self.engine(agents, clock=clock, **config)
        await engine.open()
        try:
            yield engine
        except BaseException:
            await engine.close()
            raise
        await engine.close()
        check_nothing_left(engine)

    async def crash(self, engine: Engine) -> None:
        """End the engine as the death of its process does: nothing more is written, nobody is told."""
        self.store.is_dead = True
        tasks = asyncio.all_tasks() - self._others - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=PATIENCE)
        await self.store.inner.close()


Script = Callable[[RunRequest, RunContext], Awaitable[None]]
Agent = Runner | Script


def runner_of(agent: Agent) -> Runner:
    """A script is a runner too."""
    return ScriptedRunner(agent) if not hasattr(agent, "capabilities") else agent  # type: ignore[return-value]


def function(agent: Callable[..., Any]) -> Runner:
    """A plain function as an agent."""
    return FunctionRunner(agent)


def speaking(*chunks: str) -> Script:
    """An agent that says `chunks` in one message."""

    async def script(request: RunRequest, context: RunContext) -> None:
        composer = Composer(context)
        for chunk in chunks:
            composer.text(chunk)
            if context.must_wait:
                await context.wait()
        composer.close()

    return script


async def echo(request: RunRequest, context: RunContext) -> None:
    """Says the newest user message back, and how many messages it was told before."""
    composer = Composer(context)
    composer.text(f"{text_of(request.input)} after {len(request.history)}")
    composer.close()


class Held:
    """An agent that says `before`, waits to be let go, and says `after`. `started` is set when it waits."""

    def __init__(self, before: str = "one ", after: str = "two") -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.requests: list[RunRequest] = []
        self.was_cancelled = False
        self._before = before
        self._after = after

    async def __call__(self, request: RunRequest, context: RunContext) -> None:
        """Run."""
        self.requests.append(request)
        composer = Composer(context)
        composer.text(self._before)
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        composer.text(self._after)
        composer.close()


def ask(text: str = "hello", **fields: Any) -> Start:
    """A start with one user message."""
    fields.setdefault("body", text.encode("utf-8", "surrogatepass"))
    return Start(surface="test", input=[user_message("in1", text)], **fields)


async def read_all(engine: Engine, run_id: str, *, after: int = 0, owner: str = OWNER) -> list[Event]:
    """What follows `after`, to the run's end."""
    reader = await engine.reader(owner, run_id, after=after)
    events: list[Event] = []
    try:
        while found := await bounded(reader.read()):
            events += found
    finally:
        reader.close()
    return events


async def read_until(engine: Engine, run_id: str, kind: type, *, after: int = 0, owner: str = OWNER) -> list[Event]:
    """What follows `after`, up to and with the first body of `kind`."""
    reader = await engine.reader(owner, run_id, after=after)
    events: list[Event] = []
    try:
        while found := await bounded(reader.read()):
            for event in found:
                events.append(event)
                if isinstance(event.body, kind):
                    return events
    finally:
        reader.close()
    raise AssertionError(f"the run ended without {kind.__name__}")


async def ended(engine: Engine, run_id: str, *, owner: str = OWNER) -> Run:
    """The run with its outcome."""
    await read_all(engine, run_id, owner=owner)
    await left(engine, run_id, owner=owner)
    return await engine.run(owner, run_id)


async def left(engine: Engine, run_id: str, *, owner: str = OWNER) -> None:
    """Return when nothing drives the run any more; a reader may see its last event a moment before."""
    execution = engine.live.executions.get((owner, run_id))
    if execution is not None:
        await bounded(asyncio.wait({execution.task}))


async def turn(engine: Engine, text: str = "hello", **fields: Any) -> Run:
    """A whole turn: start, wait for the outcome."""
    started = await engine.start(OWNER, ask(text, **fields))
    return await ended(engine, started.run.id)


async def bounded(work: Awaitable[Any]) -> Any:
    """The result of `work`, which must not take long."""
    return await asyncio.wait_for(work, PATIENCE)


async def settle(rounds: int = 20) -> None:
    """Let everything that is ready have its turn."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def stored(world: World, run_id: str) -> None:
    """Return as soon as the store has the run, maybe before whoever started it knows."""
    found = None
    while found is None:
        await asyncio.sleep(0)
        found = await world.store.run(OWNER, run_id)


def text_of(items: list[Item]) -> str:
    """The messages' texts joined."""
    return "".join(item.text for item in items if isinstance(item, Message))


def text_in(events: list[Event]) -> str:
    """The text deltas joined."""
    return "".join(event.body.text for event in events if isinstance(event.body, TextDelta))


def kinds(events: list[Event]) -> list[str]:
    """The types of the bodies."""
    return [type(event.body).__name__ for event in events]


def check_numbers(events: list[Event], *, first: int = 1) -> None:
    """Seqs without gaps, rising positions, times that never go back."""
    assert [event.seq for event in events] == list(range(first, first + len(events)))
    assert all(a.position < b.position and a.at <= b.at for a, b in pairwise(events))


def check_nothing_left(engine: Engine) -> None:
    """After `close` nothing but runs that wait for the next process may be held."""
    live = engine.live
    assert live.executions == {}
    assert {key: recording.run.status for key, recording in live.recordings.items()} == dict.fromkeys(
        live.recordings, "queued"
    )
    assert [recording.readers for recording in live.recordings.values()] == [0] * len(live.recordings)
