"""Puts the parts together: settings, agents, storage, engine, HTTP."""

from __future__ import annotations

import contextlib
import importlib
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
from runstone.runners.base import Runner
from runstone.runners.function import agent, runner_for
from runstone.runners.hooks import RunnerOptions
from runstone.runners.threads import SyncAgentContext
from runstone.server.app import HttpApp
from runstone.server.auth import check_exposure
from runstone.server.serving import run_server
from runstone.storage.base import FileStore, Store
from runstone.storage.files import DiskFiles
from runstone.storage.memory import MemoryFiles, MemoryStore
from runstone.storage.sqlite import SqliteStore

__all__ = ["AgentContext", "App", "SyncAgentContext", "agent", "load_agent", "run_app", "serve"]

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
            ConfigError: nothing can be loaded from a target, or two have one name.
        """
        agents: dict[str, Any] = {}
        for word in targets:
            name, target = _split_target(word)
            loaded = load_agent(target)
            name = name or _name_of(loaded)
            if name in agents:
                raise ConfigError(f"two agents are called {name!r}; say NAME=TARGET", option="agents")
            agents[name] = loaded
        return cls(agents, config=config)

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


def runners_of(agents: Any, config: Config, *, name: str | None = None) -> dict[str, Runner]:  # noqa: ANN401
    """The runners of an agent or of agents by name.

    Raises:
        ConfigError: one is nothing that a runner knows, or there is none.
    """
    options = RunnerOptions(threads=config.engine.max_blocking_calls)
    by_name = dict(agents) if isinstance(agents, Mapping) else {name or _name_of(agents): agents}
    if not by_name:
        raise ConfigError("there is no agent to serve", option="agents")
    runners: dict[str, Runner] = {}
    for called, candidate in by_name.items():
        runner = runner_for(candidate, options)
        if runner is None:
            raise ConfigError(f"{called!r} is a {type(candidate).__name__!r}, which is no agent", option="agents")
        runners[called] = runner
    return runners


def _name_of(agent: Any) -> str:  # noqa: ANN401
    return str(getattr(agent, "__name__", None) or "agent")


def storage_of(config: StorageConfig) -> tuple[Store, FileStore]:
    """The stores that `storage.url` names: files lie beside the database.

    Raises:
        ConfigError: it is a URL of something that is not there.
    """
    url = config.url
    if url == _MEMORY:
        return MemoryStore(), MemoryFiles()
    place = url.removeprefix(_SQLITE)
    if "://" in place or not place:
        raise ConfigError(
            f"storage.url is {url!r}; expected 'memory', a path, or a sqlite:/// URL", option="storage.url"
        )
    path = Path(place)
    files = DiskFiles(path.with_name(f"{path.stem}-files"), sync=config.synchronous == "FULL")
    return SqliteStore(path, synchronous=config.synchronous), files


def _split_target(word: str) -> tuple[str | None, str]:
    name, sign, target = word.partition("=")
    return (name, target) if sign and name and "/" not in name and ":" not in name else (None, word)


def load_agent(target: str) -> Any:  # noqa: ANN401
    """The agent that `module:name` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
