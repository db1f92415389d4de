"""Connections over real sockets: what is no request yet is limited in size and time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import repeat

import pytest
import uvicorn
from uvicorn.server import ServerState

from runstone.app import App
from runstone.server.connections import MAX_HEAD_BYTES, HttpConnection

HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"model": "hello", "input": "x"}'
TURN = b'{"model": "hello", "input": "x", "conversation": "s"}'
SOCKET = (
    b"GET /api/sessions/s/events HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PIECE = b"a" * 10_000
#: Far more than may be taken, and than fits into the buffers of two sockets.
FLOOD = 3_000
PATIENCE = 5.0


class Hasty(HttpConnection):
    """A connection that does not wait for long."""

    head_timeout = 0.05


def hello(messages: object) -> str:
    """Answers."""
    return "hello"


@pytest.fixture
async def port(request: pytest.FixtureRequest) -> AsyncIterator[int]:
    """The port of a server whose connections are of the parameter's kind."""
    app = App(hello, storage="memory")
    config = uvicorn.Config(app.asgi, log_config=None)
    config.load()
    state = ServerState()
    kind: type[HttpConnection] = getattr(request, "param", HttpConnection)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await app.close()


async def answer(port: int, pieces: Iterator[bytes] | list[bytes]) -> bytes:
    """What comes back when these are sent, up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    back = asyncio.create_task(reader.read(100_000))
    try:
        async with asyncio.timeout(PATIENCE):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await back
    except ConnectionError:
        return await back
    finally:
        writer.close()


def flood(head: bytes, piece: bytes) -> Iterator[bytes]:
    """A beginning, and then the same without an end in sight."""
    yield head
    yield from repeat(piece, FLOOD)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        pytest.param(HEAD + b"X-A: ", PIECE, id="one header"),
        pytest.param(HEAD, b"X-A: b\r\n" * 1_000, id="many headers"),
        pytest.param(b"GET /", PIECE, id="the address"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", PIECE, id="a chunk's extension"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: b\r\n" * 1_000, id="trailers"),
    ],
)
async def test_what_never_becomes_a_request(port: int, head: bytes, piece: bytes) -> None:
    """o-sec-07: a head, an address or trailers without an end are refused before they fill the memory."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = 0
    with pytest.raises(ConnectionError):
        async with asyncio.timeout(PATIENCE):
            for more in flood(head, piece):
                writer.write(more)
                await writer.drain()
                sent += len(more)
    writer.close()
    assert sent < FLOOD * len(piece) / 2


async def test_a_large_head_is_told(port: int) -> None:
    """A head over the limit is 431 in JSON, one below it is taken."""
    refused = await answer(port, [HEAD + b"X-A: " + b"a" * MAX_HEAD_BYTES])
    assert refused.startswith(b"HTTP/1.1 431 ")
    assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "head_too_large"
    rest = b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    taken = await answer(port, [HEAD + b"X-A: " + b"a" * (MAX_HEAD_BYTES // 2), rest + BODY])
    assert taken.startswith(b"HTTP/1.1 200 ")


async def test_what_is_no_http(port: int) -> None:
    """It is 400 with the error object of everything else."""
    refused = await answer(port, [b"\x16\x03\x01 nonsense\r\n\r\n"])
    assert refused.startswith(b"HTTP/1.1 400 ")
    assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


async def test_a_body_in_many_small_pieces(port: int) -> None:
    """A chunked body is taken however small its chunks are, and headers behind it are nobody's."""
    chunks = b"".join(b"1\r\n%c\r\n" % letter for letter in BODY[:-1] + b" " * 20_000 + BODY[-1:])
    head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    taken = await answer(port, [head, chunks, b"0\r\nHost: elsewhere\r\n\r\n"])
    assert taken.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("port", [Hasty], indirect=True)
@pytest.mark.parametrize("beginning", [b"", b"POST /v1", HEAD])
async def test_a_head_that_takes_too_long(port: int, beginning: bytes) -> None:
    """A connection that does not come to the point is closed; one that does is served for as long as it takes."""
    assert await answer(port, [beginning]) == b""
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(head + BODY)
        assert (await asyncio.wait_for(reader.readline(), PATIENCE)).startswith(b"HTTP/1.1 200 ")
        head_of_answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        length = next(line for line in head_of_answer.split(b"\r\n") if line.startswith(b"content-length"))
        await asyncio.wait_for(reader.readexactly(int(length.partition(b":")[2])), PATIENCE)
    writer.write(HEAD)
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
    writer.close()


@pytest.mark.parametrize("port", [Hasty], indirect=True)
async def test_sockets_may_be_silent(port: int) -> None:
    """A WebSocket is no head that takes too long."""
    rest = b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(TURN)
    await answer(port, [HEAD[:-2] + rest + TURN])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(SOCKET)
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)).startswith(b"HTTP/1.1 101 ")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(), 4 * Hasty.head_timeout)
    writer.close()
