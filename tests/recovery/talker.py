"""The agent of a server whose streams are cut: thinks, uses a tool, says as many words as it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from runstone.runners.agent_context import AgentContext


async def agent(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Talks, with a breath now and then."""
    count = int(context.input_text)
    context.reasoning("Which ")
    context.reasoning("words?")
    async with context.tool("look_up", {"count": count}) as call:
        call.result({"found": "\u00e9\u2028"})
    for n in range(count):
        yield f"{n} \u20ac\U0001f600\u2028\n\n "
        if n % 5 == 4:
            await asyncio.sleep(0.002)
