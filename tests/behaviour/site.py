"""A server under test: an agent that the test controls, and a store that outlives a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from runstone.app import App
from runstone.config import Config, ServerConfig
from runstone.runners.agent_context import AgentContext
from runstone.runners.function import agent
from tests.behaviour.client import Client

Say = Callable[[list[dict[str, Any]], AgentContext], AsyncIterator[str]]


class Site:
    """One database and the server over it.

    What the agent does is `say`, which a test may replace: it yields words. Without it the agent says `gate` closed words, one
    for each `step()`: see `stepwise`.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.config = Config()
        self.calls = 0
        self.prompts: list[str] = []
        self.say: Say = echo
        self.app: App

    async def open(self) -> None:
        """Start the server."""
        url = "memory" if self.kind == "memory" else str(self.folder / "runs.db")
        self.app = App(self._agent(), config=self.config, storage=url, name="agent")
        await self.app.asgi.open()

    async def close(self) -> None:
        """End the server."""
        await self.app.close()

    async def restart(self, **server: Any) -> None:
        """End it and start it again, with other settings of the server."""
        await self.close()
        self.configure(**server)
        await self.open()

    def configure(self, **server: Any) -> None:
        """Other settings of the server, for the next start."""
        self.config = msgspec.structs.replace(self.config, server=msgspec.structs.replace(self.config.server, **server))

    async def with_keys(self) -> tuple[Client, Client]:
        """Start again with keys; the clients of two users."""
        await self.restart(keys={"sk-ann": "ann", "sk-bob": "bob"})
        return self.client(key="sk-ann"), self.client(key="sk-bob")

    def client(self, *, key: str | None = None) -> Client:
        """A client of the server as it is now."""
        return Client(self.app.asgi, key=key)

    def _agent(self) -> Any:
        @agent(approvals=True)
        async def scripted(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
            self.calls += 1
            self.prompts.append(prompt_of(messages))
            async for word in self.say(messages, context):
                yield word

        return scripted


def prompt_of(messages: list[dict[str, Any]]) -> str:
    """The text of the newest message."""
    content = messages[-1]["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


async def echo(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Repeats the newest message, in two words."""
    yield "You said: "
    yield prompt_of(messages)


class Steps:
    """An agent that says one word each time it is told to, and ends when told to.

    `started` is set when it runs. `words` it said so far.
    """

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self._orders: asyncio.Queue[str | None] = asyncio.Queue()
        self.was_cancelled = False

    async def __call__(self, messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        """The agent."""
        self.started.set()
        try:
            while (word := await self._orders.get()) is not None:
                yield word
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    def word(self, *words: str) -> None:
        """Say these."""
        for word in words:
            self._orders.put_nowait(word)

    def end(self) -> None:
        """Return."""
        self._orders.put_nowait(None)


def exposed() -> ServerConfig:
    """A server that others can reach."""
    return ServerConfig(host="0.0.0.0", keys={"sk-ann": "ann"})
