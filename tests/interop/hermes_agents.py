"""The agent that clients of Hermes talk to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import runstone
from runstone import AgentContext, RunnerError


@runstone.agent(name="worker", steers=True, approvals=True)
async def worker(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Fails, waits for steering in a tool, talks without end, or answers, as the word of its input says."""
    match str(messages[-1]["content"]).split():
        case ["fail", *_]:
            raise RunnerError("the model is away")
        case ["dig", *_]:
            async with context.tool("terminal", {"command": "dig"}) as call:
                heard = await context.inbox.take()
                while not heard:
                    await asyncio.sleep(0.01)
                    heard = await context.inbox.take()
                call.result("dug")
            yield f"Heard {heard[0]['content']}."
        case ["endless", *_]:
            yield "Begun."
            await asyncio.Event().wait()
        case ["ask", *_]:
            answer = await context.approve("delete", {"path": "x"})
            yield "Deleted." if answer.approved else "Kept."
        case words:
            yield "You said: "
            yield " ".join(words)
