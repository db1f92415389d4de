"""Interrupts become approvals, decisions resume the graph."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from runstone.core.events import ApprovalRequested, ItemStarted
from runstone.core.items import ToolResult
from runstone.core.runs import Decision, RunRequest
from runstone.errors import ConfigError, RunnerError
from runstone.runners.hooks import RunnerOptions
from runstone.runners.langgraph import LangGraphRunner
from runstone.testing import FakeContext, run_request
from tests.runners.langgraph.models import StreamingModel, agent_graph, call_chunk, words


@tool
def remove(path: str) -> str:
    """Remove a file."""
    answer = interrupt({"tool_name": "remove", "tool_args": {"path": path}, "description": f"remove {path}?"})
    return f"{path}: {answer}"


class Conversation:
    """One run on one runner, leg by leg, as the engine drives it."""

    def __init__(self, runner: LangGraphRunner) -> None:
        self.runner = runner
        self.request = run_request()
        self.context = FakeContext(self.request)
        self.asked: dict[str, Any] = {}

    async def start(self) -> list[ApprovalRequested]:
        """The first leg; what is pending after it."""
        await self.runner.run(self.request, self.context)
        return self.pending

    @property
    def pending(self) -> list[ApprovalRequested]:
        """What waits for a decision."""
        return list(self.context.state.approvals.values())

    async def decide(self, *decisions: Decision) -> list[ApprovalRequested]:
        """The next leg; what is pending after it."""
        self.asked |= self.context.pause()
        self.context.resume(decisions)
        request: RunRequest = msgspec.structs.replace(
            self.request, decisions=list(decisions), transcript=self.context.items, asked=self.asked
        )
        await self.runner.run(request, self.context)
        return self.pending


def approved(asked: ApprovalRequested, **fields: Any) -> Decision:
    """Approve it, its arguments unless others are given, as the engine says it."""
    return Decision(
        **{"approval_id": asked.approval_id, "decision": "approved", "arguments": asked.arguments, **fields}
    )


def answered(asked: ApprovalRequested, value: Any) -> Decision:
    """Answer it."""
    return Decision(approval_id=asked.approval_id, decision="answered", value=value)


def asking_graph(*values: Any, **options: Any) -> Any:
    """A node that interrupts for each value in turn, and says the answers."""

    def ask(state: MessagesState) -> dict[str, Any]:
        answers = [interrupt(value) for value in values]
        return {"messages": [AIMessage(content=repr(answers))]}

    return StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(**options)


async def test_an_interrupt_is_a_question_with_its_raw_value() -> None:
    """Text is the prompt; a dict may name prompt and choices; the raw value is the arguments."""
    run = Conversation(LangGraphRunner(asking_graph({"question": "where?", "choices": ["Rome", "Oslo"]})))
    (asked,) = await run.start()
    assert (asked.kind, asked.prompt, asked.choices) == ("input", "where?", ["Rome", "Oslo"])
    assert asked.arguments == '{"question":"where?","choices":["Rome","Oslo"]}'
    assert asked.approval_id.startswith("apr_")
    assert await run.decide(answered(asked, "Rome")) == []
    assert run.context.text == "['Rome']"
    assert run.context.is_closed


async def test_questions_in_turn_have_ids_of_their_own() -> None:
    """A node that interrupts twice asks twice, and keeps its first answer."""
    run = Conversation(LangGraphRunner(asking_graph("first?", "second?")))
    (first,) = await run.start()
    (second,) = await run.decide(answered(first, 1))
    assert first.approval_id != second.approval_id
    assert second.prompt == "second?"
    await run.decide(answered(second, 2))
    assert run.context.text == "[1, 2]"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call_output", "call_id": "c", "output": "approved result"},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True, "reason": "fine"},
    ],
)
async def test_the_clients_item_is_given_to_the_graph_as_it_came(item: dict[str, Any]) -> None:
    """A decision with the client's own item resumes with exactly that."""
    run = Conversation(LangGraphRunner(asking_graph("go?")))
    (asked,) = await run.start()
    await run.decide(approved(asked, native=item))
    assert run.context.text == repr([item])


async def test_a_decision_without_an_item_says_what_one_would() -> None:
    """Approving by any other door gives the graph the words of an approval response."""
    run = Conversation(LangGraphRunner(asking_graph("go?")))
    (asked,) = await run.start()
    await run.decide(Decision(approval_id=asked.approval_id, decision="denied"))
    assert run.context.text == repr(
        [
            {
                "type": "mcp_approval_response",
                "approval_request_id": asked.approval_id,
                "approve": False,
                "reason": "The request was denied.",
            }
        ]
    )


def removing(*paths: str) -> Any:
    """A model that asks to remove files, one call each, and then says done."""
    calls = [call_chunk("remove", f'{{"path":"{path}"}}', f"c{n}", n) for n, path in enumerate(paths)]
    return agent_graph(StreamingModel(script=[calls, words("done")]), [remove])


async def test_an_interrupt_in_a_tool_names_its_call() -> None:
    """The approval is linked to the call; the tool starts once, though the graph runs it twice."""
    run = Conversation(LangGraphRunner(removing("a")))
    (asked,) = await run.start()
    assert (asked.kind, asked.call_id, asked.name, asked.arguments) == ("confirm", "c0", "remove", '{"path":"a"}')
    assert asked.prompt == "remove a?"
    await run.decide(approved(asked, native="yes"))
    results = [item for item in run.context.items if isinstance(item, ToolResult)]
    assert [(item.call_id, item.text) for item in results] == [("c0", "a: yes")]
    started = [body for body in run.context.of(ItemStarted) if body.kind == "tool_result"]
    assert len(started) == 1
    assert run.context.text == "done"


@tool
def ask_path(path: str) -> str:
    """Ask about one path."""
    return str(interrupt({"path": path}))


def sent_in_parallel(*paths: str) -> Any:
    """Each call goes to a tool node of its own, as prebuilt agents do it."""
    from langgraph.prebuilt import ToolNode
    from langgraph.types import Send

    calls = [call_chunk("ask_path", f'{{"path":"{path}"}}', f"c{n}", n) for n, path in enumerate(paths)]
    model = StreamingModel(script=[calls, words("done")])

    async def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def after(state: MessagesState) -> Any:
        newest = state["messages"][-1]
        calls = newest.tool_calls if isinstance(newest, AIMessage) else []
        return [Send("tools", [call]) for call in calls] or "__end__"

    graph = StateGraph(MessagesState).add_node("model", call_model).add_node("tools", ToolNode([ask_path]))
    graph.add_edge(START, "model").add_edge("tools", "model")
    return graph.add_conditional_edges("model", after, ["tools", "__end__"]).compile()


async def test_several_interrupts_at_once_are_decided_together() -> None:
    """Each has its call; each gets its own answer."""
    run = Conversation(LangGraphRunner(sent_in_parallel("a", "b")))
    first, second = await run.start()
    assert [(a.call_id, a.arguments) for a in (first, second)] == [("c0", '{"path":"a"}'), ("c1", '{"path":"b"}')]
    assert await run.decide(answered(second, "two"), answered(first, "one")) == []
    results = {item.call_id: item.text for item in run.context.items if isinstance(item, ToolResult)}
    assert results == {"c0": "one", "c1": "two"}
    assert run.context.text == "done"


async def test_several_interrupts_may_be_decided_one_by_one() -> None:
    """What is decided goes on; what is not stays asked for, under the same id, and is not asked for again."""
    run = Conversation(LangGraphRunner(sent_in_parallel("a", "b")))
    first, second = await run.start()
    assert await run.decide(answered(second, "two")) == [first]
    assert len(run.context.of(ApprovalRequested)) == 2
    assert await run.decide(answered(first, "one")) == []
    results = [item for item in run.context.items if isinstance(item, ToolResult)]
    assert {(item.call_id, item.text) for item in results} == {("c0", "one"), ("c1", "two")}
    assert len(results) == 2


REQUEST = {
    "action_requests": [
        {"name": "remove", "args": {"path": "a"}, "description": "remove a"},
        {"name": "send", "args": {"to": "b"}},
    ],
    "review_configs": [],
}


async def test_a_middlewares_request_is_one_approval_for_each_action() -> None:
    """Approve, edit and reject come back in the middleware's words and order."""
    run = Conversation(LangGraphRunner(asking_graph(REQUEST)))
    first, second = await run.start()
    assert [(a.kind, a.name, a.arguments, a.prompt) for a in (first, second)] == [
        ("confirm", "remove", '{"path":"a"}', "remove a"),
        ("confirm", "send", '{"to":"b"}', None),
    ]
    denied = Decision(approval_id=second.approval_id, decision="denied", reason="no")
    await run.decide(denied, approved(first, arguments='{"path":"c"}'))
    assert run.context.text == repr(
        [
            {
                "decisions": [
                    {"type": "edit", "edited_action": {"name": "remove", "args": {"path": "c"}}},
                    {"type": "reject", "message": "no"},
                ]
            }
        ]
    )


async def test_a_middlewares_request_waits_for_all_of_its_decisions() -> None:
    """A first decision alone does not resume; the rest is waited for."""
    run = Conversation(LangGraphRunner(asking_graph(REQUEST)))
    first, second = await run.start()
    run.context._decide = lambda asked: approved(asked)
    assert run.context._decide is not None
    await run.decide(approved(first))
    assert run.context.text == repr([{"decisions": [{"type": "approve"}, {"type": "approve"}]}])
    assert second.approval_id not in run.context.state.approvals


async def test_a_pause_survives_the_process(tmp_path: Path) -> None:
    """With a file for checkpoints another runner goes on where the first one paused."""
    options = RunnerOptions(checkpoint_path=tmp_path / "checkpoints.db")
    first_runner = LangGraphRunner(asking_graph("go?"), options)
    assert first_runner.capabilities.durable_approvals.level == "native"
    run = Conversation(first_runner)
    (asked,) = await run.start()
    await first_runner.close()
    run.runner = LangGraphRunner(asking_graph("go?"), options)
    await run.decide(answered(asked, "yes"))
    assert run.context.text == "['yes']"
    await run.runner.close()


async def test_a_pause_that_is_gone_is_told() -> None:
    """A decision for a graph that remembers nothing fails in words, it does not start anew."""
    run = Conversation(LangGraphRunner(asking_graph("go?")))
    (asked,) = await run.start()
    run.runner = LangGraphRunner(asking_graph("go?"))
    with pytest.raises(RunnerError, match="its checkpoint is gone"):
        await run.decide(answered(asked, "yes"))


async def test_a_graph_that_stops_before_a_node_asks_whether_to_go_on() -> None:
    """A breakpoint is a confirmation; denied, the graph goes no further."""
    for decision, text in (("approved", "done"), ("denied", "")):
        graph = agent_graph(StreamingModel(script=[words("done")]), interrupt_before=["model"])
        run = Conversation(LangGraphRunner(graph))
        (asked,) = await run.start()
        assert (asked.kind, asked.prompt) == ("confirm", "Go on with model?")
        assert await run.decide(Decision(approval_id=asked.approval_id, decision=decision)) == []  # type: ignore[arg-type]
        assert run.context.text == text


async def test_an_earlier_attempt_is_gone_on_from() -> None:
    """A later attempt of a run goes on from the checkpoint that the first one left; finished steps are not done again."""
    model = StreamingModel(script=[[call_chunk("slow", "{}", "c1")], words("done")])
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Never ends the first time."""
        if not started.is_set():
            started.set()
            await asyncio.get_running_loop().create_future()
        return "fine"

    runner = LangGraphRunner(agent_graph(model, [slow]))
    request = run_request()
    context = FakeContext(request)
    first = asyncio.create_task(runner.run(request, context))
    await started.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    again = msgspec.structs.replace(request, attempt=2, transcript=context.items)
    await runner.run(again, context)
    assert context.text == "done"
    assert len(model.seen) == 2
    assert [item.text for item in context.items if isinstance(item, ToolResult)] == ["fine"]


async def test_a_later_attempt_without_a_checkpoint_begins_anew() -> None:
    """Nothing to go on from is a new beginning."""
    model = StreamingModel(script=[words("done")])
    request = msgspec.structs.replace(run_request(), attempt=2)
    context = FakeContext(request)
    await LangGraphRunner(agent_graph(model)).run(request, context)
    assert context.text == "done"


# -- capabilities


def test_capabilities_follow_the_saver() -> None:
    """Memory is not durable, a graph that wants no checkpoints has no approvals."""
    assert LangGraphRunner(asking_graph("x")).capabilities.durable_approvals.level == "none"
    own = LangGraphRunner(asking_graph("x", checkpointer=InMemorySaver()))
    assert own.capabilities.durable_approvals.level == "none"
    without = LangGraphRunner(asking_graph("x", checkpointer=False)).capabilities
    assert (without.approvals.level, without.durable_approvals.level) == ("none", "none")
    named = LangGraphRunner(asking_graph("x"), RunnerOptions(models=["m"])).capabilities
    assert (named.models.level, named.model_names) == ("native", ["m"])


def test_a_blocking_saver_is_refused_at_start() -> None:
    """The error says what to use instead."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    with (
        SqliteSaver.from_conn_string(":memory:") as saver,
        pytest.raises(ConfigError, match="'SqliteSaver' works in blocking code only"),
    ):
        LangGraphRunner(asking_graph("x", checkpointer=saver))
