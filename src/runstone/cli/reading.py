"""The database, to be read beside a server that runs."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from runstone.cli.settings import settings_of
from runstone.core.events import Event
from runstone.core.ids import LOCAL_OWNER
from runstone.core.runs import Run
from runstone.errors import NotFound
from runstone.storage.base import Store

T = TypeVar("T")
_PAGE: Final = 1_000


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of every command that reads."""
    command.add_argument("--db", help="the database: a path or a URL (storage.url, .runstone/runstone.db)")
    command.add_argument("--config", type=Path, metavar="FILE", help="settings file (runstone.yaml when it is there)")
    command.add_argument("--user", default=LOCAL_OWNER, help="whose runs, where the server has keys (local)")
    command.add_argument("--json", action="store_true", help="one JSON object a line")


def read(options: argparse.Namespace, use: Callable[[Store], Awaitable[T]]) -> T:
    """What `use` gives of the database, which is opened for reading only.

    Raises:
        ConfigError: there is none, or it is of another version.
        StorageUnavailable: it cannot be read now.
    """
    from runstone.app import reading_store

    store = reading_store(settings_of(options).storage)

    async def opened() -> T:
        await store.open()
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(opened())


async def run_of(store: Store, owner: str, run_id: str) -> Run:
    """The run.

    Raises:
        NotFound: the user has none of that id.
    """
    run = await store.run(owner, run_id)
    if run is None:
        raise NotFound("run", run_id)
    return run


async def events_of(store: Store, run: Run) -> list[Event]:
    """All that the log has of a run."""
    events: list[Event] = []
    while page := await store.events(run.owner, run.id, after=events[-1].seq if events else 0, limit=_PAGE):
        events += page
    return events


def status_of(run: Run) -> str:
    """Its status and, when there is one, why."""
    return run.status if run.reason is None else f"{run.status} ({run.reason})"


def shown(value: Any) -> Any:  # noqa: ANN401
    """A record as plain JSON data."""
    import msgspec

    return msgspec.to_builtins(value)
