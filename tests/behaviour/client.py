"""An HTTP client without a network: it calls the application as a server would, and sees each write by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

#: Longer than anything here takes; a test that waits so long has failed.
PATIENCE = 10.0
_JSON = ("content-type", "application/json")


class Answer:
    """A whole answer."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self.headers = dict(headers)
        self.raw_headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """The code of an error."""
        return self.json["error"]["code"]

    @property
    def frames(self) -> list[Frame]:
        """The body as frames of an event stream."""
        return frames_of(self.body)


class Frame:
    """One message of an event stream."""

    def __init__(self, text: str) -> None:
        self.text = text
        fields = [line.partition(":") for line in text.splitlines() if not line.startswith(":")]
        self.fields = [(name, value.removeprefix(" ")) for name, _, value in fields]
        self.id = next((value for name, value in self.fields if name == "id"), None)
        self.event = next((value for name, value in self.fields if name == "event"), None)
        self.data = next((value for name, value in self.fields if name == "data"), "")

    @property
    def json(self) -> Any:
        """The data as JSON."""
        return json.loads(self.data)

    @property
    def content(self) -> str:
        """The text of a chat chunk, or of a text delta of Responses."""
        if self.data == "[DONE]":
            return ""
        data = self.json
        if "choices" in data:
            return "".join(choice["delta"].get("content") or "" for choice in data["choices"])
        return data["delta"] if data.get("type") == "response.output_text.delta" else ""


def frames_of(body: bytes) -> list[Frame]:
    """The complete frames in a stretch of a stream."""
    return [Frame(text) for text in body.decode().split("\n\n")[:-1]]


def text_of(frames: list[Frame]) -> str:
    """What the frames say, joined."""
    return "".join(frame.content for frame in frames)


class Connection:
    """A request that is going on. Leave it with `close` or `gone`."""

    def __init__(self, app: ASGIApp, scope: dict[str, Any], body: list[bytes], *, gone: bool = False) -> None:
        self._sent: asyncio.Queue[Message | None] = asyncio.Queue()
        self._body = list(body) or [b""]
        self._gone = asyncio.Event()
        self.left = b""
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.is_over = False
        if gone:
            self._gone.set()
        self.task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._sent.put_nowait(None)

    async def _receive(self) -> Message:
        if self._body:
            piece = self._body.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._body)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self._gone.is_set():
            self._sent.put_nowait(message)
        await asyncio.sleep(0)

    async def _next(self) -> Message | None:
        return await asyncio.wait_for(self._sent.get(), PATIENCE)

    async def started(self) -> Connection:
        """When the head is there."""
        message = await self._next()
        assert message is not None and message["type"] == "http.response.start", message
        self.status = message["status"]
        self.headers = [(name.decode().lower(), value.decode()) for name, value in message["headers"]]
        return self

    async def write(self) -> bytes | None:
        """The next write of the body, None when there is none any more."""
        message = None if self.is_over else await self._next()
        if message is None:
            self.is_over = True
            return None
        if not message.get("more_body", False):
            self.is_over = True
            self.ended_well = True
        return bytes(message["body"])

    ended_well = False

    async def until(self, words: str) -> list[Frame]:
        """The frames up to the first that has the words in it; those after it in the same write are lost."""
        found: list[Frame] = []
        while True:
            piece = await self.write()
            assert piece is not None, f"the stream ended before {words!r}"
            self.left += piece
            whole, mark, self.left = self.left.rpartition(b"\n\n")
            found += frames_of(whole + mark)
            for n, frame in enumerate(found):
                if words in frame.text:
                    return found[: n + 1]

    async def rest(self) -> bytes:
        """Everything up to the end."""
        pieces = [self.left]
        while (piece := await self.write()) is not None:
            pieces.append(piece)
        self.left = b""
        return b"".join(pieces)

    def gone(self) -> None:
        """The client leaves."""
        self._gone.set()

    async def close(self) -> None:
        """Leave, and wait until the application is done."""
        self.gone()
        await asyncio.wait_for(self.task, PATIENCE)


class Client:
    """Requests to one application. `key` is sent as a bearer key."""

    def __init__(self, app: ASGIApp, *, key: str | None = None, root_path: str = "") -> None:
        self._app = app
        self._key = key
        self._root_path = root_path

    def send(
        self,
        method: str,
        target: str,
        *,
        json: Any = None,
        body: bytes | list[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        raw_headers: list[tuple[str, str]] | None = None,
        gone: bool = False,
    ) -> Connection:
        """Begin a request."""
        path, _, query = target.partition("?")
        sent = [("host", "localhost")] if raw_headers is None else list(raw_headers)
        if self._key is not None:
            sent.append(("authorization", f"Bearer {self._key}"))
        pieces = body if isinstance(body, list) else [body]
        if json is not None:
            pieces = [_dumped(json)]
            sent.append(_JSON)
        sent += list((headers or {}).items())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": self._root_path + unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": self._root_path,
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8080),
        }
        return Connection(self._app, scope, pieces, gone=gone)

    async def open(self, method: str, target: str, **more: Any) -> Connection:
        """Begin a request and wait for the head of its answer."""
        return await self.send(method, target, **more).started()

    async def ask(self, method: str, target: str, **more: Any) -> Answer:
        """A request and its whole answer."""
        connection = await self.open(method, target, **more)
        body = await connection.rest()
        await connection.close()
        return Answer(connection.status, connection.headers, body)

    async def get(self, target: str, **more: Any) -> Answer:
        """GET."""
        return await self.ask("GET", target, **more)

    async def post(self, target: str, json: Any = None, **more: Any) -> Answer:
        """POST."""
        return await self.ask("POST", target, json=json, **more)

    async def delete(self, target: str) -> Answer:
        """DELETE."""
        return await self.ask("DELETE", target)

    async def chat(self, text: str, *, headers: Mapping[str, str] | None = None, **fields: Any) -> Answer:
        """A turn over Chat Completions."""
        return await self.post("/v1/chat/completions", chat_body(text, **fields), headers=headers)

    async def stream(self, text: str, *, headers: Mapping[str, str] | None = None, **fields: Any) -> Connection:
        """A streamed turn over Chat Completions."""
        body = chat_body(text, stream=True, **fields)
        return await self.open("POST", "/v1/chat/completions", json=body, headers=headers)

    async def respond(self, text: Any, *, headers: Mapping[str, str] | None = None, **fields: Any) -> Answer:
        """A turn over Responses."""
        return await self.post("/v1/responses", {"model": "agent", "input": text, **fields}, headers=headers)


def chat_body(text: str, **fields: Any) -> dict[str, Any]:
    """The body of a turn over Chat Completions."""
    return {"model": "agent", "messages": [{"role": "user", "content": text}], **fields}


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


async def settled(client: Client, run_id: str) -> dict[str, Any]:
    """The response of a run when it is over."""
    async for response in _polled(client, run_id):
        if response["status"] not in ("queued", "in_progress"):
            return response
    raise AssertionError("unreachable")


async def _polled(client: Client, run_id: str) -> AsyncIterator[dict[str, Any]]:
    async with asyncio.timeout(PATIENCE):
        while True:
            yield (await client.get(f"/v1/responses/resp_{run_id}")).json
            await asyncio.sleep(0.005)
