"""A server whose agent can everything, and short ways to say what a client of Hermes does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message

from runstone.runners.agent_context import AgentContext
from runstone.runners.function import agent
from tests.behaviour.client import PATIENCE, Answer, Client, Connection, Frame
from tests.behaviour.site import Site, prompt_of

OVER = {"completed", "failed", "cancelled", "interrupted"}


class Control(Site):
    """A site whose agent is steered, asks, and uses the client's tools."""

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        self.configure(drain_timeout=0.0)

    def _agent(self) -> Any:
        @agent(approvals=True, steers=True, client_tools=True)
        async def scripted(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
            self.calls += 1
            self.prompts.append(prompt_of(messages))
            async for word in self.say(messages, context):
                yield word

        return scripted

    async def open(self) -> None:
        """Start the server."""
        self._others = asyncio.all_tasks()
        await super().open()

    async def crash(self) -> None:
        """The server dies in the middle of everything, nobody is told; then another one opens the database."""
        # First, so that nothing is written that only ends because its process does.
        await self.app.engine.store.close()
        tasks = asyncio.all_tasks() - self._others - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=PATIENCE)
        await self.open()

    def hermes(self, *, key: str | None = None) -> Hermes:
        """A client of the server as it is now."""
        return Hermes(self.app.asgi, key=key)


class Hermes(Client):
    """A client of the session and runs APIs."""

    async def session(self, id: str = "s", **fields: Any) -> dict[str, Any]:
        """A new session."""
        answer = await self.post("/api/sessions", {"id": id, **fields})
        assert answer.status == 201, answer.body
        return dict(answer.json["session"])

    async def patch(self, target: str, body: Any) -> Answer:
        """PATCH."""
        return await self.ask("PATCH", target, json=body)

    async def say(self, text: str, session: str = "s", **fields: Any) -> Answer:
        """A turn as a body."""
        return await self.post(f"/api/sessions/{session}/chat", {"message": text, **fields})

    async def saying(
        self, text: str, session: str = "s", headers: dict[str, str] | None = None, **fields: Any
    ) -> Connection:
        """A turn as a stream."""
        body = {"message": text, **fields}
        return await self.open("POST", f"/api/sessions/{session}/chat/stream", json=body, headers=headers)

    async def begin(self, text: str, headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
        """A run; its receipt."""
        answer = await self.post("/v1/runs", {"input": text, **fields}, headers=headers)
        assert answer.status == 202, answer.body
        return dict(answer.json)

    async def touch(self, method: str, target: str, **more: Any) -> Answer:
        """The head of an answer that may not end; a refusal with its body."""
        connection = await self.open(method, target, **more)
        body = await connection.rest() if connection.status >= 400 else b""
        await connection.close()
        return Answer(connection.status, connection.headers, body)

    async def socket(self, target: str, *, headers: Any = (), subprotocols: Any = (), key: str | None = None) -> Socket:
        """A WebSocket, opened or refused."""
        sent = [("host", "localhost"), *headers]
        if key is not None:
            sent.append(("authorization", f"Bearer {key}"))
        return await Socket(self._app, target, sent, list(subprotocols)).opened()

    async def run(self, run_id: str) -> dict[str, Any]:
        """The run as it is now."""
        return dict((await self.get(f"/v1/runs/{run_id}")).json)

    async def until(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """The run when it has one of these statuses, or is over."""
        async with asyncio.timeout(PATIENCE):
            while (run := await self.run(run_id))["status"] not in (statuses or OVER):
                assert not statuses or run["status"] not in OVER, run
                await asyncio.sleep(0.002)
        return run

    async def history(self, session: str = "s", query: str = "") -> dict[str, Any]:
        """A page of messages."""
        return dict((await self.get(f"/api/sessions/{session}/messages{query}")).json)


class Socket:
    """A WebSocket that is open, or was refused: then `status` and `body` say how."""

    def __init__(self, app: ASGIApp, target: str, headers: list[tuple[str, str]], subprotocols: list[str]) -> None:
        path, _, query = target.partition("?")
        self._scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
            "subprotocols": subprotocols,
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8080),
            "extensions": {"websocket.http.response": {}},
        }
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._to_us: asyncio.Queue[Message] = asyncio.Queue()
        self._to_app.put_nowait({"type": "websocket.connect"})
        self.accepted: Message | None = None
        self.status = 101
        self.body = b""
        self.closed: int | None = None
        self.task = asyncio.create_task(self._run(app))

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self._to_app.get, self._send)
        finally:
            self._to_us.put_nowait({"type": "over"})

    async def _send(self, message: Message) -> None:
        self._to_us.put_nowait(message)
        await asyncio.sleep(0)

    async def _next(self) -> Message:
        return await asyncio.wait_for(self._to_us.get(), PATIENCE)

    async def opened(self) -> Socket:
        """When it is accepted or refused."""
        message = await self._next()
        if message["type"] == "websocket.accept":
            self.accepted = message
            return self
        assert message["type"] == "websocket.http.response.start", message
        self.status = message["status"]
        self.body = (await self._next())["body"]
        return self

    @property
    def code(self) -> Any:
        """The code of a refusal."""
        return json.loads(self.body)["error"]["code"]

    async def message(self) -> dict[str, Any] | None:
        """The next message; None when the server closed the socket."""
        message = await self._next()
        if message["type"] == "websocket.close":
            self.closed = message["code"]
            return None
        assert message["type"] == "websocket.send", message
        return dict(json.loads(message["text"]))

    async def until(self, event: str) -> list[dict[str, Any]]:
        """The messages up to the first of that event."""
        found: list[dict[str, Any]] = []
        while not found or found[-1].get("event") != event:
            message = await self.message()
            assert message is not None, f"closed before {event!r}: {found}"
            found.append(message)
        return found

    def say(self, text: str) -> None:
        """Send a message."""
        self._to_app.put_nowait({"type": "websocket.receive", "text": text})

    async def close(self) -> None:
        """Leave, and wait until the application is done."""
        self._to_app.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(self.task, PATIENCE)


def names(frames: list[Frame]) -> list[str]:
    """The names of a stream's frames, in either vocabulary."""
    return [frame.event or frame.json["event"] for frame in frames if frame.data]


def said(frames: list[Frame]) -> str:
    """The text deltas joined, in either vocabulary."""
    deltas = ("assistant.delta", "message.delta")
    return "".join(frame.json["delta"] for frame in frames if frame.data and _name(frame) in deltas)


def _name(frame: Frame) -> Any:
    return frame.event or frame.json["event"]


def spoken(page: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of a page as role and content."""
    return [(row["role"], row["content"]) for row in page["data"]]
