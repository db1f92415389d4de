"""ChatOpenAI of langchain-openai, over both protocols."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from tests.interop.agents import REASONING

BOTH = pytest.mark.parametrize("responses", [True, False], ids=["responses", "chat"])


class Place(BaseModel):
    """Where something is."""

    city: str
    asked_for: str


@tool
def get_weather(location: str) -> str:
    """Current weather."""
    return f"sunny in {location}"


def model(server: str, name: str, responses: bool, **more: Any) -> ChatOpenAI:
    """LangChain's model with an agent behind it."""
    return ChatOpenAI(
        model=name, base_url=f"{server}/v1", api_key=SecretStr("none"), use_responses_api=responses, **more
    )


@BOTH
def test_a_call(server: str, responses: bool) -> None:
    """A call gives the answer and its usage."""
    answer = model(server, "assistant", responses).invoke("Hello")
    assert answer.text == "You said: Hello"
    assert answer.usage_metadata is not None
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (1, 3)


@BOTH
async def test_async(server: str, responses: bool) -> None:
    """The async methods work likewise."""
    async with httpx.AsyncClient() as client:
        chunks = [chunk async for chunk in model(server, "tools", responses, http_async_client=client).astream("Go.")]
    assert "".join(chunk.text for chunk in chunks).endswith("It is 20 degrees.")


@BOTH
@pytest.mark.parametrize(
    ("name", "text"),
    [("assistant", "You said: Hello"), ("silent", "At last, an answer."), ("thinks", "The answer is 4.")],
)
def test_a_stream(server: str, responses: bool, name: str, text: str) -> None:
    """A stream gives words as they come; keep-alives and reasoning disturb nothing."""
    chunks = list(model(server, name, responses).stream("Hello"))
    assert len([chunk for chunk in chunks if chunk.text]) > 1
    assert "".join(chunk.text for chunk in chunks) == text


def test_reasoning(server: str) -> None:
    """Reasoning is a block of its own, in calls and streams."""
    thinking = model(server, "thinks", True, reasoning={"effort": "low", "summary": "auto"}, output_version="v1")
    answer = thinking.invoke("2 + 2?")
    assert [block["reasoning"] for block in answer.content_blocks if block["type"] == "reasoning"] == [REASONING]
    whole = joined(list(thinking.stream("2 + 2?")))
    assert [block["reasoning"] for block in whole.content_blocks if block["type"] == "reasoning"] == [REASONING]


def joined(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    """The message of some chunks."""
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


@BOTH
@pytest.mark.parametrize("streamed", [True, False])
def test_a_tool_of_the_client(server: str, responses: bool, streamed: bool) -> None:
    """A bound tool is called, and what it gave is answered."""
    bound = model(server, "assistant", responses).bind_tools([get_weather])
    messages: list[BaseMessage] = [HumanMessage("What is the weather?")]
    asked: AIMessage
    if streamed:
        asked = joined([chunk for chunk in bound.stream(messages) if isinstance(chunk, AIMessageChunk)])
    else:
        asked = bound.invoke(messages)
    (call,) = asked.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"location": "San Francisco"})
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage)
    answer = bound.invoke([*messages, asked, result])
    assert answer.text == "The tool says: sunny in San Francisco"


@BOTH
@pytest.mark.parametrize("streamed", [True, False])
def test_a_tool_of_the_server(server: str, responses: bool, streamed: bool) -> None:
    """A tool that the agent ran itself is no call that LangChain would run."""
    tools = model(server, "tools", responses)
    answer = joined(list(tools.stream("Go."))) if streamed else tools.invoke("Go.")
    assert answer.tool_calls == []
    assert "It is 20 degrees." in answer.text
    if responses:
        blocks = [block for block in answer.content if isinstance(block, dict)]
        assert [block["output"] for block in blocks if block["type"] == "mcp_call"] == ['{"temp":20}']
    again = tools.invoke([HumanMessage("Go."), answer, HumanMessage("Again.")])
    assert "It is 20 degrees." in again.text


def test_an_approval(server: str) -> None:
    """A question is a block of the answer, and is answered by a block of the next message."""
    approving = model(server, "approves", True)
    asked = approving.invoke("Delete it.")
    (question,) = [b for b in asked.content if isinstance(b, dict) and b["type"] == "mcp_approval_request"]
    decision = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
    repeated = approving.invoke([HumanMessage("Delete it."), asked, HumanMessage([decision])])
    assert repeated.text == "It is deleted."


def test_chained_by_the_previous_response(server: str) -> None:
    """With `use_previous_response_id` only what is new is sent."""
    chained = model(server, "assistant", True, use_previous_response_id=True)
    first = HumanMessage("My name is Alice.")
    answer = chained.invoke([first, chained.invoke([first]), HumanMessage("What is my name?")])
    assert answer.text == "Your name is Alice."


@BOTH
def test_structured_output(server: str, responses: bool) -> None:
    """A schema reaches the agent, and the answer is parsed by it."""
    places = model(server, "json", responses).with_structured_output(Place, method="json_schema")
    assert places.invoke("Where?") == Place(city="Rome", asked_for="Place")


@BOTH
@pytest.mark.parametrize("streamed", [True, False])
def test_a_failure_runs_once(server: str, responses: bool, streamed: bool) -> None:
    """A failure is raised, with its reason, after one run."""
    question = f"langchain {server} {responses} {streamed}"
    failing = model(server, "fails", responses)
    with pytest.raises((openai.APIError, ValueError), match="the oven is cold"):
        if streamed:
            for _ in failing.stream(question):
                pass
        else:
            failing.invoke(question)
    assert (model(server, "counts", responses).invoke(question)).text == "1"
