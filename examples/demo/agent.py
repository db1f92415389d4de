"""The demo: an agent that talks, uses tools, and asks before it does something that cannot be undone.

    scripts/run                            a small model on this machine writes the words
    OPENAI_API_KEY=... scripts/run         a model of OpenAI does
    OPENAI_BASE_URL=... scripts/run        or of any server with the same protocol; OPENAI_MODEL picks the model

Serve one of your own in the same way: `runstone run my_agent.py`.
"""

from __future__ import annotations

import json
import os
from typing import Any

import openai
from language import Call, Model, OpenAIModel, SmallModel
from toolbox import TOOLS

import runstone

Row = dict[str, Any]


def model_from_environment() -> Model:
    """The model that the environment names; the small one when it names none."""
    key, address = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL")
    if key or address:
        name = os.environ.get("OPENAI_MODEL") or "gpt-4.1-mini"
        return OpenAIModel(name, openai.AsyncOpenAI(api_key=key or "none", base_url=address or None))
    return SmallModel()


MODEL = model_from_environment()


@runstone.agent(name="my-agent", approvals=True, steers=True)
async def agent(messages: list[Row], context: runstone.AgentContext) -> None:
    """Answer `messages`: words and tools in turn, until the model has no more to do and the user nothing to add."""
    messages = with_files(messages, (await context.payload()).get("attachment_results", []))
    while messages[-1]["role"] != "assistant":
        await take_turn(messages, context)
        messages += await context.inbox.take()


async def take_turn(messages: list[Row], context: runstone.AgentContext) -> None:
    """Use the tools that a rule asks for, or ask the model once. What happened is appended to `messages`."""
    if calls := MODEL.calls_by_rule(messages):
        messages += await results_of(calls, "", context)
        return
    async with context.step(model=MODEL.name) as step:
        text = ""
        async for piece in MODEL.reply(messages, step):
            if isinstance(piece, Call):
                calls.append(piece)
            else:
                text += piece
                context.text(piece)
        messages += await results_of(calls, text, context)


async def results_of(calls: list[Call], text: str, context: runstone.AgentContext) -> list[Row]:
    """Run `calls` one after the other; the assistant's message and those of the tools."""
    said: Row = {"role": "assistant", "content": text or None}
    if calls:
        said["tool_calls"] = [call.row for call in calls]
    return [
        said,
        *[{"role": "tool", "tool_call_id": call.id, "content": await result_of(call, context)} for call in calls],
    ]


async def result_of(call: Call, context: runstone.AgentContext) -> str:
    """Run one tool, after a person agreed if it needs that; what it says, or why it did not run."""
    try:
        tool, arguments = TOOLS[call.name], json.loads(call.arguments or "{}")
    except (KeyError, ValueError):
        async with context.tool(call.name, call.arguments, call.id) as run:
            reason = f"There is no tool {call.name!r} that takes {call.arguments!r}."
            run.fail(reason)
        return reason
    if tool.needs_approval:
        answer = await context.approve(call.name, arguments, prompt=f"May I {call.name} this?", call_id=call.id)
        if not answer.approved:
            return f"I did not {call.name} anything: the request was {answer.decision}."
        arguments = answer.arguments  # A person may have changed them.
    async with context.tool(call.name, arguments, call.id) as run:
        try:
            result = await tool.run(run, **arguments)
        except (TypeError, ValueError, SyntaxError, ArithmeticError) as e:
            # The model reads it and may try again.
            result = f"The tool {call.name} failed: {e}."
            run.fail(result)
        else:
            run.result(result)
    return result


def with_files(messages: list[Row], results: list[Row]) -> list[Row]:
    """`messages` with the text of attached files behind the newest words of the user, and without the files' bytes."""
    texts = [
        f"File {result['display_name']}:\n{result.get('text') or 'could not be read'}"
        for result in results
        if result["kind"] != "image"
    ]
    rows = [{**row, "content": without_files(row["content"])} for row in messages]
    newest = next((row for row in reversed(rows) if row["role"] == "user"), None)
    if texts and newest is not None:
        blocks = newest["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        newest["content"] = [*blocks, *({"type": "text", "text": text} for text in texts)]
    return rows


def without_files(content: Any) -> Any:
    """The content of a message without its blocks of type `file`."""
    return [block for block in content if block["type"] != "file"] if isinstance(content, list) else content
