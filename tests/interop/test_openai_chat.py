"""openai-python, Chat Completions: plain calls, streams, the accumulating helper, tools, ends."""

from __future__ import annotations

import base64
import json

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from pydantic import BaseModel

from tests.interop.agents import REASONING

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
WEATHER: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string"}},
            "required": ["location"],
            "additionalProperties": False,
        },
    },
}


def test_a_call(client: OpenAI) -> None:
    """A call gives the message, why it ended, and usage."""
    completion = client.chat.completions.create(model="assistant", messages=HELLO)
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("You said: Hello", "stop")
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (1, 3)


def test_a_stream(client: OpenAI) -> None:
    """A stream begins with the role and ends with the reason; usage comes after it when it was asked for."""
    chunks = list(
        client.chat.completions.create(
            model="assistant", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    *said, last = chunks
    assert said[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in said) == "You said: Hello"
    assert [chunk.choices[0].finish_reason for chunk in said][-2:] == [None, "stop"]
    assert (last.choices, last.usage and last.usage.total_tokens) == ([], 4)


@pytest.mark.parametrize(
    ("model", "text", "finish"),
    [
        ("assistant", "You said: Hello", "stop"),
        ("tools", "Let me look. \n\nIt is 20 degrees.", "stop"),
        ("thinks", "The answer is 4.", "stop"),
        ("silent", "At last, an answer.", "stop"),
    ],
)
def test_the_helper(client: OpenAI, model: str, text: str, finish: str) -> None:
    """The accumulating helper gives the whole message; a tool that the server ran is none for the client to run."""
    with client.chat.completions.stream(model=model, messages=HELLO) as stream:
        for _ in stream:
            pass
        (choice,) = stream.get_final_completion().choices
    assert (choice.message.content, choice.finish_reason, choice.message.tool_calls) == (text, finish, None)


async def test_the_async_client(async_client: AsyncOpenAI) -> None:
    """The async client streams likewise."""
    stream = await async_client.chat.completions.create(model="assistant", messages=HELLO, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "You said: Hello"


def test_reasoning(client: OpenAI) -> None:
    """Reasoning is in a field of its own, in streams and completions."""
    message = client.chat.completions.create(model="thinks", messages=HELLO).choices[0].message
    assert message.model_extra == {"reasoning_content": REASONING}
    chunks = client.chat.completions.create(model="thinks", messages=HELLO, stream=True)
    deltas = [(chunk.choices[0].delta.model_extra or {}).get("reasoning_content", "") for chunk in chunks]
    assert "".join(deltas) == REASONING


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_of_the_client(client: OpenAI, stream: bool) -> None:
    """A declared tool is called, and its result answered when the client sends everything again."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the weather?"}]
    if stream:
        with client.chat.completions.stream(model="assistant", messages=messages, tools=[WEATHER]) as events:
            choice = events.get_final_completion().choices[0]
        message, reason = choice.message, choice.finish_reason
    else:
        completion = client.chat.completions.parse(model="assistant", messages=messages, tools=[WEATHER])
        message, reason = completion.choices[0].message, completion.choices[0].finish_reason
    (call,) = message.tool_calls or []
    assert (reason, message.content or "", call.function.name) == ("tool_calls", "", "get_weather")
    assert json.loads(call.function.arguments) == {"location": "San Francisco"}
    messages += [message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]  # type: ignore[list-item]
    answer = client.chat.completions.create(model="assistant", messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "The tool says: sunny"


def test_a_conversation_without_a_session(client: OpenAI) -> None:
    """The agent sees all of the messages."""
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "My name is Alice."},
        {"role": "assistant", "content": "Hello Alice!"},
        {"role": "user", "content": "What is my name?"},
    ]
    answer = client.chat.completions.create(model="assistant", messages=messages)
    assert answer.choices[0].message.content == "Your name is Alice."


def test_a_session(client: OpenAI) -> None:
    """With a session only the new message has to be sent; the agent knows the rest."""
    said: list[ChatCompletionMessageParam] = [{"role": "user", "content": "My name is Alice."}]
    first = client.chat.completions.create(model="assistant", messages=said, extra_body={"session_id": "chat-session"})
    assert (first.model_extra or {})["session_id"] == "chat-session"
    said = [{"role": "user", "content": "What is my name?"}]
    second = client.chat.completions.create(model="assistant", messages=said, extra_body={"session_id": "chat-session"})
    assert second.choices[0].message.content == "Your name is Alice."


def test_images_and_files(client: OpenAI) -> None:
    """Images and files reach the agent."""
    data = base64.b64encode(b"x").decode()
    messages: list[ChatCompletionMessageParam] = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": f"data:text/plain;base64,{data}"}},
            ],
        }
    ]
    answer = client.chat.completions.create(model="assistant", messages=messages)
    assert answer.choices[0].message.content == "You said with image_url, file: See"


def test_structured_output(client: OpenAI) -> None:
    """A schema reaches the agent, and the answer is parsed by it."""

    class Place(BaseModel):
        city: str
        asked_for: str

    answer = client.chat.completions.parse(model="json", messages=HELLO, response_format=Place)
    assert answer.choices[0].message.parsed == Place(city="Rome", asked_for="Place")


def test_an_answer_that_was_cut_off(client: OpenAI) -> None:
    """A limit that was reached is the reason `length`."""
    assert client.chat.completions.create(model="cut-off", messages=HELLO).choices[0].finish_reason == "length"
    chunks = list(client.chat.completions.create(model="cut-off", messages=HELLO, stream=True))
    assert chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize(("model", "message"), [("fails", "the oven is cold"), ("fails-at-once", "The agent failed.")])
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_runs_once(client: OpenAI, server: str, model: str, message: str, stream: bool) -> None:
    """A failure is an error of the client, and is not tried again by it."""
    question = f"chat {model} {stream} {server}"
    asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    with pytest.raises(openai.APIError) as raised:
        answer = client.chat.completions.create(model=model, messages=asked, stream=stream)
        for _ in answer:
            pass
    assert message in raised.value.message
    assert isinstance(raised.value, openai.InternalServerError) is not stream
    assert client.chat.completions.create(model="counts", messages=asked).choices[0].message.content == "1"


def test_an_approval_is_told(client: OpenAI) -> None:
    """A run that waits ends the answer, and says on what it waits in a field of its own."""
    completion = client.chat.completions.create(model="approves", messages=HELLO, store=True)
    waiting = (completion.model_extra or {})["runstone"]
    assert (completion.choices[0].finish_reason, waiting["status"]) == ("stop", "waiting")
    (asked,) = waiting["approvals"]
    answer = {"type": "mcp_approval_response", "approval_request_id": asked["approval_id"], "approve": True}
    done = client.responses.create(
        model="approves",
        previous_response_id=f"resp_{waiting['run_id']}",
        input=[answer],  # type: ignore[list-item]
    )
    assert done.output_text == "It is deleted."


def test_errors(client: OpenAI) -> None:
    """A refused request is the client's own error, with a stable code."""
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nobody", messages=HELLO)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as empty:
        client.chat.completions.create(model="assistant", messages=[])
    assert empty.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as two:
        client.chat.completions.create(model="assistant", messages=HELLO, n=2)
    assert two.value.param == "n"


def test_silence_is_bridged_by_keep_alives(server: str) -> None:
    """While an agent says nothing, single comment lines are sent, which no client takes for a frame."""
    body = {"model": "silent", "messages": HELLO, "stream": True}
    with httpx.stream("POST", f"{server}/v1/chat/completions", json=body, trust_env=False, timeout=10) as response:
        text = response.read().decode()
    assert text.count(": ping\n") >= 4
    assert ": ping\n\n" not in text
