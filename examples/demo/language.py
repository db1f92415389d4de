"""The two models that may write the demo agent's words.

`OpenAIModel` is any endpoint of the Chat Completions protocol: it decides by itself which tools it calls. `SmallModel` runs on
this machine without key or network: rules decide which tools are used (rules.py), and it only writes prose.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import openai
from rules import tool_for
from toolbox import TOOLS

from runstone import RunnerError
from runstone.local_model import LocalModel

Row = dict[str, Any]


@dataclass
class Call:
    """A tool that is to be used. `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str = ""

    @property
    def row(self) -> Row:
        """The call in a message of the assistant."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


class Step(Protocol):
    """Where the facts of a model call are noted."""

    def usage(self, *, input_tokens: int | None, output_tokens: int | None, total_tokens: int | None) -> None:
        """Tokens, as the model counted them."""

    def finish(self, reason: str) -> None:
        """Why the model stopped."""


class Model(Protocol):
    """What writes the words."""

    name: str

    def calls_by_rule(self, messages: list[Row]) -> list[Call]:
        """Tools to use before the model is asked; empty for a model that decides itself."""

    def reply(self, messages: list[Row], step: Step) -> AsyncIterator[str | Call]:
        """The answer to `messages` in pieces of text, and the tools that the model wants to use."""


class OpenAIModel:
    """A model behind an endpoint that speaks Chat Completions."""

    SYSTEM = "You are the demo agent of Runstone. Use your tools where they fit, and answer in a few sentences."

    def __init__(self, name: str, client: openai.AsyncOpenAI) -> None:
        self.name = name
        self._client = client
        self._tools = [
            {"type": "function", "function": {"name": name, "description": t.description, "parameters": t.parameters}}
            for name, t in TOOLS.items()
        ]

    def calls_by_rule(self, messages: list[Row]) -> list[Call]:
        """None: the model decides."""
        return []

    async def reply(self, messages: list[Row], step: Step) -> AsyncIterator[str | Call]:
        """Its answer to `messages`."""
        rows = [{"role": "system", "content": self.SYSTEM}, *messages]
        calls: dict[int, Call] = {}
        async for delta in _deltas(self._client, step, model=self.name, messages=rows, tools=self._tools):
            if delta.content:
                yield delta.content
            for piece in delta.tool_calls or []:
                call = calls.setdefault(piece.index, Call(piece.id or _call_id(), ""))
                if piece.function is not None:
                    call.name += piece.function.name or ""
                    call.arguments += piece.function.arguments or ""
        for call in calls.values():
            yield call


class SmallModel:
    """SmolLM2 on this machine."""

    SYSTEM = "You are a friendly assistant. Answer in two or three short sentences."
    # What keeps so small a model on its subject: little chance, a paragraph at most, a short memory. Found by trying.
    SAMPLING: ClassVar[Row] = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 250,
        "stop": ["\n\n"],
        "extra_body": {"repeat_penalty": 1.06},
    }
    # After a tool almost everything is said: no chance at all, and a few words.
    SAMPLING_AFTER_TOOL: ClassVar[Row] = {"temperature": 0, "max_tokens": 24, "stop": ["\n\n"]}
    REMEMBERED_ROWS = 6
    REMEMBERED_CHARS = 2_000

    def __init__(self) -> None:
        self._server = LocalModel()
        self.name = self._server.name
        # No proxy of the environment: the model is on loopback.
        http = openai.DefaultAsyncHttpxClient(trust_env=False)
        self._client = openai.AsyncOpenAI(api_key="none", base_url="http://127.0.0.1", http_client=http)

    def calls_by_rule(self, messages: list[Row]) -> list[Call]:
        """The tool that the user's newest words ask for."""
        newest = messages[-1]
        wanted = tool_for(text_of(newest)) if newest["role"] == "user" else None
        return [Call(_call_id(), wanted[0], json.dumps(wanted[1], ensure_ascii=False))] if wanted else []

    async def reply(self, messages: list[Row], step: Step) -> AsyncIterator[str | Call]:
        """Its answer to `messages`; after a tool it begins with what the tool said."""
        rows, sampling = self._prompt(messages), self.SAMPLING
        if rows[-1]["role"] == "assistant":
            sampling = self.SAMPLING_AFTER_TOOL
            yield rows[-1]["content"]
        client = self._client.with_options(base_url=await self._server.base_url())
        async for delta in _deltas(client, step, model=self.name, messages=rows, **sampling):
            if delta.content:
                yield delta.content

    def _prompt(self, messages: list[Row]) -> list[Row]:
        system = [text_of(row) for row in messages if row["role"] in ("system", "developer")]
        said = [
            {"role": row["role"], "content": text_of(row)[-self.REMEMBERED_CHARS :]}
            for row in messages
            if row["role"] in ("user", "assistant") and text_of(row)
        ]
        rows = [{"role": "system", "content": "\n".join([self.SYSTEM, *system])}, *said[-self.REMEMBERED_ROWS :]]
        if messages[-1]["role"] == "tool":
            # The model goes on from an answer that is begun: asked to use the result, it would change the numbers.
            rows.append({"role": "assistant", "content": text_of(messages[-1])})
        return rows


async def _deltas(client: openai.AsyncOpenAI, step: Step, **request: Any) -> AsyncIterator[Any]:
    """What the model adds, piece by piece; usage and finish reason are noted on `step`.

    Raises:
        RunnerError: the model cannot be reached, or refuses.
    """
    try:
        stream = await client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **request)
        async with stream:
            async for chunk in stream:
                if chunk.usage is not None:
                    used = chunk.usage
                    step.usage(
                        input_tokens=used.prompt_tokens,
                        output_tokens=used.completion_tokens,
                        total_tokens=used.total_tokens,
                    )
                for choice in chunk.choices[:1]:
                    if choice.finish_reason:
                        step.finish(choice.finish_reason)
                    yield choice.delta
    except openai.OpenAIError as e:
        raise RunnerError(f"the model {request['model']!r} did not answer ({type(e).__name__})") from e


def text_of(row: Row) -> str:
    """The text of a Chat message; what is no text is left out."""
    content = row.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:16]}"
