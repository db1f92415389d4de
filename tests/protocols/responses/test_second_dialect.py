"""The tables of the second dialect's page, row by row: request fields, response fields, stream events, resume inputs.

Each test names its row. All of them read with `dialect="ksadk"`, which is what a reader without any header gets.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from runstone.core.content import FilePart, ImagePart, TextPart
from runstone.core.events import (
    ApprovalRequested,
    ArgumentsDelta,
    Body,
    Event,
    ItemEnded,
    ItemStarted,
    ReasoningDelta,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    TextDelta,
)
from runstone.core.items import Message, Reasoning, ToolCall, ToolResult, user_message
from runstone.core.runs import RunFailure, Usage
from runstone.errors import InvalidRequest
from runstone.protocols.responses.encode import response_body
from runstone.protocols.responses.request import ResponsesRequest, start_from_responses
from tests.protocols.responses.support import AT, RUN_ID, data_of, header_of, stream
from tests.protocols.strategies import numbered

USAGE = Usage(input_tokens=3, output_tokens=4)
START: list[Body] = [RunCreated(agent="my-agent", input=[user_message("in1", "hi")]), RunStarted()]
OFFICIAL_ONLY = {"response.reasoning_summary_text.delta", "response.reasoning_summary_part.added"}


def ask(**fields: Any) -> ResponsesRequest:
    """A request of the page with these fields."""
    return start_from_responses({"model": "my-agent", "input": "Explain what this agent can do.", **fields})


def answer(events: list[Event], **request: Any) -> dict[str, Any]:
    """The response to a request, without a stream."""
    start = ask(**request).start
    header = header_of(echo=start.echo["responses"], session_id=start.session_id or "ses_1")
    return dict(response_body(header, events, dialect="ksadk"))


def said(events: list[Event], kind: str) -> list[dict[str, Any]]:
    """What the stream's events of one type say."""
    return [one for one in data_of(stream(header_of(), events, dialect="ksadk")) if one["type"] == kind]


def whole_run(*, ended: RunEnded | None = None) -> list[Event]:
    """Reasoning, a call that the server runs, and an answer."""
    call = ToolCall(item_id="i2", call_id="call_1", name="weather", arguments='{"city":"x"}')
    result = ToolResult(item_id="i3", call_id="call_1", output=[TextPart(text="20 C")])
    return numbered(
        [
            *START,
            ItemStarted(item_id="i1", kind="reasoning"),
            ReasoningDelta(item_id="i1", text="Hm."),
            ItemEnded(item=Reasoning(item_id="i1", text="Hm.")),
            ItemStarted(item_id="i2", kind="tool_call", call_id="call_1", name="weather"),
            ArgumentsDelta(item_id="i2", text='{"city":'),
            ArgumentsDelta(item_id="i2", text='"x"}'),
            ItemEnded(item=call),
            ItemStarted(item_id="i3", kind="tool_result", call_id="call_1"),
            ItemEnded(item=result),
            ItemStarted(item_id="i4", kind="message"),
            TextDelta(item_id="i4", text="20 "),
            TextDelta(item_id="i4", text="degrees"),
            ItemEnded(item=Message(item_id="i4", role="assistant", parts=[TextPart(text="20 degrees")])),
            ended or RunEnded(outcome="completed", usage=USAGE),
        ]
    )


def waiting_run() -> list[Event]:
    """A run that waits for a decision about a call."""
    asked = ApprovalRequested(approval_id="approval_123", kind="confirm", name="delete", arguments='{"path":"a"}')
    return numbered([*START, asked, RunPaused(approvals=["approval_123"])])


# -- request fields


def test_request_model() -> None:
    """Row `model`: the model or agent of this request, and the response says it."""
    assert ask().start.agent == "my-agent"
    assert answer(whole_run())["model"] == "my-agent"


@pytest.mark.parametrize(
    "value",
    ["hello", {"role": "user", "content": "hello"}, [{"role": "user", "content": "hello"}]],
    ids=["string", "message object", "item list"],
)
def test_request_input(value: Any) -> None:
    """Row `input`: a string, a message object or a list of input items."""
    assert ask(input=value).start.input == [user_message("in1", "hello")]


def test_request_instructions() -> None:
    """Row `instructions`: further instructions on the level of the system, repeated in the response."""
    assert ask(instructions="Be brief.").start.settings.instructions == "Be brief."
    assert answer(whole_run(), instructions="Be brief.")["instructions"] == "Be brief."


def test_request_metadata() -> None:
    """Row `metadata`: the caller's metadata are kept, objects in them too."""
    metadata = {"topic": "x", "agentengine": {"trace": "t"}}
    assert ask(metadata=metadata).start.metadata == metadata
    assert answer(whole_run(), metadata=metadata)["metadata"] == metadata


@pytest.mark.parametrize("value", ["local-demo-session", {"id": "local-demo-session"}])
def test_request_conversation(value: Any) -> None:
    """Row `conversation`: an id, or an object with `id`."""
    assert ask(conversation=value).start.session_id == "local-demo-session"
    body = answer(whole_run(), conversation=value)
    assert (body["conversation"], body["session_id"]) == ({"id": "local-demo-session"}, "local-demo-session")


def test_request_previous_response_id() -> None:
    """Row `previous_response_id`: names the response before, where no conversation is used."""
    request = ask(previous_response_id=f"resp_{RUN_ID}")
    assert request.previous[0] == (RUN_ID, 0)
    with pytest.raises(InvalidRequest):
        ask(previous_response_id=f"resp_{RUN_ID}", conversation="c")


def test_request_stream() -> None:
    """Row `stream`: asks for server-sent events, and for the same run either way."""
    assert ask(stream=True).stream
    assert not ask(stream=False).stream
    assert ask(stream=True).start.body == ask(stream=False).start.body


def test_request_model_metadata() -> None:
    """Row `model_metadata`: hints about the model reach the agent."""
    assert ask(model_metadata={"vision": True}).start.settings.model_metadata == {"vision": True}


def test_request_model_options() -> None:
    """Row `model_options`: a provider's own options reach the agent."""
    assert ask(model_options={"seed": 7}).start.settings.model_options == {"seed": 7}


def test_request_session_id() -> None:
    """Row `session_id`: the older name of the conversation; another one beside it is refused."""
    assert ask(session_id="local-demo-session").start.session_id == "local-demo-session"
    assert ask(session_id="a", conversation={"id": "a"}).start.session_id == "a"
    with pytest.raises(InvalidRequest):
        ask(session_id="a", conversation="b")


# -- input items


def test_input_image_and_text() -> None:
    """Input items: text and an image as a data URL in one message."""
    blob = base64.b64encode(b"png").decode()
    content = [
        {"type": "input_text", "text": "Describe this image."},
        {"type": "input_image", "image_url": f"data:image/png;base64,{blob}"},
    ]
    (message,) = ask(input=[{"role": "user", "content": content}]).start.input
    assert isinstance(message, Message)
    assert message.parts == [TextPart(text="Describe this image."), ImagePart(content=b"png", media_type="image/png")]


def test_input_file() -> None:
    """Input items: a file as a data URL gives exactly its bytes."""
    blob = base64.b64encode("é".encode()).decode()
    block = {"type": "input_file", "filename": "notes.txt", "file_data": f"data:text/plain;base64,{blob}"}
    (message,) = ask(input=[{"role": "user", "content": [block]}]).start.input
    assert isinstance(message, Message)
    assert message.parts == [
        FilePart(name="notes.txt", content="é".encode(), media_type="text/plain", is_data_url=True)
    ]


def test_input_file_url_is_a_reference() -> None:
    """Input items: a remote `file_url` is kept as a reference."""
    block = {"type": "input_file", "file_url": "https://example.com/a.pdf"}
    (message,) = ask(input=[{"role": "user", "content": [block]}]).start.input
    assert isinstance(message, Message)
    assert message.parts == [FilePart(url="https://example.com/a.pdf")]


# -- resume inputs


def test_resume_function_call_output() -> None:
    """Resume input `function_call_output`: the result of a call, the item itself kept for the framework."""
    item = {"type": "function_call_output", "call_id": "call_123", "output": "approved result"}
    (result,) = ask(input=[item]).start.input
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.text, result.executor) == ("call_123", "approved result", "client")
    assert result.native == {"responses": item}


@pytest.mark.parametrize(("approve", "word"), [(True, "approved"), (False, "denied")])
def test_resume_mcp_approval_response(approve: bool, word: str) -> None:
    """Resume input `mcp_approval_response`: a decision with its reason, the item itself kept for the framework."""
    item = {
        "type": "mcp_approval_response",
        "approval_request_id": "approval_123",
        "approve": approve,
        "reason": "Approved by local user",
    }
    (decision,) = ask(input=[item], previous_response_id=f"resp_{RUN_ID}").start.decisions
    assert (decision.approval_id, decision.decision, decision.reason) == ("approval_123", word, item["reason"])
    assert decision.native == item


# -- response fields


def test_response_id_object_and_time() -> None:
    """Rows `id`, `object`, `created_at`: an id of ours, the word `response`, whole seconds."""
    body = answer(whole_run())
    assert (body["id"], body["object"], body["created_at"]) == (f"resp_{RUN_ID}", "response", int(AT))


@pytest.mark.parametrize(
    ("events", "status", "reason"),
    [
        (whole_run(), "completed", None),
        (whole_run(ended=RunEnded(outcome="failed")), "failed", None),
        (waiting_run(), "incomplete", "approval_required"),
        (whole_run(ended=RunEnded(outcome="interrupted", reason="worker_lost")), "incomplete", "worker_lost"),
        (
            whole_run(ended=RunEnded(outcome="completed", reason="max_output_tokens")),
            "incomplete",
            "max_output_tokens",
        ),
    ],
    ids=["completed", "failed", "waiting", "interrupted", "cut"],
)
def test_response_status(events: list[Event], status: str, reason: str | None) -> None:
    """Row `status`: completed, failed or incomplete, and why it is incomplete."""
    body = answer(events)
    assert body["status"] == status
    assert body["incomplete_details"] == (None if reason is None else {"reason": reason})


def test_response_output() -> None:
    """Row `output`: every item, the reasoning and both halves of a call too, with the ids of the stream."""
    body = answer(whole_run())
    assert [item["type"] for item in body["output"]] == [
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert body["output"][3]["role"] == "assistant"
    assert body["output"][3]["content"] == [
        {"type": "output_text", "text": "20 degrees", "annotations": [], "logprobs": []}
    ]
    added = [one["item"]["id"] for one in said(whole_run(), "response.output_item.added")]
    assert added == [item["id"] for item in body["output"]]


def test_response_output_of_a_run_that_waits() -> None:
    """Row `output`: the approval that a run waits for is in it, without a stream too."""
    (item,) = answer(waiting_run())["output"]
    assert (item["type"], item["id"], item["name"]) == ("mcp_approval_request", "approval_123", "delete")


def test_response_usage() -> None:
    """Row `usage`: what the model's provider counted, null where nobody did."""
    usage = answer(whole_run())["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (3, 4, 7)
    assert answer(whole_run(ended=RunEnded(outcome="completed")))["usage"] is None


def test_response_output_text() -> None:
    """Row `output_text`: the texts joined."""
    assert answer(whole_run())["output_text"] == "20 degrees"


def test_response_session_id() -> None:
    """Row `session_id`: the session, also when the request named none."""
    assert answer(whole_run())["session_id"] == "ses_1"
    assert answer(whole_run(), session_id="mine")["session_id"] == "mine"


# -- stream events


def test_event_created() -> None:
    """Row `response.created`: the response object, before anything is in it."""
    (event,) = said(whole_run(), "response.created")
    assert (event["sequence_number"], event["response"]["output"]) == (0, [])


def test_event_in_progress() -> None:
    """Row `response.in_progress`: the agent has begun."""
    (event,) = said(whole_run(), "response.in_progress")
    assert event["response"]["status"] == "in_progress"


def test_event_output_item_added() -> None:
    """Row `response.output_item.added`: each item begins, in the order of the output."""
    added = said(whole_run(), "response.output_item.added")
    assert [one["output_index"] for one in added] == [0, 1, 2, 3]
    assert {one["item"]["status"] for one in added} == {"in_progress"}


def test_event_content_part_added() -> None:
    """Row `response.content_part.added`: the text part of the message begins, and only that of a message."""
    (event,) = said(whole_run(), "response.content_part.added")
    assert event["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def test_event_output_text_delta() -> None:
    """Row `response.output_text.delta`: pieces of the text."""
    assert [one["delta"] for one in said(whole_run(), "response.output_text.delta")] == ["20 ", "degrees"]


def test_event_output_text_done() -> None:
    """Row `response.output_text.done`: the whole text."""
    assert [one["text"] for one in said(whole_run(), "response.output_text.done")] == ["20 degrees"]


def test_event_reasoning_delta() -> None:
    """Row `response.reasoning.delta`: pieces of the reasoning, instead of the official summary events."""
    assert [one["delta"] for one in said(whole_run(), "response.reasoning.delta")] == ["Hm."]
    kinds = {one["type"] for one in data_of(stream(header_of(), whole_run(), dialect="ksadk"))}
    assert not kinds & OFFICIAL_ONLY


def test_event_function_call_arguments_delta() -> None:
    """Row `response.function_call_arguments.delta`: the arguments as the model writes them."""
    deltas = [one["delta"] for one in said(whole_run(), "response.function_call_arguments.delta")]
    assert deltas == ['{"city":', '"x"}']


def test_event_function_call_arguments_done() -> None:
    """Row `response.function_call_arguments.done`: the whole arguments, with the name of the function."""
    (event,) = said(whole_run(), "response.function_call_arguments.done")
    assert (event["arguments"], event["name"]) == ('{"city":"x"}', "weather")


def test_event_tool_result() -> None:
    """Row `response.ksadk.tool_result`: what the call gave, about the item that follows it in the output."""
    (event,) = said(whole_run(), "response.ksadk.tool_result")
    assert (event["call_id"], event["name"], event["output"], event["is_error"]) == ("call_1", "weather", "20 C", False)
    output = answer(whole_run())["output"]
    assert output[event["output_index"]]["id"] == event["item_id"]
    assert output[event["output_index"] - 1]["call_id"] == event["call_id"]


def test_event_incomplete() -> None:
    """Row `response.incomplete`: a run that waits for a decision ends its stream so, with the approval in the output."""
    (event,) = said(waiting_run(), "response.incomplete")
    assert event["response"]["incomplete_details"] == {"reason": "approval_required"}
    assert [item["type"] for item in event["response"]["output"]] == ["mcp_approval_request"]


def test_event_incomplete_of_an_interrupted_run() -> None:
    """Row `response.incomplete`: a run that was interrupted ends its stream so, with the reason."""
    (event,) = said(whole_run(ended=RunEnded(outcome="interrupted", reason="worker_lost")), "response.incomplete")
    assert event["response"]["incomplete_details"] == {"reason": "worker_lost"}


def test_event_completed() -> None:
    """Row `response.completed`: the last event of a run that succeeded, with the whole response."""
    frames = data_of(stream(header_of(), whole_run(), dialect="ksadk"))
    assert frames[-1]["type"] == "response.completed"
    assert frames[-1]["response"] == response_body(header_of(), whole_run(), dialect="ksadk")


def test_event_failed() -> None:
    """Row `response.failed`: the last event of a run that failed, with code and message."""
    failure = RunFailure(code="agent_error", message="The agent failed.")
    (event,) = said(whole_run(ended=RunEnded(outcome="failed", error=failure)), "response.failed")
    error = event["response"]["error"]
    assert (error["code"], error["message"], error["type"]) == ("server_error", "The agent failed.", "agent_error")


def test_every_event_is_typed_wrapped_and_numbered() -> None:
    """Every event says its type and number, and a response is always wrapped."""
    for n, one in enumerate(data_of(stream(header_of(), whole_run(), dialect="ksadk"))):
        assert one["sequence_number"] == n
        assert one["type"].startswith("response.")
        assert "object" not in one
