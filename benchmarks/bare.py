"""The floor: one process, no log, no logic, the same bytes. `N` frames an answer, `PACE` seconds between frames."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
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


app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
