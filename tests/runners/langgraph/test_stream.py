"""What a graph streams becomes bodies, each thing once."""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph

from runstone.core.content import ImagePart, TextPart
from runstone.core.events import ArgumentsDelta, Custom, StepEnded, StepStarted, TextDelta
from runstone.core.items import Item, Message, Reasoning, ToolCall, ToolResult, user_message
from runstone.core.runs import Settings, ToolSpec, Usage
from runstone.errors import ConfigError, RunnerError
from runstone.runners.hooks import Hooks, RunnerOptions
from runstone.runners.langgraph import LangGraphRunner, runner_for
from runstone.testing import FakeContext, drive, run_request
from tests.runners.langgraph.models import ScriptedModel, StreamingModel, agent_graph, call_chunk, words


@tool
def weather(city: str) -> str:
    """The weather."""
    get_stream_writer()({"looking": city})
    return f"20 in {city}"


@tool
def broken(x: int) -> str:
    """Fails."""
    raise ValueError("boom")


async def test_tokens_are_deltas_of_one_message() -> None:
    """Each chunk is a delta; the step ends with what the provider said of the call."""
    usage: Any = {
        "input_tokens": 3,
        "output_tokens": 2,
        "total_tokens": 5,
        "input_token_details": {"cache_read": 1},
        "output_token_details": {"reasoning": 1},
    }
    model = StreamingModel(
        script=[
            words("He", "llo", usage_metadata=usage, response_metadata={"stop_reason": "max_tokens", "model": "m1"})
        ]
    )
    context = await drive(LangGraphRunner(agent_graph(model)))
    assert [body.text for body in context.of(TextDelta)] == ["He", "llo"]
    assert context.of(StepEnded) == [
        StepEnded(
            step="s1",
            finish_reason="length",
            model="m1",
            usage=Usage(input_tokens=3, output_tokens=2, total_tokens=5, cached_tokens=1, reasoning_tokens=1),
        )
    ]
    assert context.text == "Hello"
    assert context.is_closed


async def test_a_model_that_does_not_stream_is_told_once() -> None:
    """Its whole message comes, with usage and finish reason, and only once."""
    model = ScriptedModel(script=[words("whole", response_metadata={"finish_reason": "stop", "model_name": "m"})])
    context = await drive(LangGraphRunner(agent_graph(model)))
    assert [item.text for item in context.items if isinstance(item, Message)] == ["whole"]
    assert context.of(StepEnded) == [StepEnded(step="s1", finish_reason="stop", model="m")]


async def test_a_node_that_returns_a_message_is_told_once() -> None:
    """A message made without a model appears, also when a later node returns it again."""
    said = AIMessage(content="made by hand", id="m1")

    def first(state: MessagesState) -> dict[str, Any]:
        return {"messages": [said]}

    def second(state: MessagesState) -> dict[str, Any]:
        return {"messages": state["messages"]}

    graph = StateGraph(MessagesState).add_sequence([first, second]).add_edge(START, "first")
    assert (await drive(LangGraphRunner(graph))).text == "made by hand"


async def test_reasoning_of_every_form_comes_before_the_words() -> None:
    """Extra fields and content blocks of several providers are reasoning."""
    model = StreamingModel(
        script=[
            [
                AIMessageChunk(content="", additional_kwargs={"reasoning_content": "a"}),
                AIMessageChunk(content=[{"type": "thinking", "thinking": "b"}]),
                AIMessageChunk(content=[{"type": "reasoning", "reasoning": "c"}]),
                AIMessageChunk(content=[{"type": "reasoning", "summary": [{"type": "summary_text", "text": "d"}]}]),
                AIMessageChunk(content=[{"type": "text", "text": "so"}]),
                AIMessageChunk(content="!"),
            ]
        ]
    )
    context = await drive(LangGraphRunner(agent_graph(model)))
    assert [(type(item), getattr(item, "text", "")) for item in context.items] == [
        (Reasoning, "abcd"),
        (Message, "so!"),
    ]


async def test_unknown_content_blocks_are_custom_without_their_bytes() -> None:
    """Nothing that a model says is dropped, and no bytes reach the log."""
    block = {"type": "image", "data": "AAAA", "mime_type": "image/png"}
    model = ScriptedModel(script=[[AIMessageChunk(content=[block])]])
    context = await drive(LangGraphRunner(agent_graph(model)))
    assert context.of(Custom) == [Custom(name="langgraph.content", data={"type": "image", "mime_type": "image/png"})]


async def test_parallel_calls_stream_and_get_their_results() -> None:
    """Arguments of two calls interleave; results, errors included, join by call id; the next call is another step."""
    model = StreamingModel(
        script=[
            [
                *words("let me"),
                call_chunk("weather", '{"ci', "c1", 0),
                call_chunk("broken", '{"x"', "c2", 1),
                call_chunk(None, 'ty":"Rome"}', None, 0),
                call_chunk(None, ":1}", None, 1),
            ],
            words("20"),
        ]
    )
    context = await drive(LangGraphRunner(agent_graph(model, [weather, broken])))
    calls = [item for item in context.items if isinstance(item, ToolCall)]
    assert [(c.call_id, c.name, c.arguments, c.step) for c in calls] == [
        ("c1", "weather", '{"city":"Rome"}', "s1"),
        ("c2", "broken", '{"x":1}', "s1"),
    ]
    assert len(context.of(ArgumentsDelta)) == 4
    results = {item.call_id: item for item in context.items if isinstance(item, ToolResult)}
    assert (results["c1"].text, results["c1"].is_error) == ("20 in Rome", False)
    assert results["c2"].is_error
    assert [item.text for item in context.items if isinstance(item, Message)] == ["let me", "20"]
    assert context.items[-1].step == "s2"
    assert context.of(Custom) == [Custom(name="langgraph", data={"looking": "Rome"})]
    assert context.is_closed


async def test_calls_of_a_model_that_does_not_stream() -> None:
    """They come whole."""
    model = ScriptedModel(script=[[call_chunk("weather", '{"city":"Rome"}', "c1")], words("ok")])
    context = await drive(LangGraphRunner(agent_graph(model, [weather])))
    call = context.items[0]
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"city":"Rome"}'
    assert [item.text for item in context.items if isinstance(item, ToolResult)] == ["20 in Rome"]


async def test_a_call_of_a_tool_of_the_client_is_the_clients() -> None:
    """A call of a declared tool that the graph does not run stays open for the client."""
    model = StreamingModel(script=[[call_chunk("pick", "{}", "c1")]])
    context = await drive(
        LangGraphRunner(agent_graph(model)), run_request(settings=Settings(tools=[ToolSpec(name="pick")]))
    )
    assert context.state.calls["c1"].executor == "client"


async def test_parallel_nodes_are_parallel_steps() -> None:
    """Two models at once: two steps, two messages, each whole."""
    turn = asyncio.Event()

    class Slow(StreamingModel):
        async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            async for chunk in self._stream_chunks(messages):
                yield chunk
                await turn.wait()

    class Fast(StreamingModel):
        async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            async for chunk in self._stream_chunks(messages):
                yield chunk
            turn.set()

    slow, fast = Slow(script=[words("a", "b")]), Fast(script=[words("1", "2")])

    async def left(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await slow.ainvoke(state["messages"])]}

    async def right(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await fast.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("left", left).add_node("right", right).add_edge(START, "left").add_edge(START, "right")
    context = await drive(LangGraphRunner(graph))
    assert sorted(item.text for item in context.items if isinstance(item, Message)) == ["12", "ab"]
    assert len({item.step for item in context.items}) == 2
    assert context.is_closed


async def test_a_subgraph_names_itself() -> None:
    """Words of a subgraph carry its node as author and branch, and are not repeated by the outer node."""
    inner = agent_graph(StreamingModel(script=[words("deep")]))
    outer = StateGraph(MessagesState).add_node("writer", inner).add_edge(START, "writer")
    context = await drive(LangGraphRunner(outer))
    assert context.text == "deep"
    assert context.of(StepStarted) == [StepStarted(step="s1", author="writer", branch="writer")]


async def test_a_graph_without_messages_gives_its_answer() -> None:
    """With `prepare_state` a graph may have any state; its answer is what it leaves under a usual name."""

    class State(TypedDict):
        question: str
        answer: str

    def think(state: State) -> dict[str, Any]:
        return {"answer": state["question"].upper()}

    graph = StateGraph(State).add_node("think", think).add_edge(START, "think").compile()
    hooks = Hooks(prepare_state=lambda payload: {"question": payload["input"]})
    assert (await drive(LangGraphRunner(graph, RunnerOptions(hooks=hooks)))).text == "HELLO"
    with pytest.raises(
        ConfigError, match=r"\['answer', 'question'\] and no 'messages'; write a function prepare_state"
    ):
        LangGraphRunner(graph)


async def test_what_a_node_raises_comes_out() -> None:
    """The engine makes it a failure; too many steps are told in words."""

    def bad(state: MessagesState) -> dict[str, Any]:
        raise ValueError("secret")

    graph = StateGraph(MessagesState).add_node("bad", bad).add_edge(START, "bad")
    with pytest.raises(ValueError, match="secret"):
        await drive(LangGraphRunner(graph))

    def loop(state: MessagesState) -> dict[str, Any]:
        return {}

    endless = StateGraph(MessagesState).add_node("loop", loop).add_edge(START, "loop").add_edge("loop", "loop")
    short = endless.compile().with_config({"recursion_limit": 3})
    with pytest.raises(RunnerError, match="more steps than its limit"):
        await drive(LangGraphRunner(short))


async def test_stop_ends_the_model_and_the_graph() -> None:
    """Cancelling reaches the node that is running, and nothing is left behind."""
    cancelled = asyncio.Event()
    spoke = asyncio.Event()

    class Hanging(StreamingModel):
        async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                async for chunk in self._stream_chunks(messages):
                    yield chunk
            except asyncio.CancelledError:
                cancelled.set()
                raise

    class Listening(FakeContext):
        def emit(self, body: Any) -> None:
            super().emit(body)
            if isinstance(body, TextDelta):
                spoke.set()

    model = Hanging(script=[words("x")], hangs=True)
    request = run_request()
    before = asyncio.all_tasks()
    task = asyncio.create_task(LangGraphRunner(agent_graph(model)).run(request, Listening(request)))
    await spoke.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()
    assert asyncio.all_tasks() == before


# -- what goes in


async def test_history_becomes_messages_with_calls_results_and_images() -> None:
    """A run begins from the transcript; instructions come first; arguments that are no object are kept."""
    model = StreamingModel(script=[words("ok")])
    history: list[Item] = [
        user_message("a", "weather?"),
        ToolCall(item_id="b", call_id="c1", name="weather", arguments='{"city":"Rome"}', step="s1"),
        ToolCall(item_id="c", call_id="c2", name="odd", arguments="[1]", step="s1"),
        ToolResult(item_id="d", call_id="c1", output=[TextPart(text="20")]),
        ToolResult(item_id="e", call_id="c2", output=[TextPart(text="no")], is_error=True),
        Message(item_id="f", role="assistant", parts=[TextPart(text="20")], step="s2"),
    ]
    input: list[Item] = [
        Message(item_id="in1", role="user", parts=[TextPart(text="this?"), ImagePart(blob="b", media_type="image/png")])
    ]
    request = run_request(history=history, input=input, settings=Settings(instructions="be brief"))
    await drive(LangGraphRunner(agent_graph(model)), request, blobs={"b": b"png"})
    seen = model.seen[0]
    assert [type(message) for message in seen] == [
        SystemMessage,
        HumanMessage,
        AIMessage,
        ToolMessage,
        ToolMessage,
        AIMessage,
        HumanMessage,
    ]
    assert isinstance(seen[2], AIMessage)
    assert [(c["name"], c["args"], c["id"]) for c in seen[2].tool_calls] == [
        ("weather", {"city": "Rome"}, "c1"),
        ("odd", {"_raw": "[1]"}, "c2"),
    ]
    assert isinstance(seen[4], ToolMessage)
    assert seen[4].status == "error"
    assert seen[6].content == [
        {"type": "text", "text": "this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
    ]


async def test_the_requests_settings_reach_the_graph() -> None:
    """Model, options and tools are values of the config, never of the environment."""
    seen: dict[str, Any] = {}

    def spy(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        seen.update(config["configurable"])
        return {}

    graph = StateGraph(MessagesState).add_node("spy", spy).add_edge(START, "spy")
    settings = Settings(model="big", model_options={"a": 1}, user="ann", tools=[ToolSpec(name="t")])
    await drive(LangGraphRunner(graph), run_request(settings=settings))
    wanted = {key: seen[key] for key in ("thread_id", "session_id", "model", "model_options", "user", "tools")}
    assert wanted == {
        "thread_id": "local/run_1",
        "session_id": "session_1",
        "model": "big",
        "model_options": {"a": 1},
        "user": "ann",
        "tools": [{"type": "function", "function": {"name": "t"}}],
    }


async def test_prepare_state_of_the_other_system_works_as_it_is() -> None:
    """`ksadk_prepare_state(payload, session_context)` may give Responses blocks as messages."""
    model = StreamingModel(script=[words("ok")])

    async def prepare(payload: dict[str, Any], session_context: dict[str, Any]) -> dict[str, Any]:
        assert session_context["session_id"] == "session_1"
        assert session_context["kb_context"] == {"formatted_text": "known"}
        assert "kb_context" not in payload
        return {"messages": payload["input_messages"]}

    async def kb(payload: dict[str, Any]) -> dict[str, Any]:
        return {"formatted_text": "known"}

    options = RunnerOptions(hooks=Hooks(prepare_state=prepare, kb_context=kb))
    await drive(
        LangGraphRunner(agent_graph(model), options), run_request("hi", settings=Settings(instructions="brief"))
    )
    assert [message.content for message in model.seen[0]] == ["brief", [{"type": "text", "text": "hi"}]]


async def test_a_graph_may_keep_its_own_memory() -> None:
    """With framework memory the session's thread goes on, and only the turn's input is new; instructions are replaced."""
    model = StreamingModel(script=[words("one"), words("two")])
    runner = LangGraphRunner(agent_graph(model), RunnerOptions(memory="framework"))
    await drive(runner, run_request("a", settings=Settings(instructions="first")))
    history: list[Item] = [user_message("x", "a")]
    await drive(runner, run_request("b", run_id="run_2", history=history, settings=Settings(instructions="second")))
    assert [message.content for message in model.seen[1]] == ["second", "a", "one", "b"]


async def test_a_run_leaves_no_thread_behind() -> None:
    """Its checkpoints are dropped when it has ended, so two runs never see each other's state."""
    model = StreamingModel(script=[words("one"), words("two")])
    runner = LangGraphRunner(agent_graph(model))
    await drive(runner, run_request("a"))
    saver: Any = await runner._savers.saver()
    assert not saver.storage
    await drive(runner, run_request("b"))
    assert [message.content for message in model.seen[1]] == ["b"]


# -- where graphs come from


def hello(state: MessagesState) -> dict[str, Any]:
    """Say hello."""
    return {"messages": [AIMessage(content="hello")]}


def make() -> StateGraph[Any, Any, Any, Any]:
    """A graph that is not compiled."""
    graph = StateGraph(MessagesState).add_node("hello", hello).add_edge(START, "hello")
    return graph


async def make_async() -> Any:
    """The same, async."""
    return make().compile()


def make_for(config: dict[str, Any]) -> Any:
    """The same, for each run."""
    assert config["configurable"]["thread_id"] == "local/run_1"
    return make()


class MakeInContext:
    """An async context manager that gives a graph."""

    entered = 0
    left = 0

    async def __aenter__(self) -> Any:
        """Give it."""
        MakeInContext.entered += 1
        return make()

    async def __aexit__(self, *error: object) -> None:
        """Count."""
        MakeInContext.left += 1


def make_in_context() -> MakeInContext:
    """The same, in a context."""
    return MakeInContext()


@pytest.mark.parametrize("source", [make, make_async, make_for, make_in_context, make(), make().compile()])
async def test_graphs_come_compiled_or_not_or_from_functions(source: Any) -> None:
    """Every way of having a graph works, twice."""
    runner = runner_for(source, RunnerOptions())
    assert runner is not None
    assert (await drive(runner)).text == "hello"
    assert (await drive(runner)).text == "hello"
    await runner.close()
    assert MakeInContext.entered == MakeInContext.left


def test_plain_agents_are_not_factories() -> None:
    """A function of messages is left to the function runner."""

    async def agent(messages: list[Any]) -> str:
        return "x"

    assert runner_for(agent, RunnerOptions()) is None
    assert runner_for("text", RunnerOptions()) is None


async def test_a_factory_that_gives_no_graph_is_refused() -> None:
    """The error names what it gave."""
    with pytest.raises(ConfigError, match="the factory gave a 'int', expected a LangGraph graph"):
        await drive(LangGraphRunner(lambda: 7))
