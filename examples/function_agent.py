"""An async agent that thinks, uses a tool and streams its answer.

runstone run examples/function_agent.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from runstone.runners.agent_context import AgentContext
from runstone.runners.function import agent as declare

CAPITALS = {"france": "Paris", "italy": "Rome", "norway": "Oslo"}


@declare(steers=True)
async def agent(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Answers with the capital of the country that it finds in the question."""
    context.reasoning("Which country is this about?")
    question = context.input_text.lower()
    country = next((name for name in CAPITALS if name in question), None)
    if country is None:
        yield f"I know the capitals of {', '.join(name.title() for name in CAPITALS)}."
        return
    async with context.tool("capital_of", {"country": country}) as call:
        call.progress({"looking_in": "the atlas"})
        await asyncio.sleep(0.2)
        call.result({"capital": CAPITALS[country]})
    async with context.step(model="atlas-1") as step:
        words = f"The capital of {country.title()} is {CAPITALS[country]}.".split(" ")
        for n, word in enumerate(words):
            yield word if n == 0 else f" {word}"
            await asyncio.sleep(0.05)
        step.usage(input_tokens=len(question.split()), output_tokens=len(words))
    for message in await context.inbox.take():
        yield f"\n\nYou also said: {message['content']}"
