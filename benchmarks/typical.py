"""What one writes by hand: FastAPI, pydantic, sse-starlette; no log, no resume. `N` and `PACE` as in bare.py."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from sse_starlette.sse import EventSourceResponse

N = int(os.environ.get("N", "2000"))
PACE = float(os.environ.get("PACE", "0"))


class Delta(BaseModel):
    """The words of a chunk."""

    content: str | None = None
    role: str | None = None


class Choice(BaseModel):
    """The one choice of a chunk."""

    index: int = 0
    delta: Delta
    finish_reason: str | None = None


class Chunk(BaseModel):
    """One frame."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[Choice]


class Ask(BaseModel):
    """The request."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool = False


app = FastAPI()


async def agent() -> AsyncIterator[str]:
    """Words."""
    for i in range(N):
        if PACE:
            await asyncio.sleep(PACE)
        yield f"word{i} "


@app.post("/v1/chat/completions")
async def chat(request: Ask) -> EventSourceResponse:
    """A frame a word."""

    async def body() -> AsyncIterator[str]:
        async for text in agent():
            chunk = Chunk(
                id="chatcmpl-1",
                created=int(time.time()),
                model=request.model,
                choices=[Choice(delta=Delta(content=text))],
            )
            yield chunk.model_dump_json()
        yield "[DONE]"

    return EventSourceResponse(body())
