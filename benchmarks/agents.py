"""The agents under test: `N` words an answer, `PACE` seconds between them; the request's last word may set N."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from runstone import agent

N = int(os.environ.get("N", "2000"))
PACE = float(os.environ.get("PACE", "0"))


def _count(messages: list[dict[str, Any]]) -> int:
    last = str(messages[-1]["content"]).split()[-1] if messages else ""
    return int(last) if last.isdigit() else N


async def words(messages: list[dict[str, Any]], context: Any) -> AsyncIterator[str]:
    """Words, as fast as they are taken or paced."""
    for i in range(_count(messages)):
        if PACE:
            await asyncio.sleep(PACE)
        yield f"word{i} "


async def idle(messages: list[dict[str, Any]], context: Any) -> AsyncIterator[str]:
    """One word, then silence."""
    yield "word "
    await asyncio.sleep(3600)


STEP_SECONDS = 0.05


async def _attentive(messages: list[dict[str, Any]], context: Any) -> AsyncIterator[str]:
    """Steps of `STEP_SECONDS`; after each it reads what the user said meanwhile, and ends when told."""
    yield "begin "
    for _ in range(200):
        async with context.step():
            await asyncio.sleep(STEP_SECONDS)
        for message in await context.inbox.take():
            yield f"heard {message['content']} "
            return


attentive = agent(steers=True)(_attentive)
