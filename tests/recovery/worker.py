"""A process with runs on a database, for tests that kill it: each line on its output is an event that a reader has."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from runstone.config import EngineConfig
from runstone.core.runs import RunRequest
from runstone.engine.engine import Engine
from runstone.runners.base import RunContext
from runstone.runners.compose import Composer
from runstone.storage.files import DiskFiles
from runstone.storage.sqlite import SqliteStore
from runstone.testing import ScriptedRunner
from tests.engine.support import OWNER, ask
from tests.engine.test_approvals import Gatekeeper

SESSIONS = 6


async def busy(request: RunRequest, context: RunContext) -> None:
    """Talks and uses tools, for long."""
    composer = Composer(context)
    for n in range(300):
        for word in ("one ", "two ", "three "):
            composer.text(word)
            if context.must_wait:
                await context.wait()
        call = composer.tool_call("tool", {"n": n})
        composer.tool_started(call)
        await asyncio.sleep(0)
        composer.tool_result(call, f"result {n}")
    composer.close()


def engine_on(folder: Path, **config: Any) -> Engine:
    """An engine on the database in `folder`."""
    return Engine(
        {"busy": ScriptedRunner(busy), "keeper": ScriptedRunner(Gatekeeper("a1"))},
        SqliteStore(folder / "runs.db"),
        DiskFiles(folder / "files"),
        config=EngineConfig(**config),
    )


async def tell(engine: Engine, run_id: str) -> None:
    """Print the run's events as they become visible."""
    reader = await engine.reader(OWNER, run_id)
    while events := await reader.read():
        for event in events:
            sys.stdout.buffer.write(msgspec.json.encode((run_id, event)) + b"\n")
        sys.stdout.buffer.flush()
    reader.close()


async def main(folder: Path) -> None:
    """Turns in several sessions until the process is killed."""
    engine = engine_on(folder)
    await engine.open()

    async def session(n: int) -> None:
        name = f"s{n}"
        if n == 0:
            # Waits for a decision from here on, with a run queued behind it.
            started = await engine.start(OWNER, ask("may I", agent="keeper", session_id=name, run_id="waiting"))
            await engine.start(OWNER, ask("then", session_id=name, run_id="queued", busy="queue"))
            await tell(engine, started.run.id)
        turn = 0
        while True:
            turn += 1
            policy: Any = "retry" if n == 1 else "interrupted"
            started = await engine.start(OWNER, ask(f"turn {turn}", session_id=name, recovery=policy))
            await tell(engine, started.run.id)

    await asyncio.gather(*(session(n) for n in range(SESSIONS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
