"""Steering a graph: between two of its steps, when the user has said something, its messages get that and it goes on.

Rule: a model never sees a call without its result, so between a call and its tools nothing comes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.channels.last_value import LastValue
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from runstone.runners.base import NATIVE, Capability, RunContext, no


def steer_capability(graph: Any, *, makes_own_state: bool) -> Capability:
    """Whether the graph can be steered. `graph` None: it is made later; `makes_own_state`: nobody checks its messages then."""
    if graph is None:
        return no("the graph is not known before it is made, and may have no messages") if makes_own_state else NATIVE
    if getattr(graph, "checkpointer", None) is False:
        return no("the graph was compiled without checkpoints")
    if not isinstance(graph, CompiledStateGraph | StateGraph):
        return no("the graph has no state to put a message into")
    channel = graph.channels.get("messages")
    if channel is None:
        return no("the graph's state has no messages")
    if isinstance(channel, LastValue):
        return no("the graph's messages are replaced by each node, not added to")
    return NATIVE


def can_take(graph: Any) -> bool:
    """Whether a message can be added to the state of the graph as it was made."""
    channels = getattr(graph, "channels", {})
    channel = channels.get("messages") if isinstance(channels, dict) else None
    return channel is not None and not isinstance(channel, LastValue) and bool(graph.checkpointer)


class Boundary(Sequence[str]):
    """Node names to stop before: those that the graph itself stops before, and every one while new input is there.

    LangGraph asks after each step whether it has to stop, so a graph that nobody steers does not stop for us at all.
    """

    def __init__(self, context: RunContext, own: Any) -> None:
        self._context = context
        self._own: Any = own
        self._stops_itself = False
        self._has_input = False

    def __contains__(self, name: object) -> bool:
        if self._own == "*" or name in self._own:
            self._stops_itself = True
            return True
        self._has_input |= self._context.has_input
        return self._has_input

    def taken(self) -> bool:
        """Whether the graph stopped for the input's sake alone, since this was asked last."""
        stopped = self._has_input and not self._stops_itself
        self._has_input = self._stops_itself = False
        return stopped

    def __len__(self) -> int:
        return max(1, len(self._own))

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        found: str | Sequence[str] = list(self._own)[index]
        return found


def is_between_turns(messages: Sequence[Any]) -> bool:
    """Whether a user's message may follow: every call of the newest model message has its result."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return all(call["id"] in answered for call in message.tool_calls)
        elif isinstance(message, BaseMessage):
            return True
    return True
