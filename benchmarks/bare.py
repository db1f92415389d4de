"""The floor: one process, no log, no logic, the same bytes. `N` frames an answer, `PACE` seconds between frames."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

N = int(os.environ.get("N", "2000"))
PACE = float(os.environ.get("PACE", "0"))
FRAMES = [
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1760000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"word%d "},"finish_reason":null}]}\n\n' % i
    for i in range(N)
]


async def chat(request: Request) -> StreamingResponse:
    """All frames, then the end mark."""
    await request.json()

    async def body() -> AsyncIterator[bytes]:
        for frame in FRAMES:
            if PACE:
                await asyncio.sleep(PACE)
            yield frame
        yield b"data: [DONE]\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


class Relay:
    """Sends what is said to everybody who listens."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.more = asyncio.Event()

    async def listen(self, request: Request) -> StreamingResponse:
        """All that is said from now on."""

        async def body() -> AsyncIterator[bytes]:
            seen = len(self.said)
            while True:
                if seen == len(self.said):
                    await self.more.wait()
                yield b"".join(self.said[seen:])
                seen = len(self.said)

        return StreamingResponse(body(), media_type="text/event-stream")

    async def speak(self, request: Request) -> PlainTextResponse:
        """Say all frames."""
        for frame in FRAMES:
            if PACE:
                await asyncio.sleep(PACE)
            self.said.append(frame)
            self.more.set()
            self.more = asyncio.Event()
        return PlainTextResponse("said")


relay = Relay()
app = Starlette(
    routes=[
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/relay", relay.listen, methods=["GET"]),
        Route("/relay", relay.speak, methods=["POST"]),
    ]
)
