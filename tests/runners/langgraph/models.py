"""A chat model that says what it is told, chunk by chunk, and the graphs of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import Field


class ScriptedModel(BaseChatModel):
    """Each call says the next list of chunks. `seen` are the messages it was given, call by call."""

    script: list[list[AIMessageChunk]]
    seen: list[list[BaseMessage]] = Field(default_factory=list)
    hangs: bool = False

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise AssertionError("only the async side is used")

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append(messages)
        first, *rest = self.script.pop(0)
        for chunk in rest:
            first = first + chunk
        message = AIMessage(
            content=first.content,
            tool_calls=first.tool_calls,
            usage_metadata=first.usage_metadata,
            response_metadata=first.response_metadata,
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _stream_chunks(self, messages: list[BaseMessage]) -> AsyncIterator[ChatGenerationChunk]:
        self.seen.append(messages)
        for chunk in self.script.pop(0):
            yield ChatGenerationChunk(message=chunk)
        if self.hangs:
            await asyncio.get_running_loop().create_future()


class StreamingModel(ScriptedModel):
    """The same, streaming."""

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in self._stream_chunks(messages):
            yield chunk


def words(*texts: str, **last: Any) -> list[AIMessageChunk]:
    """Chunks of text; `last` are fields of one more chunk."""
    chunks = [AIMessageChunk(content=text) for text in texts]
    return [*chunks, AIMessageChunk(content="", **last)] if last else chunks


def call_chunk(name: str | None, arguments: str, call_id: str | None = None, index: int | None = 0) -> AIMessageChunk:
    """A piece of a tool call."""
    piece: Any = {"name": name, "args": arguments, "id": call_id, "index": index, "type": "tool_call_chunk"}
    return AIMessageChunk(content="", tool_call_chunks=[piece])


def agent_graph(model: BaseChatModel, tools: Sequence[Any] = (), **options: Any) -> Any:
    """Model, tools, model, until there are no calls; compiled with `options`."""

    async def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def after(state: MessagesState) -> str:
        newest = state["messages"][-1]
        return "tools" if isinstance(newest, AIMessage) and newest.tool_calls and tools else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_edge(START, "model")
    if tools:
        graph.add_node("tools", ToolNode(list(tools), handle_tool_errors=True))
        graph.add_edge("tools", "model")
    graph.add_conditional_edges("model", after, ["tools", END] if tools else [END])
    return graph.compile(**options)
