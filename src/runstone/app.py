"""Puts the parts together: settings, agents, storage, engine, HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from runstone.attachments import Extractor, Limits
from runstone.config import Config, StorageConfig
from runstone.engine.engine import Engine
from runstone.engine.payloads import ExtractedPayloads
from runstone.errors import ConfigError
from runstone.runners.agent_context import AgentContext
from runstone.runners.base import Capabilities, Runner
from runstone.runners.function import agent
from runstone.runners.hooks import RunnerOptions
from runstone.runners.load import load_all, name_of, runner_of
from runstone.runners.threads import SyncAgentContext
from runstone.server.app import HttpApp
from runstone.server.auth import check_exposure
from runstone.server.serving import run_server
from runstone.storage.base import FileStore, Store
from runstone.storage.files import DiskFiles
from runstone.storage.memory import MemoryFiles, MemoryStore
from runstone.storage.sqlite import SqliteStore

__all__ = ["AgentContext", "App", "SyncAgentContext", "agent", "run_app", "serve"]

_MEMORY: Final = "memory"
_SQLITE: Final = "sqlite:///"


class App:
    """Agents behind every protocol.

    Attributes:
        asgi: The application, to be served or mounted in another one (docs/howto/embed.md).
        engine: The verbs, for code in the same process.
        config: The settings in use.
    """

    def __init__(
        self,
        agents: Any,  # noqa: ANN401
        *,
        config: Config | None = None,
        storage: str | None = None,
        name: str | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """An app of one agent, or of several by name.

        Args:
            agents: An agent of any framework that Runstone knows, or a mapping of names to agents.
            config: All settings; the defaults without it.
            storage: In place of `storage.url`: `memory`, a path, or a `sqlite:///` URL.
            name: What a single agent is called; else what it calls itself.
            keys: In place of `server.keys`: API key -> user.

        Raises:
            ConfigError: something is no agent, or a setting cannot be used.
        """
        self.config = _config(config or Config(), storage, keys)
        runners = runners_of(agents, self.config, name=name)
        store, files = storage_of(self.config.storage)
        limits = Limits(
            **{field.name: getattr(self.config.attachments, field.name) for field in msgspec.structs.fields(Limits)}
        )
        self.engine = Engine(
            runners, store, files, config=self.config.engine, payloads=ExtractedPayloads(Extractor(limits))
        )
        self.asgi = HttpApp(self.engine, self.config)

    @classmethod
    def load(cls, targets: Sequence[str], *, config: Config | None = None) -> App:
        """An app of what stands behind some targets: `module:name`, a file, a project folder; `NAME=TARGET` names one.

        Raises:
            ConfigError: nothing can be loaded from a target, or a setting cannot be used.
        """
        config = config or Config()
        loaded = load_all(targets, options=options_of(config))
        return cls({one.name: one.runner for one in loaded}, config=config)

    async def close(self) -> None:
        """End what runs and close the database. Needed only where nobody runs the app's own lifespan."""
        await self.asgi.close()

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """The app's life, to be entered in the lifespan of the application that it is mounted in."""
        await self.asgi.open()
        try:
            yield
        finally:
            await self.asgi.close()


def serve(
    agents: Any,  # noqa: ANN401
    *,
    host: str | None = None,
    port: int | None = None,
    config: Config | None = None,
    storage: str | None = None,
    name: str | None = None,
    keys: Mapping[str, str] | None = None,
) -> None:
    """Serve agents over HTTP until the process is told to end.

    Raises:
        ConfigError: see `App`; or the server would be open to others without keys.
    """
    config = config or Config()
    given = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, **given))
    run_app(App(agents, config=config, storage=storage, name=name, keys=keys))


def run_app(app: App, *, ready: Callable[[str], None] | None = None) -> None:
    """Serve an app until the process is told to end; `ready` is called with the address when it listens.

    Raises:
        ConfigError: the server would be open to others without keys, or its address cannot be used.
    """
    check_exposure(app.config.server)
    run_server(app.asgi, app.config.server, ready=ready)


def _config(config: Config, storage: str | None, keys: Mapping[str, str] | None) -> Config:
    if storage is not None:
        config = msgspec.structs.replace(config, storage=msgspec.structs.replace(config.storage, url=storage))
    if keys is not None:
        config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, keys=dict(keys)))
    return config


def options_of(config: Config) -> RunnerOptions:
    """How runners are made under these settings; checkpoints lie beside the database."""
    path = database_of(config.storage)
    checkpoints = None if path is None else path.with_name(f"{path.stem}-checkpoints.db")
    return RunnerOptions(checkpoint_path=checkpoints, threads=config.engine.max_blocking_calls)


def runners_of(agents: Any, config: Config, *, name: str | None = None) -> dict[str, Runner]:  # noqa: ANN401
    """The runners of an agent or of agents by name; what is a runner already stays as it is.

    Raises:
        ConfigError: one is nothing that a runner knows, or there is none.
    """
    by_name = dict(agents) if isinstance(agents, Mapping) else {name or _name_of(agents): agents}
    if not by_name:
        raise ConfigError("there is no agent to serve", option="agents")
    return {str(called): _runner(str(called), candidate, config) for called, candidate in by_name.items()}


def _runner(name: str, candidate: Any, config: Config) -> Runner:  # noqa: ANN401
    if isinstance(getattr(candidate, "capabilities", None), Capabilities):
        ready: Runner = candidate
        return ready
    runner = runner_of(candidate, options_of(config))
    if runner is None:
        kind = type(candidate).__name__
        raise ConfigError(f"{name!r} is a {kind!r}, which is no agent that Runstone knows", option="agents")
    return runner


def _name_of(candidate: Any) -> str:  # noqa: ANN401
    return name_of(candidate) or str(getattr(candidate, "__name__", None) or "agent")


def database_of(config: StorageConfig) -> Path | None:
    """The database's file, None for memory.

    Raises:
        ConfigError: `storage.url` is a URL of something that is not there.
    """
    if config.url == _MEMORY:
        return None
    place = config.url.removeprefix(_SQLITE)
    if "://" in place or not place:
        raise ConfigError(
            f"storage.url is {config.url!r}; expected 'memory', a path, or a sqlite:/// URL", option="storage.url"
        )
    return Path(place)


def reading_store(config: StorageConfig) -> Store:
    """The database that `storage.url` names, for a command that only reads, beside a server or without one.

    Raises:
        ConfigError: there is nothing to read: it is in memory, or see `database_of`.
    """
    path = database_of(config)
    if path is None:
        raise ConfigError("storage.url is 'memory', which only its own server can read", option="storage.url")
    return SqliteStore(path, read_only=True)


def storage_of(config: StorageConfig) -> tuple[Store, FileStore]:
    """The stores that `storage.url` names: files lie beside the database.

    Raises:
        ConfigError: see `database_of`.
    """
    path = database_of(config)
    if path is None:
        return MemoryStore(), MemoryFiles()
    files = DiskFiles(path.with_name(f"{path.stem}-files"), sync=config.synchronous == "FULL")
    return SqliteStore(path, synchronous=config.synchronous), files
