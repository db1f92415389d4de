"""The OpenAI Agents SDK with an agent behind a model: both of its model classes, tools, approvals, its own sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from agents import (
    Agent,
    HostedMCPTool,
    MCPToolApprovalFunctionResult,
    MCPToolApprovalRequest,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunResult,
    RunResultStreaming,
    function_tool,
)
from openai import APIError, AsyncOpenAI
from openai.types.responses.tool_param import Mcp

#: No traces leave the machine.
CONFIG = RunConfig(tracing_disabled=True)
BOTH = pytest.mark.parametrize("of", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
#: The "MCP server" whose tools are those of the agent behind the model.
LABEL = Mcp(type="mcp", server_label="agent", server_url="http://127.0.0.1/", require_approval="always")


@function_tool
def get_weather(location: str) -> str:
    """Current weather."""
    return f"sunny in {location}"


def kinds(result: RunResult | RunResultStreaming) -> list[str]:
    """The types of the items of a run."""
    return [item.type for item in result.new_items]


def model(of: type[Model], name: str, client: AsyncOpenAI) -> Model:
    """A model of the class with an agent behind it."""
    return of(name, openai_client=client)  # type: ignore[call-arg]


@BOTH
async def test_a_run(async_client: AsyncOpenAI, of: type[Model]) -> None:
    """A run gives the answer and its usage."""
    agent = Agent(name="a", model=model(of, "assistant", async_client), instructions="Be brief.")
    result = await Runner.run(agent, "Hello", run_config=CONFIG)
    assert result.final_output == "You said: Hello"
    assert result.context_wrapper.usage.output_tokens == 3


@BOTH
async def test_a_streamed_run(async_client: AsyncOpenAI, of: type[Model]) -> None:
    """A streamed run gives words as they come."""
    agent = Agent(name="a", model=model(of, "assistant", async_client))
    result = Runner.run_streamed(agent, "Hello", run_config=CONFIG)
    assert "".join([delta async for delta in deltas(result)]) == "You said: Hello"
    assert result.final_output == "You said: Hello"


async def deltas(result: RunResultStreaming) -> AsyncIterator[str]:
    """The words of a streamed run."""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield event.data.delta


@BOTH
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_tool_of_the_sdk(async_client: AsyncOpenAI, of: type[Model], streamed: bool) -> None:
    """A function of the SDK's agent is called, and what it gave is answered."""
    agent = Agent(name="a", model=model(of, "assistant", async_client), tools=[get_weather])
    result: RunResult | RunResultStreaming
    if streamed:
        result = Runner.run_streamed(agent, "What is the weather?", run_config=CONFIG)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, "What is the weather?", run_config=CONFIG)
    assert kinds(result) == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert result.final_output == "The tool says: sunny in San Francisco"


async def test_chained_by_the_previous_response(async_client: AsyncOpenAI) -> None:
    """With `auto_previous_response_id` only what is new is sent, and the tool's result finds its call."""
    agent = Agent(name="a", model=model(OpenAIResponsesModel, "assistant", async_client), tools=[get_weather])
    result = await Runner.run(agent, "What is the weather?", auto_previous_response_id=True, run_config=CONFIG)
    assert result.final_output == "The tool says: sunny in San Francisco"
    assert (result.last_response_id or "").startswith("resp_")


async def test_a_conversation_of_the_server(async_client: AsyncOpenAI) -> None:
    """With `conversation_id` the server remembers, tool calls included."""
    conversation = await async_client.conversations.create()
    agent = Agent(name="a", model=model(OpenAIResponsesModel, "assistant", async_client), tools=[get_weather])
    for question, answer in [
        ("My name is Alice.", "Your name is Alice."),
        ("What is the weather?", "The tool says: sunny in San Francisco"),
        ("What is my name?", "Your name is Alice."),
    ]:
        result = await Runner.run(agent, question, conversation_id=conversation.id, run_config=CONFIG)
        assert result.final_output == answer


async def test_a_session_of_the_sdk(async_client: AsyncOpenAI) -> None:
    """The SDK's own session keeps its items in a conversation of the server."""
    session = OpenAIConversationsSession(openai_client=async_client)
    agent = Agent(name="a", model=model(OpenAIResponsesModel, "assistant", async_client), tools=[get_weather])
    await Runner.run(agent, "My name is Alice.", session=session, run_config=CONFIG)
    await Runner.run(agent, "What is the weather?", session=session, run_config=CONFIG)
    result = await Runner.run(agent, "What is my name?", session=session, run_config=CONFIG)
    assert result.final_output == "Your name is Alice."
    items = await session.get_items()
    assert len(items) == 8
    assert await session.pop_item() == items[-1]
    await session.clear_session()


async def test_reasoning(async_client: AsyncOpenAI) -> None:
    """Reasoning is an item of its own, also when the run is repeated as input."""
    agent = Agent(name="a", model=model(OpenAIResponsesModel, "thinks", async_client))
    result = await Runner.run(agent, "2 + 2?", run_config=CONFIG)
    assert kinds(result) == ["reasoning_item", "message_output_item"]
    again = await Runner.run(agent, result.to_input_list(), run_config=CONFIG)
    assert again.final_output == "The answer is 4."


async def test_a_tool_of_the_server(async_client: AsyncOpenAI) -> None:
    """A tool that the agent behind the model ran is shown, not run again, and may be repeated as input."""
    agent = Agent(name="a", model=model(OpenAIResponsesModel, "tools", async_client))
    result = await Runner.run(agent, "Weather?", run_config=CONFIG)
    assert kinds(result) == ["message_output_item", "tool_call_item", "message_output_item"]
    assert result.final_output == "It is 20 degrees."
    again = await Runner.run(agent, [*result.to_input_list(), {"role": "user", "content": "Again"}], run_config=CONFIG)
    assert again.final_output == "It is 20 degrees."


@pytest.mark.parametrize(("approve", "text"), [(True, "It is deleted."), (False, "Not deleted: keep it.")])
@pytest.mark.parametrize("chained", [True, False])
async def test_an_approval_by_a_callback(async_client: AsyncOpenAI, approve: bool, text: str, chained: bool) -> None:
    """A question of the agent behind the model is answered by the callback of a hosted tool with the server's label."""
    asked: list[str] = []

    def decide(request: MCPToolApprovalRequest) -> MCPToolApprovalFunctionResult:
        asked.append(request.data.name)
        return {"approve": approve} if approve else {"approve": False, "reason": "keep it"}

    tool = HostedMCPTool(tool_config=LABEL, on_approval_request=decide)
    agent = Agent(name="a", model=model(OpenAIResponsesModel, "approves", async_client), tools=[tool])
    result = await Runner.run(agent, "Delete it.", auto_previous_response_id=chained, run_config=CONFIG)
    assert (asked, result.final_output) == (["delete_file"], text)
    again = await Runner.run(
        Agent(name="b", model=model(OpenAIResponsesModel, "assistant", async_client), tools=[tool]),
        [*result.to_input_list(), {"role": "user", "content": "Thanks"}],
        run_config=CONFIG,
    )
    assert again.final_output == "You said: Thanks"


async def test_an_approval_by_a_person(async_client: AsyncOpenAI) -> None:
    """Without a callback the run is interrupted, and goes on from its state when somebody has decided."""
    tool = HostedMCPTool(tool_config=LABEL)
    agent = Agent(name="a", model=model(OpenAIResponsesModel, "approves", async_client), tools=[tool])
    result = await Runner.run(agent, "Delete it.", run_config=CONFIG)
    (asked,) = result.interruptions
    assert asked.name == "delete_file"
    state = result.to_state()
    state.approve(asked)
    assert (await Runner.run(agent, state, run_config=CONFIG)).final_output == "It is deleted."


async def test_silence(async_client: AsyncOpenAI) -> None:
    """Keep-alives of a silent agent disturb nothing."""
    agent = Agent(name="a", model=model(OpenAIResponsesModel, "silent", async_client))
    result = Runner.run_streamed(agent, "Go.", run_config=CONFIG)
    assert "".join([delta async for delta in deltas(result)]) == "At last, an answer."


@BOTH
async def test_a_failure_runs_once(async_client: AsyncOpenAI, server: str, of: type[Model]) -> None:
    """A failure is raised, with its reason, after one run."""
    question = f"agents {of.__name__} {server}"
    agent = Agent(name="a", model=model(of, "fails", async_client))
    result = Runner.run_streamed(agent, question, run_config=CONFIG)
    with pytest.raises(Exception, match="the oven is cold") as raised:
        async for _ in result.stream_events():
            pass
    assert of is OpenAIResponsesModel or isinstance(raised.value, APIError)
    response = await async_client.responses.create(model="counts", input=question)
    assert response.output_text == "1"
