"""What a user says while a graph works reaches its model before the next call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import msgspec
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from runstone.core.events import ApprovalRequested, ItemEnded
from runstone.core.items import Message, ToolCall, ToolResult
from runstone.core.runs import Decision
from runstone.runners.base import Capability, no
from runstone.runners.hooks import Hooks, RunnerOptions
from runstone.runners.langgraph import LangGraphRunner
from runstone.testing import FakeContext, run_request
from tests.runners.langgraph.models import StreamingModel, agent_graph, call_chunk, words


class Steered:
    """A run whose tool lets the test say something while it runs."""

    def __init__(self, *script: Any, **options: Any) -> None:
        self.model = StreamingModel(script=list(script))
        self.context = FakeContext(run_request())
        self.during: list[Callable[[], None]] = []

        @tool
        async def dig(at: str) -> str:
            """Dig."""
            if self.during:
                self.during.pop(0)()
            return f"dug {at}"

        self.graph = agent_graph(self.model, [dig], **options)
        self.runner = LangGraphRunner(self.graph)

    async def run(self) -> FakeContext:
        """The run, to its end or its pause."""
        await self.runner.run(run_request(), self.context)
        return self.context

    @property
    def told(self) -> list[list[str]]:
        """The contents of the messages that the model got, call by call."""
        return [[str(message.content) for message in messages] for messages in self.model.seen]


CALL = [call_chunk("dig", '{"at": "here"}', "c1")]
CALLS = [call_chunk("dig", '{"at": "here"}', "c1", 0), call_chunk("dig", '{"at": "there"}', "c2", 1)]


@pytest.mark.parametrize("calls", [CALL, CALLS], ids=["one tool", "two at once"])
async def test_steering_in_a_tool_reaches_the_next_model_call(calls: list[Any]) -> None:
    """S10: what came while tools ran follows their results, in order, in the model's input and in history."""
    run = Steered(calls, words("Done."))

    def twice() -> None:
        run.context.steer("first")
        run.context.steer("second")

    run.during = [twice]
    context = await run.run()
    assert run.told[1][-2:] == ["first", "second"]
    kinds = [type(message) for message in run.model.seen[1][-3:]]
    assert kinds == [ToolMessage, HumanMessage, HumanMessage]
    rows = [(type(row.item).__name__, row.is_input) for row in context.transcript.rows]
    results = [("ToolResult", False)] * len(calls)
    assert rows[-3 - len(calls) :] == [*results, ("Message", True), ("Message", True), ("Message", False)]
    assert [item.text for item in context.items if isinstance(item, Message)][-1] == "Done."


async def test_every_tool_is_a_boundary() -> None:
    """Steering in a later tool reaches the model after that tool."""
    run = Steered(CALL, [call_chunk("dig", '{"at": "there"}', "c2")], words("Done."))
    run.during = [lambda: None, lambda: run.context.steer("late")]
    await run.run()
    assert [told[-1] for told in run.told] == ["hello", "dug here", "late"]


async def test_what_comes_with_the_last_words_is_left() -> None:
    """S10: with no model call left the input stays where it is, for the engine to return it."""
    run = Steered(words("Bye."))
    original = run.context.emit

    def emit(body: Any) -> None:
        original(body)
        if isinstance(body, ItemEnded) and isinstance(body.item, Message) and not run.context.has_input:
            run.context.steer("too late")

    run.context.emit = emit  # type: ignore[method-assign]
    context = await run.run()
    assert context.has_input
    assert len(run.model.seen) == 1


async def test_a_graph_that_nobody_steers_does_not_stop() -> None:
    """Without input the graph runs through, in one stretch."""
    run = Steered(CALL, words("Done."))
    context = await run.run()
    assert run.told == [["hello"], ["hello", "", "dug here"]]
    assert [item.text for item in context.items if isinstance(item, ToolResult)] == ["dug here"]


async def test_steering_does_not_part_a_call_and_its_result() -> None:
    """Input that is there before the tools begin waits for their results."""
    run = Steered(CALL, words("Done."))
    original = run.context.emit

    def emit(body: Any) -> None:
        original(body)
        if isinstance(body, ItemEnded) and isinstance(body.item, ToolCall):
            run.context.steer("between")

    run.context.emit = emit  # type: ignore[method-assign]
    await run.run()
    assert run.told[1] == ["hello", "", "dug here", "between"]


async def test_the_graphs_own_stops_stay() -> None:
    """A graph that stops before its tools asks there, also while input waits; it is delivered after them."""
    run = Steered(CALL, words("Done."), interrupt_before=["tools"], checkpointer=InMemorySaver())
    await run.run()
    asked = run.context.pause()
    assert [type(body) for body in run.context.bodies if isinstance(body, ApprovalRequested)] == [ApprovalRequested]
    decision = Decision(approval_id=next(iter(asked)), decision="approved")
    run.context.resume([decision])
    run.during = [lambda: run.context.steer("more")]
    request = msgspec.structs.replace(run_request(), decisions=[decision], transcript=run.context.items, asked=asked)
    await run.runner.run(request, run.context)
    assert run.told[1][-1] == "more"


class Replaced(TypedDict):
    """Messages that each node replaces."""

    messages: list[Any]


class Wordless(TypedDict):
    """No messages."""

    text: str


def compiled(state: Any, **options: Any) -> Any:
    """A graph of one node over a state."""
    graph = StateGraph(state)
    graph.add_node("only", lambda given: given)
    graph.add_edge(START, "only")
    return graph.compile(**options)


@pytest.mark.parametrize(
    ("graph", "has_own_state", "expected"),
    [
        (compiled(MessagesState), False, None),
        (compiled(MessagesState, checkpointer=False), False, no("the graph was compiled without checkpoints")),
        (compiled(Replaced), False, no("the graph's messages are replaced by each node, not added to")),
        (compiled(Wordless), True, no("the graph's state has no messages")),
        (lambda: compiled(MessagesState), False, None),
        (
            lambda: compiled(MessagesState),
            True,
            no("the graph is not known before it is made, and may have no messages"),
        ),
    ],
)
def test_what_is_declared(graph: Any, has_own_state: bool, expected: Capability | None) -> None:
    """A graph that adds to its messages is steered natively; any other one says why not."""
    hooks = Hooks(prepare_state=lambda payload: {}) if has_own_state else Hooks()
    runner = LangGraphRunner(graph, RunnerOptions(hooks=hooks))
    assert runner.capabilities.steer == (expected or Capability(level="native"))
