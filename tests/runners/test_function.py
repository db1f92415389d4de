"""Plain functions as agents."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from runstone.core.content import FilePart, ImagePart, TextPart
from runstone.core.events import ApprovalRequested, Body, Custom, StepEnded, TextDelta, ToolProgress
from runstone.core.items import Item, Message, Reasoning, ToolCall, ToolResult, user_message
from runstone.core.runs import Decision, Settings, ToolSpec, Usage
from runstone.errors import ConfigError, NotFound, RunnerError
from runstone.runners.agent_context import AgentContext
from runstone.runners.function import FunctionRunner, agent, runner_for
from runstone.runners.hooks import Hooks, RunnerOptions
from runstone.runners.threads import ROOM, AgentStopped, SyncAgentContext
from runstone.testing import FakeContext, drive, run_request, said


def approve(**fields: Any) -> Any:
    """A decider that approves."""
    return lambda asked: Decision(approval_id=asked.approval_id, decision="approved", **fields)


async def test_an_async_generator_streams() -> None:
    """Each text that it yields is a delta of one message; None says nothing."""

    async def hello(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str | None]:
        yield "He"
        yield None
        yield "llo"

    context = await drive(FunctionRunner(hello))
    assert context.bodies[1:-1] == said("Hello", chunks=["He", "llo"])
    assert context.is_closed


@pytest.mark.parametrize(("result", "text"), [("hi", "hi"), (None, ""), ({"role": "assistant", "content": "yo"}, "yo")])
async def test_a_coroutine_answers_with_what_it_returns(result: Any, text: str) -> None:
    """Text, nothing, or a Chat message."""

    async def answer(messages: list[dict[str, Any]]) -> Any:
        return result

    assert (await drive(FunctionRunner(answer))).text == text


async def test_blocking_agents_run_in_a_thread() -> None:
    """Functions and generators run off the loop's thread, and their words come in order."""
    threads: list[str] = []

    def function(messages: list[dict[str, Any]]) -> str:
        threads.append(threading.current_thread().name)
        return "one"

    def generator(messages: list[dict[str, Any]], context: SyncAgentContext) -> Iterator[str]:
        threads.append(threading.current_thread().name)
        for n in range(1000):
            yield f"{n},"

    assert (await drive(FunctionRunner(function))).text == "one"
    context = await drive(FunctionRunner(generator), wait_every=100)
    assert context.text == "".join(f"{n}," for n in range(1000))
    assert threads == ["agent run_1", "agent run_1"]
    assert context.waits > 5


class Greeter:
    """An agent with state of its own."""

    def __init__(self, word: str) -> None:
        self.word = word

    async def __call__(self, messages: list[dict[str, Any]]) -> str:
        """Greet."""
        return f"{self.word} {messages[-1]['content']}"


async def with_word(word: str, messages: list[dict[str, Any]]) -> str:
    """An agent that needs a first argument bound."""
    return f"{word} {messages[-1]['content']}"


@pytest.mark.parametrize("callable_", [Greeter("hey"), functools.partial(with_word, "hey"), Greeter("hey").__call__])
async def test_whatever_can_be_called_is_an_agent(callable_: Any) -> None:
    """Instances, partial functions and bound methods."""
    assert (await drive(FunctionRunner(callable_), run_request("you"))).text == "hey you"


async def test_a_wrapped_async_agent_is_async() -> None:
    """A plain wrapper around an async agent does not make it a blocking one."""

    async def inner(messages: list[dict[str, Any]]) -> str:
        return threading.current_thread().name

    @functools.wraps(inner)
    def outer(messages: list[dict[str, Any]]) -> Any:
        return inner(messages)

    assert (await drive(FunctionRunner(outer))).text == threading.current_thread().name


async def nothing(messages: list[dict[str, Any]]) -> None:
    """Says nothing."""


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: "x", "takes 0 arguments"),
        (lambda a, b, c: "x", "takes 3 arguments"),
        (lambda messages, *, key: "x", "needs the keyword 'key'"),
    ],
)
def test_a_signature_that_cannot_be_called_is_refused_at_start(bad: Any, words: str) -> None:
    """The error says what was expected."""
    with pytest.raises(ConfigError, match=words):
        runner_for(bad, RunnerOptions())


def test_classes_and_values_are_not_agents() -> None:
    """Only something that can be called with messages is."""
    assert runner_for(Greeter, RunnerOptions()) is None
    assert runner_for(7, RunnerOptions()) is None
    assert isinstance(runner_for(nothing, RunnerOptions()), FunctionRunner)


async def test_an_optional_second_argument_of_another_name_is_left_alone() -> None:
    """The context goes only where it is asked for."""

    async def warm(messages: list[dict[str, Any]], temperature: float = 0.5) -> str:
        return str(temperature)

    assert (await drive(FunctionRunner(warm))).text == "0.5"


@pytest.mark.parametrize("chunk", [7, b"x", {"delta": "x"}, ["x"]])
async def test_a_yield_of_another_type_fails_the_run_and_says_why(chunk: Any) -> None:
    """The message names the type and what was expected, for async and blocking agents."""

    async def async_agent(messages: list[dict[str, Any]]) -> AsyncIterator[Any]:
        yield chunk

    def sync_agent(messages: list[dict[str, Any]]) -> Iterator[Any]:
        yield chunk

    for bad in (async_agent, sync_agent):
        with pytest.raises(RunnerError, match=f"yielded a '{type(chunk).__name__}'; an agent yields or returns text"):
            await drive(FunctionRunner(bad))


async def test_exit_in_an_agent_fails_its_run_only() -> None:
    """`sys.exit` in an agent is that agent's failure."""

    async def async_agent(messages: list[dict[str, Any]]) -> None:
        raise SystemExit(3)

    def sync_agent(messages: list[dict[str, Any]]) -> None:
        raise SystemExit(3)

    for bad in (async_agent, sync_agent):
        with pytest.raises(RunnerError):
            await drive(FunctionRunner(bad))


async def test_what_the_agent_raises_comes_out_as_it_is() -> None:
    """The engine decides what is shown; what was said before stays."""

    def broken(messages: list[dict[str, Any]]) -> Iterator[str]:
        yield "so far"
        raise ValueError("secret")

    request = run_request()
    context = FakeContext(request)
    with pytest.raises(ValueError, match="secret"):
        await FunctionRunner(broken).run(request, context)
    assert context.of(TextDelta) == [TextDelta(item_id="i1", text="so far")]


# -- what it is given


async def test_messages_are_history_and_input_in_chat_form() -> None:
    """Instructions first, then history with calls and results, then the input; bytes as data URLs."""
    seen: list[Any] = []

    async def spy(messages: list[dict[str, Any]]) -> None:
        seen.extend(messages)

    history: list[Item] = [
        user_message("a", "weather?"),
        Message(item_id="b", role="assistant", parts=[TextPart(text="let me look")], step="s1"),
        ToolCall(item_id="c", call_id="c1", name="weather", arguments='{"city":"Paris"}', step="s1"),
        ToolCall(item_id="d", call_id="c2", name="time", arguments="{}", step="s1"),
        ToolResult(item_id="e", call_id="c2", output=[TextPart(text="noon")]),
        Reasoning(item_id="f", text="hm"),
        ToolResult(item_id="g", call_id="c1", output=[TextPart(text="20")]),
        Message(item_id="h", role="assistant", parts=[TextPart(text="20 at noon")], step="s2"),
    ]
    image = ImagePart(blob="b1", media_type="image/png")
    note = FilePart(name="n.txt", blob="b2", media_type="text/plain")
    input = [Message(item_id="in1", role="user", parts=[TextPart(text="and this?"), image, note])]
    request = run_request(history=history, input=input, settings=Settings(instructions="be brief"))
    await drive(FunctionRunner(spy), request, blobs={"b1": b"png", "b2": b"text"})
    assert seen == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": "let me look",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}},
                {"id": "c2", "type": "function", "function": {"name": "time", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "noon"},
        {"role": "tool", "tool_call_id": "c1", "content": "20"},
        {"role": "assistant", "content": "20 at noon"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
                {"type": "file", "file": {"filename": "n.txt", "file_data": "data:text/plain;base64,dGV4dA=="}},
            ],
        },
    ]


async def test_a_file_that_was_deleted_stays_a_reference() -> None:
    """Bytes that are gone do not fail the run."""

    async def spy(messages: list[dict[str, Any]]) -> str:
        return str(messages[0]["content"][0]["image_url"]["url"])

    parts: list[Any] = [ImagePart(blob="gone")]
    request = run_request(input=[Message(item_id="in1", role="user", parts=parts)])
    assert (await drive(FunctionRunner(spy), request)).text == "gone"


async def test_the_context_says_what_the_request_says() -> None:
    """Model, options, tools and the rest are attributes, absent ones None or empty."""
    seen: dict[str, Any] = {}

    async def spy(messages: list[dict[str, Any]], context: AgentContext) -> None:
        seen.update(vars(context))

    settings = Settings(
        model="m", model_options={"a": 1}, user="ann", tools=[ToolSpec(name="t", parameters={"type": "object"})]
    )
    await drive(FunctionRunner(spy), run_request("hi", settings=settings, metadata={"k": "v"}))
    public = {key: value for key, value in seen.items() if not key.startswith("_")}
    del public["composer"], public["inbox"]
    assert public == {
        "run_id": "run_1",
        "session_id": "session_1",
        "model": "m",
        "model_options": {"a": 1},
        "model_metadata": {},
        "instructions": None,
        "user": "ann",
        "metadata": {"k": "v"},
        "tools": [{"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}],
        "tool_choice": None,
        "input_text": "hi",
    }


async def test_files_are_read_by_their_block() -> None:
    """A block of a message, a stored part and a data URL give bytes; an address elsewhere is refused."""
    found: list[Any] = []

    async def reader(messages: list[dict[str, Any]], context: AgentContext) -> None:
        for block in messages[-1]["content"]:
            found.append(await context.read(block))
        found.append(await context.read({"file_uri": "b1"}))
        with pytest.raises(RunnerError, match="not fetched"):
            await context.read("https://example.org/a.png")
        with pytest.raises(NotFound):
            await context.read("b9")
        with pytest.raises(RunnerError, match="no bytes"):
            await context.read({"type": "text", "text": "x"})

    parts: list[Any] = [ImagePart(blob="b1", media_type="image/png"), FilePart(name="n", blob="b2")]
    request = run_request(input=[Message(item_id="in1", role="user", parts=parts)])
    await drive(FunctionRunner(reader), request, blobs={"b1": b"png", "b2": b"text"})
    assert found == [b"png", b"text", b"png"]


async def test_the_payload_has_the_names_and_the_contexts_of_the_hooks() -> None:
    """The names of the payload, with what the optional hooks know, worked out once."""
    asked: list[str] = []

    async def kb_context(payload: dict[str, Any]) -> dict[str, Any]:
        asked.append(payload["input"])
        return {"formatted_text": "known"}

    async def spy(messages: list[dict[str, Any]], context: AgentContext) -> str:
        payload = await context.payload()
        assert await context.payload() is payload
        return f"{payload['input']} {payload['kb_context']} {'memory_context' in payload}"

    runner = FunctionRunner(spy, RunnerOptions(hooks=Hooks(kb_context=kb_context)))
    assert (await drive(runner)).text == "hello {'formatted_text': 'known'} False"
    assert asked == ["hello"]


# -- what it can say


async def working(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Uses all of its context."""
    context.reasoning("hm")
    yield "look"
    async with context.tool("weather", {"city": "Paris"}) as call:
        call.progress({"at": 1})
        call.result({"temp": 20})
    async with context.step(model="big", author="writer") as step:
        step.usage(input_tokens=2, output_tokens=3)
        yield "20"
        step.finish("length")
    context.custom("note", {"x": 1})


def working_sync(messages: list[dict[str, Any]], context: SyncAgentContext) -> Iterator[str]:
    """The same, blocking."""
    context.reasoning("hm")
    yield "look"
    with context.tool("weather", {"city": "Paris"}) as call:
        call.progress({"at": 1})
        call.result({"temp": 20})
    with context.step(model="big", author="writer") as step:
        step.usage(input_tokens=2, output_tokens=3)
        yield "20"
        step.finish("length")
    context.custom("note", {"x": 1})


@pytest.mark.parametrize("both", [working, working_sync])
async def test_reasoning_tools_and_steps(both: Any) -> None:
    """Everything comes in the order it was said, closed, each in its step, alike for async and blocking agents."""
    context = await drive(FunctionRunner(both))
    assert context.is_closed
    assert [(type(item), item.step) for item in context.items] == [
        (Reasoning, "s1"),
        (Message, "s1"),
        (ToolCall, "s1"),
        (ToolResult, "s1"),
        (Message, "s2"),
    ]
    assert context.items[3].text == '{"temp":20}'  # type: ignore[union-attr]
    assert context.items[4].author == "writer"
    assert context.of(StepEnded)[-1] == StepEnded(
        step="s2", model="big", finish_reason="length", usage=Usage(input_tokens=2, output_tokens=3)
    )
    assert context.of(Custom) == [Custom(name="note", data={"x": 1})]
    assert context.of(ToolProgress) == [ToolProgress(call_id="call_1", data={"at": 1})]


async def test_usage_and_finish_outside_of_a_step() -> None:
    """They belong to the stretch that is going on."""

    async def counting(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield "a"
        context.usage(output_tokens=1)
        context.finish("content_filter")

    ended = (await drive(FunctionRunner(counting))).of(StepEnded)
    assert ended == [StepEnded(step="s1", finish_reason="content_filter", usage=Usage(output_tokens=1))]


@pytest.mark.parametrize(
    ("error", "shown"), [(ValueError("secret"), "The tool failed (ValueError)."), (RunnerError("no city"), "no city")]
)
async def test_an_exception_in_a_tool_is_a_failed_result(error: Exception, shown: str) -> None:
    """The call gets an error result without the exception's text, and the exception goes on to the agent."""

    async def careful(messages: list[dict[str, Any]], context: AgentContext) -> str:
        with pytest.raises(type(error)):
            async with context.tool("t", {}):
                raise error
        return "went on"

    context = await drive(FunctionRunner(careful))
    result = context.items[1]
    assert isinstance(result, ToolResult)
    assert (result.is_error, result.text) == (True, shown)
    assert context.text == "went on"


async def test_a_tool_has_one_result() -> None:
    """A second result is refused; none at all is an empty one."""

    async def twice(messages: list[dict[str, Any]], context: AgentContext) -> None:
        async with context.tool("t", {}) as call:
            call.result("x")
            with pytest.raises(RunnerError, match="has its result already"):
                call.result("y")
        async with context.tool("u", {}):
            pass

    results = [item.text for item in (await drive(FunctionRunner(twice))).items if isinstance(item, ToolResult)]
    assert results == ["x", ""]


async def test_tools_may_run_at_once() -> None:
    """Parallel tools of one model call give their results in the order they finish."""

    async def parallel(messages: list[dict[str, Any]], context: AgentContext) -> None:
        first_may_end = asyncio.Event()

        async def slow() -> None:
            async with context.tool("slow", {}) as call:
                await first_may_end.wait()
                call.result("s")

        async def fast() -> None:
            async with context.tool("fast", {}) as call:
                call.result("f")
            first_may_end.set()

        await asyncio.gather(slow(), fast())

    context = await drive(FunctionRunner(parallel))
    assert [item.text for item in context.items if isinstance(item, ToolResult)] == ["f", "s"]


async def test_a_tool_of_the_client_stays_open() -> None:
    """A call for the client has no result in this run."""

    async def asks(messages: list[dict[str, Any]], context: AgentContext) -> None:
        context.call_tool_of_client("pick", {"n": 1}, "c1")

    context = await drive(FunctionRunner(asks))
    assert context.open_calls() == ["c1"]
    assert context.state.calls["c1"].executor == "client"
    assert context.is_closed


async def test_an_approval_gives_the_arguments_to_run() -> None:
    """The decided arguments replace the asked ones, and the call that follows is the one that was decided."""

    async def careful(messages: list[dict[str, Any]], context: AgentContext) -> None:
        answer = await context.approve("rm", {"path": "a"}, prompt="really?")
        assert answer.approved
        assert answer.reason == "fine"
        async with context.tool("rm", answer.arguments, answer.call_id) as call:
            call.result("gone")

    context = await drive(FunctionRunner(careful), decide=approve(arguments='{"path":"b"}', reason="fine"))
    assert context.of(ApprovalRequested) == [
        ApprovalRequested(
            approval_id="appr_1",
            kind="confirm",
            call_id="call_1",
            name="rm",
            arguments='{"path":"a"}',
            prompt="really?",
        )
    ]
    call = next(item for item in context.items if isinstance(item, ToolCall))
    assert (call.call_id, call.arguments) == ("call_1", '{"path":"b"}')


@pytest.mark.parametrize("word", ["denied", "expired", "withdrawn"])
async def test_anything_but_approved_is_not_approved(word: Any) -> None:
    """Denied, expired and withdrawn approvals leave the tool undone."""

    async def careful(messages: list[dict[str, Any]], context: AgentContext) -> str:
        answer = await context.approve("rm", {})
        return f"{answer.approved} {answer.decision} {answer.arguments}"

    context = await drive(
        FunctionRunner(careful), decide=lambda asked: Decision(approval_id=asked.approval_id, decision=word)
    )
    assert context.text == f"False {word} {{}}"


async def test_a_question_gives_its_answer_also_to_a_thread() -> None:
    """`ask` waits for the value, in async agents and in blocking ones."""

    async def asks(messages: list[dict[str, Any]], context: AgentContext) -> str:
        return str(await context.ask("where?", choices=["Paris", "Rome"]))

    def asks_blocking(messages: list[dict[str, Any]], context: SyncAgentContext) -> str:
        return str(context.ask("where?", choices=["Paris", "Rome"]))

    for asking in (asks, asks_blocking):
        context = await drive(
            FunctionRunner(asking),
            decide=lambda asked: Decision(approval_id=asked.approval_id, decision="answered", value="Rome"),
        )
        assert context.text == "Rome"
        assert context.of(ApprovalRequested)[0].choices == ["Paris", "Rome"]


async def test_the_inbox_gives_new_messages_once() -> None:
    """Reading takes what came since the last time; iterating ends when nothing is left."""
    seen: list[Any] = []
    request = run_request()
    context = FakeContext(request)

    async def listening(messages: list[dict[str, Any]], mine: AgentContext) -> None:
        seen.append(await mine.inbox.take())
        context.steer("left")
        context.steer("right")
        seen.extend([message async for message in mine.inbox])
        seen.append(await mine.inbox.take())

    await FunctionRunner(listening).run(request, context)
    assert seen == [[], {"role": "user", "content": "left"}, {"role": "user", "content": "right"}, []]


# -- capabilities and stop


def test_capabilities_are_what_the_agent_declares() -> None:
    """The decorator, or attributes of the same names, make them; a name for the agent comes along."""

    @agent(approvals=True, models=["big", "small"], client_tools=True)
    async def declared(messages: list[dict[str, Any]]) -> None: ...

    async def attributes(messages: list[dict[str, Any]]) -> None: ...

    attributes.steers = True  # type: ignore[attr-defined]
    mine = FunctionRunner(declared).capabilities
    assert (mine.approvals.level, mine.client_tools.level, mine.steer.level) == ("native", "native", "none")
    assert (mine.models.level, mine.model_names) == ("native", ["big", "small"])
    assert FunctionRunner(attributes).capabilities.steer.level == "native"
    assert FunctionRunner(nothing).capabilities.models.reason == "the agent chooses its model itself"


def test_a_blocking_agent_says_that_its_stop_is_emulated() -> None:
    """A thread cannot be killed, and the capability says so."""
    assert FunctionRunner(lambda messages: "x").capabilities.stop.level == "emulated"
    assert FunctionRunner(nothing).capabilities.stop.level == "native"


async def test_stop_closes_an_async_generator() -> None:
    """Cancelling runs the agent's own cleaning up."""
    cleaned = asyncio.Event()
    started = asyncio.Event()

    async def endless(messages: list[dict[str, Any]]) -> AsyncIterator[str]:
        try:
            while True:
                yield "x"
                started.set()
                await asyncio.get_running_loop().create_future()
        finally:
            cleaned.set()

    task = asyncio.create_task(drive(FunctionRunner(endless)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def test_stop_leaves_a_thread_alone_and_its_next_word_ends_it() -> None:
    """The run ends at once; the thread counts as busy until its next word, which raises in it."""
    loop = asyncio.get_running_loop()
    started, ended, go_on = asyncio.Event(), asyncio.Event(), threading.Event()
    raised: list[BaseException] = []

    def stuck(messages: list[dict[str, Any]], context: SyncAgentContext) -> Iterator[str]:
        yield "x"
        loop.call_soon_threadsafe(started.set)
        go_on.wait(10)
        try:
            context.text("too late")
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            loop.call_soon_threadsafe(ended.set)

    runner = FunctionRunner(stuck, RunnerOptions(threads=1))
    request = run_request()
    context = FakeContext(request)
    task = asyncio.create_task(runner.run(request, context))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert runner.threads.busy == 1
    go_on.set()
    await ended.wait()
    await runner.threads.take()
    assert [type(error) for error in raised] == [AgentStopped]
    assert context.of(TextDelta) == [TextDelta(item_id="i1", text="x")]


async def test_stop_wakes_a_thread_that_waits_for_a_person() -> None:
    """A blocking agent that waits for a decision ends with its run."""
    ended = threading.Event()
    asked = asyncio.Event()

    class Asking(FakeContext):
        def emit(self, body: Body) -> None:
            super().emit(body)
            if isinstance(body, ApprovalRequested):
                asked.set()

    def waiting(messages: list[dict[str, Any]], context: SyncAgentContext) -> None:
        try:
            context.approve("rm", {})
        finally:
            ended.set()

    request = run_request()
    task = asyncio.create_task(FunctionRunner(waiting).run(request, Asking(request)))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 5)


async def test_a_blocking_agent_does_not_run_ahead_without_end() -> None:
    """A thread waits when the loop is behind."""
    overran = threading.Event()

    def fast(messages: list[dict[str, Any]]) -> Iterator[str]:
        for n in range(5000):
            if n > ROOM + 10:
                overran.set()
            yield "x"

    request = run_request()
    context = FakeContext(request)
    task = asyncio.create_task(FunctionRunner(fast).run(request, context))
    await asyncio.sleep(0)
    # The loop is held here, so nobody listens to the thread.
    assert not overran.wait(0.05)
    await task
    assert overran.is_set()
    assert len(context.text) == 5000


async def test_agents_beyond_the_limit_of_threads_wait() -> None:
    """With one thread, the second run begins when the first has ended."""
    order: list[str] = []
    first_is_in, go_on = threading.Event(), threading.Event()

    def slow(messages: list[dict[str, Any]]) -> None:
        order.append(f"in {messages[-1]['content']}")
        first_is_in.set()
        go_on.wait(10)
        order.append(f"out {messages[-1]['content']}")

    runner = FunctionRunner(slow, RunnerOptions(threads=1))
    tasks = [asyncio.create_task(drive(runner, run_request(text))) for text in ("a", "b", "c")]
    await asyncio.to_thread(first_is_in.wait, 5)
    tasks[1].cancel()
    go_on.set()
    await asyncio.gather(tasks[0], tasks[2])
    assert order == ["in a", "out a", "in c", "out c"]
    assert runner.threads.busy == 0
