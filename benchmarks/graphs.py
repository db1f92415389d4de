"""A LangGraph agent over a fake model that streams `N` words."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvloop
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph

N = int(os.environ.get("N", "2000"))


class Words(BaseChatModel):
    """Streams words."""

    @property
    def _llm_type(self) -> str:
        return "words"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        text = "".join(f"word{i} " for i in range(N))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=text))])

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for i in range(N):
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"word{i} "))

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for i in range(N):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=f"word{i} "))
            manager = kwargs.get("run_manager") or (args[1] if len(args) > 1 else None)
            if manager is not None:
                await manager.on_llm_new_token(f"word{i} ", chunk=chunk)
            yield chunk


def graph() -> Any:
    """One node that asks the model."""
    model = Words()

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile()


def cost_alone(*, runs: int) -> float:
    """CPU microseconds per token of the graph's own stream, in this process."""
    compiled = graph()

    async def once() -> int:
        seen = 0
        async for _ in compiled.astream({"messages": [("user", "hi")]}, stream_mode="messages"):
            seen += 1
        return seen

    async def many() -> int:
        await once()
        begun = time.process_time()
        seen = 0
        for _ in range(runs):
            seen += await once()
        return int(1e9 * (time.process_time() - begun) / seen)

    return uvloop.run(many()) / 1e3
