"""A server that is killed under load: what its clients saw is there afterwards, and every run comes to a documented state."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from runstone.core.events import Event, RunEnded
from runstone.core.items import Item, ToolCall, ToolResult
from runstone.core.runs import RunRequest
from runstone.core.transcript import fold
from runstone.engine.engine import Engine
from runstone.errors import ConfigError
from runstone.runners.base import RunContext
from runstone.storage.files import DiskFiles
from runstone.storage.sqlite import SqliteStore
from runstone.testing import ScriptedRunner
from tests.engine.support import OWNER, bounded, check_numbers, ended, read_all, turn
from tests.engine.test_approvals import Gatekeeper, decided
from tests.recovery.worker import SESSIONS

#: How many times the process is killed; more with KILLS=20 in the environment.
KILLS = int(os.environ.get("KILLS", "5"))
ROOT = Path(__file__).resolve().parents[2]
_line = msgspec.json.Decoder(tuple[str, Event])


def begun(folder: Path) -> subprocess.Popen[bytes]:
    """A process with runs on a database."""
    command = [sys.executable, "-m", "tests.recovery.worker", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


def killed(folder: Path, after_lines: int) -> dict[str, list[Event]]:
    """What the readers of a process saw by run, which was killed when they had seen about so many events."""
    worker = begun(folder)
    assert worker.stdout is not None
    lines = [worker.stdout.readline() for _ in range(after_lines)]
    worker.send_signal(signal.SIGKILL)
    # Printed, and so seen, before the end.
    lines += worker.stdout.readlines()
    worker.stdout.close()
    worker.wait()
    seen: dict[str, list[Event]] = {}
    for line in lines:
        if line.endswith(b"\n"):
            run_id, event = _line.decode(line)
            seen.setdefault(run_id, []).append(event)
    return seen


class Listener:
    """An agent that remembers what it was told."""

    def __init__(self) -> None:
        self.requests: list[RunRequest] = []

    async def __call__(self, request: RunRequest, context: RunContext) -> None:
        """Run."""
        self.requests.append(request)


def check_well_formed(items: list[Item]) -> None:
    """Each call has exactly one result, which follows it."""
    calls = [item.call_id for item in items if isinstance(item, ToolCall)]
    results = [item.call_id for item in items if isinstance(item, ToolResult)]
    assert len(calls) == len(set(calls))
    assert sorted(calls) == sorted(results)
    places = {item.call_id: n for n, item in enumerate(items) if isinstance(item, ToolCall)}
    assert all(places[item.call_id] < n for n, item in enumerate(items) if isinstance(item, ToolResult))


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(KILLS))
async def test_kill_under_load(tmp_path: Path, seed: int) -> None:
    """No event that a reader saw is missing, numbers go on, no run stays running, the next turn is well formed (o-sto-01)."""
    rng = random.Random(seed)
    seen = killed(tmp_path, rng.randrange(50, 6_000))
    assert seen
    listener = Listener()
    engine = Engine(
        {"busy": ScriptedRunner(listener), "keeper": ScriptedRunner(Gatekeeper("a1"))},
        SqliteStore(tmp_path / "runs.db"),
        DiskFiles(tmp_path / "files"),
    )
    await engine.open()
    await check_seen(engine, seen)
    for run in await engine.store.unfinished():
        assert run.id in {"waiting", "queued"} or run.attempt == 2
        if run.status == "waiting":
            await engine.decide(OWNER, run.id, decided("a1"))
            assert (await ended(engine, run.id)).outcome == "completed"
    for n in range(SESSIONS):
        if await engine.store.session(OWNER, f"s{n}") is not None:
            await check_next_turn(engine, listener, f"s{n}")
    assert await engine.store.unfinished() == []
    await engine.close()
    assert engine.live.recordings == {}


async def check_seen(engine: Engine, seen: dict[str, list[Event]]) -> None:
    """What was seen is the beginning of what is there; it goes on without a gap to one end."""
    for run_id, events in seen.items():
        check_numbers(events)
        if (await engine.run(OWNER, run_id)).status == "waiting":
            stored = await engine.store.events(OWNER, run_id, after=0, limit=1_000)
            assert stored[: len(events)] == events
            continue
        run = await bounded(ended(engine, run_id))
        whole = await read_all(engine, run_id)
        check_numbers(whole)
        assert whole[: len(events)] == events
        assert [type(event.body) for event in whole].count(RunEnded) == 1
        assert run.outcome in ("completed", "interrupted")
        transcript = fold(run_id, whole)
        rows = await engine.store.run_rows(OWNER, run_id)
        assert rows == transcript.rows


async def check_next_turn(engine: Engine, listener: Listener, session_id: str) -> None:
    """The session takes another turn, whose positions go on and whose input is well formed."""
    before = await engine.store.last_position(OWNER, session_id)
    run = await turn(engine, "next", session_id=session_id, agent="busy", busy="queue")
    assert run.outcome == "completed"
    assert run.first_position > before
    check_well_formed([*listener.requests[-1].history, *listener.requests[-1].input])


@pytest.mark.slow
async def test_second_process_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    """Two servers never write to one file: the second does not open, and can when the first was killed (o-sto-03)."""
    worker = begun(tmp_path)
    assert worker.stdout is not None
    worker.stdout.readline()
    engine = Engine({"busy": ScriptedRunner([])}, SqliteStore(tmp_path / "runs.db"), DiskFiles(tmp_path / "files"))
    try:
        with pytest.raises(ConfigError):
            await engine.open()
    finally:
        worker.kill()
        worker.stdout.close()
        worker.wait()
    await engine.open()
    assert {run.reason for run in await engine.store.runs(OWNER) if run.outcome == "interrupted"} <= {
        "worker_lost",
        "agent_gone",
    }
    await engine.close()
