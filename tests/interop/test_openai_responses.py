"""openai-python, Responses: plain calls, streams, the accumulating helper, background, approvals, ends."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import FunctionToolParam, Response, ResponseInputParam
from pydantic import BaseModel

from tests.interop.agents import REASONING

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
        "additionalProperties": False,
    },
}


def kinds(response: Response) -> list[str]:
    """The types of the output's items."""
    return [item.type for item in response.output]


def test_a_call(client: OpenAI) -> None:
    """A call gives text, usage and the id of the request."""
    response = client.responses.create(model="assistant", input="Hello", metadata={"a": "b"})
    assert (response.status, response.output_text, response.metadata) == ("completed", "You said: Hello", {"a": "b"})
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (1, 3)
    assert response._request_id


def test_a_stream(client: OpenAI) -> None:
    """A stream is typed and numbered from the first event to the last, and its words are the answer."""
    events = list(client.responses.create(model="assistant", input="Hello", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    words = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert words == "You said: Hello"


@pytest.mark.parametrize(
    ("model", "expected", "text"),
    [
        ("assistant", ["message"], "You said: Go."),
        ("thinks", ["reasoning", "message"], "The answer is 4."),
        ("tools", ["message", "mcp_call", "message"], "Let me look. It is 20 degrees."),
        ("tool-fails", ["mcp_call", "message"], "I do not know."),
        ("approves", ["mcp_approval_request"], ""),
        ("silent", ["message"], "At last, an answer."),
    ],
)
def test_the_helper(client: OpenAI, model: str, expected: list[str], text: str) -> None:
    """The accumulating helper follows each kind of item, and its final response is the one that is kept."""
    with client.responses.stream(model=model, input="Go.") as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                assert event.snapshot.endswith(event.delta)
        final = stream.get_final_response()
    assert (final.status, kinds(final), final.output_text) == ("completed", expected, text)
    kept = client.responses.retrieve(final.id)
    assert (kept.status, kept.output_text, kept.usage) == (final.status, final.output_text, final.usage)
    assert kinds(kept) == kinds(final)


async def test_the_async_client(async_client: AsyncOpenAI) -> None:
    """The async client streams and helps likewise."""
    events = [event async for event in await async_client.responses.create(model="tools", input="Go.", stream=True)]
    assert events[-1].type == "response.completed"
    async with async_client.responses.stream(model="thinks", input="Go.") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "The answer is 4."


def test_reasoning(client: OpenAI) -> None:
    """Reasoning is a summary, apart from the answer, and its tokens are counted."""
    response = client.responses.create(model="thinks", input="2 + 2?", reasoning={"effort": "low", "summary": "auto"})
    (reasoning,) = [item for item in response.output if item.type == "reasoning"]
    assert [part.text for part in reasoning.summary] == [REASONING]
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 5


def test_a_tool_of_the_server(client: OpenAI) -> None:
    """A tool that the agent ran itself comes with its result, and nothing is left for the client to run."""
    response = client.responses.create(model="tools", input="Weather?")
    (call,) = [item for item in response.output if item.type == "mcp_call"]
    assert (call.name, call.server_label, call.status) == ("weather", "agent", "completed")
    assert (json.loads(call.arguments), json.loads(call.output or "")) == ({"city": "Rome"}, {"temp": 20})


def test_a_tool_of_the_client(client: OpenAI) -> None:
    """A tool that the client declares is called by the agent, run by the client, and answered in the next response."""
    first = client.responses.create(model="assistant", input="What is the weather?", tools=[WEATHER])
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"location": "San Francisco"})
    second = client.responses.create(
        model="assistant",
        previous_response_id=first.id,
        tools=[WEATHER],
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}],
    )
    assert second.output_text == "The tool says: sunny"


def test_a_tool_of_the_client_without_ids(client: OpenAI) -> None:
    """The same works for a client that repeats the output as input."""
    context: list[Any] = [{"role": "user", "content": "What is the weather?"}]
    first = client.responses.create(model="assistant", input=context, tools=[WEATHER], store=False)
    context += first.output
    (call,) = first.output
    assert call.type == "function_call"
    context.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    second = client.responses.create(model="assistant", input=context, tools=[WEATHER], store=False)
    assert second.output_text == "The tool says: sunny"


def test_a_chain_of_responses(client: OpenAI) -> None:
    """A response goes on from another one, and so may a second."""
    first = client.responses.create(model="assistant", input="My name is Alice. The code word: papaya.")
    for question, answer in [("What is my name?", "Alice"), ("What is the code word?", "papaya")]:
        response = client.responses.create(model="assistant", input=question, previous_response_id=first.id)
        assert answer in response.output_text


def test_input_items(client: OpenAI) -> None:
    """What a response was asked is listed page by page."""
    said: ResponseInputParam = [{"role": "user", "content": f"part {n}"} for n in range(3)]
    response = client.responses.create(model="assistant", input=said)
    listed = list(client.responses.input_items.list(response.id, limit=2, order="asc"))
    assert [item.content[0].text for item in listed if item.type == "message"] == [  # type: ignore[union-attr]
        "part 0",
        "part 1",
        "part 2",
    ]


def test_structured_output(client: OpenAI) -> None:
    """A schema reaches the agent, and the answer is parsed by it."""

    class Place(BaseModel):
        city: str
        asked_for: str

    response = client.responses.parse(model="json", input="Where?", text_format=Place)
    assert response.output_parsed == Place(city="Rome", asked_for="Place")


@pytest.mark.parametrize(("approve", "text"), [(True, "It is deleted."), (False, "Not deleted: keep it.")])
@pytest.mark.parametrize("names_response", [True, False])
def test_an_approval(client: OpenAI, approve: bool, text: str, names_response: bool) -> None:
    """A question comes as an item, and its answer goes on with the run, also when the client names no response."""
    waiting = client.responses.create(model="approves", input="Delete it.")
    (asked,) = waiting.output
    assert asked.type == "mcp_approval_request"
    assert (asked.name, json.loads(asked.arguments)) == ("delete_file", {"path": "notes.txt"})
    answer: ResponseInputParam = [
        {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": approve, "reason": "keep it"}
    ]
    if names_response:
        done = client.responses.create(model="approves", previous_response_id=waiting.id, input=answer)
    else:
        repeated: list[Any] = [{"role": "user", "content": "Delete it."}, *waiting.output, *answer]
        done = client.responses.create(model="approves", input=repeated)
    assert (done.status, done.output_text) == ("completed", text)
    assert ("mcp_call" in kinds(done)) is approve


def test_background(client: OpenAI) -> None:
    """A response in the background is there at once, and its whole stream can be read from any place, again and again."""
    started = client.responses.create(model="silent", input="Go.", background=True)
    assert (started.status in ("queued", "in_progress"), started.background) == (True, True)
    whole = list(client.responses.retrieve(started.id, stream=True))
    assert (whole[0].type, whole[-1].type) == ("response.created", "response.completed")
    for after in (0, 3, len(whole) - 2):
        rest = list(client.responses.retrieve(started.id, stream=True, starting_after=after))
        assert rest == whole[after + 1 :]
    with client.responses.stream(response_id=started.id, starting_after=3) as stream:
        assert [event.sequence_number for event in stream] == [event.sequence_number for event in whole[4:]]
        assert stream.get_final_response().output_text == "At last, an answer."


def test_a_cut_stream_is_read_on(client: OpenAI) -> None:
    """A client that leaves a stream finds the rest of it later; the agent went on meanwhile."""
    with client.responses.create(model="silent", input="Go.", stream=True) as stream:
        head = [event for _, event in zip(range(3), stream, strict=False)]
    assert head[0].type == "response.created"
    rest = list(client.responses.retrieve(head[0].response.id, stream=True, starting_after=2))
    assert [event.sequence_number for event in [*head, *rest]] == list(range(len(head) + len(rest)))
    assert rest[-1].type == "response.completed"


def test_cancel(client: OpenAI) -> None:
    """A running response is cancelled, and its open stream ends."""
    started = client.responses.create(model="endless", input="Go.", background=True)
    assert client.responses.cancel(started.id).status == "cancelled"
    assert client.responses.retrieve(started.id).status == "cancelled"
    last = list(client.responses.retrieve(started.id, stream=True))[-1]
    assert last.type == "response.incomplete"
    assert last.response.status == "cancelled"


def test_delete(client: OpenAI) -> None:
    """A deleted response is gone, and so is one that was not to be stored."""
    kept = client.responses.create(model="assistant", input="Hello")
    client.responses.delete(kept.id)
    unkept = client.responses.create(model="assistant", input="Hello", store=False)
    for id in (kept.id, unkept.id):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(id)


def test_an_answer_that_was_cut_off(client: OpenAI) -> None:
    """A limit that was reached is an incomplete response with its reason."""
    response = client.responses.create(model="cut-off", input="Go.")
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    last = list(client.responses.create(model="cut-off", input="Go.", stream=True))[-1]
    assert last.type == "response.incomplete"


@pytest.mark.parametrize(("model", "message"), [("fails", "the oven is cold"), ("fails-at-once", "The agent failed.")])
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_runs_once(client: OpenAI, server: str, model: str, message: str, stream: bool) -> None:
    """A failed response says why, keeps what was not meant for callers, and is not tried again by the client."""
    question = f"{model} {stream} {server}"
    if stream:
        last = list(client.responses.create(model=model, input=question, stream=True))[-1]
        assert last.type == "response.failed"
        response = last.response
    else:
        response = client.responses.create(model=model, input=question)
    assert response.error is not None
    assert (response.status, response.error.code, response.error.message) == ("failed", "server_error", message)
    assert client.responses.create(model="counts", input=question).output_text == "1"


@pytest.mark.parametrize(
    ("error", "code", "request_"),
    [
        (openai.NotFoundError, "model_not_found", {"model": "nobody", "input": "Hello"}),
        (openai.BadRequestError, "invalid_type", {"model": "assistant", "input": 123}),
        (
            openai.BadRequestError,
            "previous_response_not_found",
            {"model": "assistant", "input": "Hello", "previous_response_id": "resp_none"},
        ),
    ],
)
def test_errors(client: OpenAI, error: type[openai.APIStatusError], code: str, request_: dict[str, Any]) -> None:
    """A refused request is the client's own error, with a stable code and the id of the request."""
    with pytest.raises(error) as raised:
        client.responses.create(**request_)
    assert raised.value.code == code
    assert raised.value.request_id


def test_a_busy_conversation(client: OpenAI) -> None:
    """A second turn at the same time is refused in a way that the client does not repeat."""
    conversation = client.conversations.create()
    running = client.responses.create(model="endless", input="Go.", conversation=conversation.id, background=True)
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="endless", input="Go.", conversation=conversation.id)
    assert raised.value.code == "conversation_locked"
    client.responses.cancel(running.id)


def test_silence_is_bridged_by_keep_alives(server: str) -> None:
    """While an agent says nothing, single comment lines are sent, which no client takes for a frame."""
    body = {"model": "silent", "input": "Go.", "stream": True}
    with httpx.stream("POST", f"{server}/v1/responses", json=body, trust_env=False, timeout=10) as response:
        text = response.read().decode()
    assert text.count(": ping\n") >= 4
    assert ": ping\n\n" not in text
