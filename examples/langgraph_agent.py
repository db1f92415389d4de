"""A LangGraph agent with a tool that asks before it runs. Its model is a script, so that it works without a network.

runstone run examples/langgraph_agent.py
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt


@tool
def delete_file(path: str) -> str:
    """Delete a file, after asking."""
    answer = interrupt({"tool_name": "delete_file", "tool_args": {"path": path}, "prompt": f"Delete {path}?"})
    return f"{path} is deleted" if answer.get("approve") else f"{path} stays"


class ScriptedModel(BaseChatModel):
    """Calls the tool for a question, and repeats what the tool said."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError("this model streams only")

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        newest = messages[-1]
        if isinstance(newest, ToolMessage):
            for word in f"Done: {newest.text}.".split(" "):
                yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
            return
        call: Any = {
            "name": "delete_file",
            "args": json.dumps({"path": newest.text.split(" ")[-1]}),
            "id": f"call_{len(messages)}",
            "index": 0,
            "type": "tool_call_chunk",
        }
        yield ChatGenerationChunk(message=AIMessageChunk(content="Let me see. "))
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


model = ScriptedModel()


async def call_model(state: MessagesState) -> dict[str, Any]:
    """One model call."""
    return {"messages": [await model.ainvoke(state["messages"])]}


def after_model(state: MessagesState) -> str:
    """Tools when the model asked for some, else the end."""
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


builder = StateGraph(MessagesState)
builder.add_node("model", call_model)
builder.add_node("tools", ToolNode([delete_file]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", after_model, ["tools", END])
builder.add_edge("tools", "model")
graph = builder.compile()
