"""Putting an app together, and into another one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import runstone
from runstone.app import App, database_of
from runstone.config import Config, ServerConfig, StorageConfig
from runstone.errors import ConfigError
from runstone.server.auth import Keys, check_exposure, is_loopback
from runstone.server.hosts import HostPolicy
from runstone.testing import ScriptedRunner, said
from tests.behaviour.client import Client


async def hello(messages: list[dict[str, Any]]) -> str:
    """An agent."""
    return "hello"


@pytest.fixture
async def app() -> AsyncIterator[App]:
    """An app in memory."""
    app = App(hello, storage="memory")
    yield app
    await app.close()


async def test_an_agent_is_called_what_it_calls_itself(app: App) -> None:
    """A function's own name, or the given one, is the model's name."""
    assert list(app.engine.agents) == ["hello"]
    assert list(App(hello, storage="memory", name="other").engine.agents) == ["other"]
    assert list(App({"a": hello, "b": ScriptedRunner(said("x"))}, storage="memory").engine.agents) == ["a", "b"]


@pytest.mark.parametrize("nothing", [3, "text", {}, {"a": None}, object()])
def test_what_is_no_agent_stops_the_start(nothing: Any) -> None:
    """Anything that no runner knows is a ConfigError."""
    with pytest.raises(ConfigError):
        App(nothing, storage="memory")


def test_storage_by_its_url(tmp_path: Path) -> None:
    """A path and a sqlite URL are the same place; other URLs stop the start."""
    assert database_of(StorageConfig(url="memory")) is None
    assert database_of(StorageConfig(url="a/b.db")) == Path("a/b.db")
    assert database_of(StorageConfig(url="sqlite:///a/b.db")) == Path("a/b.db")
    assert database_of(StorageConfig(url="sqlite:////a/b.db")) == Path("/a/b.db")
    for url in ("postgresql://x", "sqlite:///", "", "redis://x"):
        with pytest.raises(ConfigError):
            database_of(StorageConfig(url=url))


async def test_one_server_per_database(tmp_path: Path) -> None:
    """A second app on the same file does not open."""
    first = App(hello, storage=str(tmp_path / "runs.db"))
    second = App(hello, storage=str(tmp_path / "runs.db"))
    await first.asgi.open()
    with pytest.raises(runstone.RunstoneError):
        await second.asgi.open()
    await first.close()
    await second.asgi.open()
    await second.close()


async def test_mounted_without_a_lifespan(app: App) -> None:
    """In an application that knows nothing of it, it opens at the first requests, once."""
    outer = Client(Starlette(routes=[Mount("/agents", app=app.asgi)]))
    answers = await asyncio.gather(
        *(outer.post("/agents/v1/responses", {"model": "hello", "input": "x"}) for _ in range(5))
    )
    assert [answer.json["output_text"] for answer in answers] == ["hello"] * 5
    assert (await outer.get("/agents/docs")).status == 200
    assert (await outer.get("/v1/models")).status == 404


async def test_mounted_with_a_lifespan(app: App) -> None:
    """In an application that enters its lifespan, it is open before the first request and closed after the last."""

    @contextlib.asynccontextmanager
    async def lifespan(outer: Starlette) -> AsyncIterator[None]:
        async with app.lifespan():
            yield

    outer = Starlette(routes=[Mount("/", app=app.asgi)], lifespan=lifespan)
    messages: asyncio.Queue[Any] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    life = asyncio.create_task(outer({"type": "lifespan", "asgi": {}}, messages.get, sent.put))
    await messages.put({"type": "lifespan.startup"})
    assert (await sent.get())["type"] == "lifespan.startup.complete"
    assert (await Client(outer).get("/v1/models")).status == 200
    await messages.put({"type": "lifespan.shutdown"})
    assert (await sent.get())["type"] == "lifespan.shutdown.complete"
    await life
    assert app.engine.is_draining


async def test_its_own_lifespan(tmp_path: Path) -> None:
    """As the outermost application it opens at startup, says why when it cannot, and closes at shutdown."""
    app = App(hello, storage=str(tmp_path / "runs.db"))
    other = App(hello, storage=str(tmp_path / "runs.db"))
    await other.asgi.open()
    assert (await startup(app))[0]["type"] == "lifespan.startup.failed"
    await other.close()
    assert [message["type"] for message in await startup(app)] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


async def startup(app: App) -> list[Any]:
    """What the app says to its start and its end."""
    sent: list[Any] = []
    orders = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(orders)

    async def send(message: Any) -> None:
        sent.append(message)

    await app.asgi({"type": "lifespan"}, receive, send)
    return sent


def test_a_server_for_others_needs_keys() -> None:
    """Listening beyond loopback without keys stops the start."""
    for host in ("0.0.0.0", "::", "192.168.1.2", "box.lan", ""):
        with pytest.raises(ConfigError, match="no keys"):
            check_exposure(ServerConfig(host=host))
        check_exposure(ServerConfig(host=host, keys={"sk-x": "ann"}))
    for host in ("127.0.0.1", "localhost", "::1", "127.3.2.1"):
        check_exposure(ServerConfig(host=host))
        assert is_loopback(host)


@pytest.mark.parametrize("keys", [{"": "ann"}, {"sk": ""}, {"s k": "ann"}, {"sk\n": "ann"}, {"\u00a0": "ann"}])
def test_keys_that_cannot_be_sent(keys: dict[str, str]) -> None:
    """A key that no header can carry, or without a user, stops the start."""
    with pytest.raises(ConfigError, match="empty user"):
        Keys(keys)


@pytest.mark.parametrize("origin", ["*", "https://*.example", "example.com", "https://x/y", ""])
def test_origins_are_written_out(origin: str) -> None:
    """An origin that is a pattern, or none, stops the start."""
    with pytest.raises(ConfigError, match="origins"):
        HostPolicy(ServerConfig(origins=[origin]))


def test_public_names_load_when_they_are_used() -> None:
    """Each public name is there, and an unknown one is an AttributeError."""
    for name in set(runstone.__all__) - {"__version__"}:
        assert getattr(runstone, name).__name__ == name
    assert set(runstone.__all__) <= set(dir(runstone))
    with pytest.raises(AttributeError, match="nonsense"):
        runstone.nonsense  # noqa: B018


async def test_keys_given_to_the_app(app: App) -> None:
    """`keys` replaces the setting."""
    keyed = App(hello, storage="memory", keys={"sk-x": "ann"})
    assert (await Client(keyed.asgi).get("/v1/models")).status == 401
    assert (await Client(keyed.asgi, key="sk-x").get("/v1/models")).status == 200
    await keyed.close()


async def test_settings_of_attachments_reach_the_reader() -> None:
    """Limits of attachments come from the settings."""
    config = Config()
    small = msgspec.structs.replace(config.attachments, max_bytes=-1)
    with pytest.raises(ConfigError, match="max_bytes"):
        App(hello, storage="memory", config=msgspec.structs.replace(config, attachments=small))
