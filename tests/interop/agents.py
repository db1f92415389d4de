"""The agents that official clients talk to: one for each thing that a client has to understand.

They answer by rule, so that a test knows what comes. Those that count share one count, as all agents of a server live in one
process.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import runstone
from runstone import AgentContext, RunnerError

Messages = list[dict[str, Any]]
REASONING: Final = "Two and two make four."
_calls: Counter[str] = Counter()


@runstone.agent(name="assistant", client_tools=True, models=["assistant-large"])
async def assistant(messages: Messages, context: AgentContext) -> AsyncIterator[str]:
    """Answers from what was said before, and has the client run its tools."""
    call = _call_of(messages, context)
    if call is not None:
        context.call_tool_of_client(*call)
        context.usage(input_tokens=_count(messages), output_tokens=3)
        return
    answer = _answer(messages, context)
    context.usage(input_tokens=_count(messages), output_tokens=len(answer.split()), cached_tokens=1)
    for word in re.findall(r"\S+\s*", answer):
        yield word


@runstone.agent(name="plain")
async def plain(messages: Messages, context: AgentContext) -> str:
    """Answers from what was said before, all at once."""
    return _answer(messages, context)


@runstone.agent(name="my-agent", client_tools=True, approvals=True)
async def of_the_guide(messages: Messages, context: AgentContext) -> AsyncIterator[str]:
    """Does what the guide to clients shows."""
    said = assistant if "Delete" not in _text(messages[-1]) else approves
    async for word in said(messages, context):
        yield word


def _answer(messages: Messages, context: AgentContext) -> str:
    last = messages[-1]
    if last["role"] == "tool":
        return f"The tool says: {_text(last)}"
    said = " ".join(_text(message) for message in messages)
    question = _text(last)
    if "my name" in question.lower() and (name := re.search(r"My name is (\w+)", said)):
        return f"Your name is {name[1]}."
    if "code word" in question and (word := re.search(r"code word: (\w+)", said)):
        return f"The code word is {word[1]}."
    if "which model" in question:
        return f"I am {context.model}."
    files = [block["type"] for block in _blocks(last) if block["type"] != "text"]
    seen = f" with {', '.join(files)}" if files else ""
    return f"You said{seen}: {question}"


def _call_of(messages: Messages, context: AgentContext) -> tuple[str, dict[str, str]] | None:
    """The client's tool to call: the one that was forced, else the first when the question is about the weather."""
    if not context.tools or messages[-1]["role"] == "tool" or context.tool_choice == "none":
        return None
    if not isinstance(context.tool_choice, dict) and "weather" not in _text(messages[-1]).lower():
        return None
    function = context.tools[0]["function"]
    key = next(iter(function["parameters"]["properties"]))
    return function["name"], {key: "San Francisco"}


@runstone.agent(name="slow")
async def slow(messages: Messages) -> AsyncIterator[str]:
    """Takes three seconds for thirty words."""
    for number in range(30):
        yield f"word{number} "
        await asyncio.sleep(0.1)


@runstone.agent(name="endless")
async def endless(messages: Messages) -> AsyncIterator[str]:
    """Does not end by itself."""
    yield "Begun."
    await asyncio.Event().wait()


@runstone.agent(name="silent")
async def silent(messages: Messages) -> AsyncIterator[str]:
    """Says nothing for longer than several keep-alives, twice."""
    await asyncio.sleep(0.7)
    yield "At last, "
    await asyncio.sleep(0.7)
    yield "an answer."


@runstone.agent(name="fails")
async def fails(messages: Messages) -> AsyncIterator[str]:
    """Fails in the middle of its answer."""
    _calls[_text(messages[-1])] += 1
    yield "So far "
    raise RunnerError("the oven is cold")


@runstone.agent(name="fails-at-once")
async def fails_at_once(messages: Messages) -> str:
    """Fails before its first word, in a way that nobody foresaw."""
    _calls[_text(messages[-1])] += 1
    raise ValueError("secret detail")


@runstone.agent(name="again")
async def again(messages: Messages) -> str:
    """How often it was asked this, now included."""
    _calls[_text(messages[-1])] += 1
    return str(_calls[_text(messages[-1])])


@runstone.agent(name="counts")
async def counts(messages: Messages) -> str:
    """How often a failing agent was asked this."""
    return str(_calls[_text(messages[-1])])


@runstone.agent(name="thinks")
async def thinks(messages: Messages, context: AgentContext) -> AsyncIterator[str]:
    """Thinks, then answers."""
    for word in re.findall(r"\S+\s*", REASONING):
        context.reasoning(word)
    context.usage(input_tokens=_count(messages), output_tokens=9, reasoning_tokens=5)
    yield "The answer "
    yield "is 4."


@runstone.agent(name="tools")
async def tools(messages: Messages, context: AgentContext) -> AsyncIterator[str]:
    """Runs a tool of its own between two texts."""
    yield "Let me look. "
    async with context.tool("weather", {"city": "Rome"}) as call:
        call.progress({"asking": "the station"})
        call.result({"temp": 20})
    context.usage(input_tokens=_count(messages), output_tokens=6)
    yield "It is 20 degrees."


@runstone.agent(name="tool-fails")
async def tool_fails(messages: Messages, context: AgentContext) -> AsyncIterator[str]:
    """Runs a tool that fails, and goes on."""
    async with context.tool("weather", {"city": "Rome"}) as call:
        call.fail("no station")
    yield "I do not know."


@runstone.agent(name="approves", approvals=True)
async def approves(messages: Messages, context: AgentContext) -> AsyncIterator[str]:
    """Deletes a file when it may."""
    answer = await context.approve("delete_file", {"path": "notes.txt"}, prompt="Delete notes.txt?")
    if not answer.approved:
        yield f"Not deleted: {answer.reason or 'no reason'}."
        return
    async with context.tool("delete_file", answer.arguments, answer.call_id) as call:
        call.result("deleted")
    context.usage(input_tokens=_count(messages), output_tokens=2)
    yield "It is deleted."


@runstone.agent(name="cut-off")
async def cut_off(messages: Messages, context: AgentContext) -> AsyncIterator[str]:
    """Reaches its limit of tokens."""
    yield "This sentence has no"
    context.usage(input_tokens=_count(messages), output_tokens=4)
    context.finish("length")


@runstone.agent(name="json")
async def as_json(messages: Messages, context: AgentContext) -> str:
    """Answers in JSON, and names the schema that it was asked for."""
    options = context.model_options
    form = (options.get("text") or {}).get("format") or options.get("response_format") or {}
    name = form.get("name") or (form.get("json_schema") or {}).get("name") or form.get("type")
    return json.dumps({"city": "Rome", "asked_for": str(name)})


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def _text(message: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in _blocks(message))


def _count(messages: Messages) -> int:
    return sum(len(_text(message).split()) for message in messages)


#: What a server of all of them is started with.
ALL: Final = (
    assistant,
    slow,
    endless,
    silent,
    fails,
    fails_at_once,
    again,
    counts,
    thinks,
    tools,
    tool_fails,
    approves,
    cut_off,
    as_json,
)
