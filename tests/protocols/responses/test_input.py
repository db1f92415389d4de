from __future__ import annotations

import base64
from typing import Any

import pytest

from runstone.core.content import FilePart, ImagePart, RefusalPart, TextPart
from runstone.core.items import Item, Message, Reasoning, ToolCall, ToolResult
from runstone.core.lifecycle import NOT_FINISHED
from runstone.errors import InvalidRequest
from runstone.protocols.responses.input import Place, Reference, input_from_wire
from tests.protocols.responses.test_cases import CASES, read


def items(value: object) -> list[Item]:
    """The items of an input."""
    return input_from_wire(value).items


def only(value: dict[str, Any]) -> Item:
    """The one item of an input of one item."""
    (item,) = items([value])
    return item


def test_string() -> None:
    """A text is one message of the user."""
    assert items("hi") == [Message(item_id="", role="user", parts=[TextPart(text="hi")])]


def test_single_message_object() -> None:
    """A message object alone is the list of it."""
    message = {"role": "user", "content": "hi"}
    assert items(message) == items([message]) == items("hi")


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_roles(role: str) -> None:
    """Messages of all four roles are kept, with and without `type`, with text or parts."""
    parts = [{"type": "output_text" if role == "assistant" else "input_text", "text": "hi"}]
    for fields in ({"role": role, "content": "hi"}, {"type": "message", "role": role, "content": parts}):
        assert only(fields) == Message(item_id="", role=role, parts=[TextPart(text="hi")])  # type: ignore[arg-type]


def test_parts_of_a_message() -> None:
    """Images, files and refusals are parts; bytes are decoded, addresses kept."""
    blob = base64.b64encode(b"abc").decode()
    message = only(
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": f"data:image/png;base64,{blob}", "detail": "low"},
                {"type": "input_file", "filename": "n.txt", "file_data": f"data:text/plain;base64,{blob}"},
                {"type": "input_file", "filename": "n.txt", "file_data": blob},
                {"type": "input_file", "file_url": "https://example.com/a.pdf"},
                {"type": "input_file", "file_id": "file-1"},
                {"type": "refusal", "refusal": "No."},
            ],
        }
    )
    assert isinstance(message, Message)
    assert message.parts == [
        ImagePart(content=b"abc", media_type="image/png", detail="low"),
        FilePart(content=b"abc", media_type="text/plain", name="n.txt", is_data_url=True),
        FilePart(content=b"abc", name="n.txt"),
        FilePart(url="https://example.com/a.pdf"),
        FilePart(file_id="file-1"),
        RefusalPart(text="No."),
    ]


def test_unfinished_message() -> None:
    """A message that was cut stays marked as cut."""
    message = only({"role": "assistant", "content": "Ha", "status": "incomplete"})
    assert isinstance(message, Message)
    assert message.status == "incomplete"


def test_call_and_output() -> None:
    """A call and its output are the client's; a plain output is kept as it came."""
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "20 C"}
    assert items([call, output]) == [
        ToolCall(item_id="", call_id="c", name="f", arguments="{}", executor="client"),
        ToolResult(
            item_id="",
            call_id="c",
            output=[TextPart(text="20 C")],
            executor="client",
            native={"responses": output},
        ),
    ]


def test_output_of_parts() -> None:
    """An output of parts keeps them, and no second copy of them."""
    output = only({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}]})
    assert isinstance(output, ToolResult)
    assert (output.output, output.native) == ([TextPart(text="a")], None)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]}, "a\n\nb"),
        (
            {"summary": [{"type": "summary_text", "text": "s"}], "content": [{"type": "reasoning_text", "text": "c"}]},
            "c",
        ),
        ({"summary": []}, ""),
    ],
)
def test_reasoning(fields: dict[str, Any], text: str) -> None:
    """Reasoning is its text, else its summary; what is sealed goes back to the provider that sealed it."""
    item = only({"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA", **fields})
    assert item == Reasoning(item_id="", text=text, opaque={"openai": "gAAA"})


@pytest.mark.parametrize(
    ("fields", "text", "is_error"),
    [
        ({"output": "20"}, "20", False),
        ({"output": None, "error": "broken"}, "broken", True),
        ({"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "x"}]}}, "x", True),
        ({"error": {"type": "http_error", "code": 500, "message": "m"}}, "m", True),
        ({"error": {"code": 1}}, '{"code":1}', True),
        ({}, NOT_FINISHED, True),
    ],
)
def test_server_call(fields: dict[str, Any], text: str, is_error: bool) -> None:
    """A replayed `mcp_call` is a call that the server ran and its result, so that the model's input is well formed."""
    call, result = items([{"type": "mcp_call", "id": "mcp_1", "name": "w", "arguments": "{}", **fields}])
    assert call == ToolCall(item_id="", call_id="mcp_1", name="w", arguments="{}")
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.text, result.is_error, result.executor) == ("mcp_1", text, is_error, "server")


def test_decisions() -> None:
    """Several decisions may come at once; each keeps the item as it came, and the older word is understood."""
    yes = {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True, "reason": "fine"}
    no = {"type": "mcp_approval_response", "approval_request_id": "b", "approved": False}
    said = input_from_wire([yes, no])
    assert said.items == []
    assert [(one.approval_id, one.decision, one.reason, one.native) for one in said.decisions] == [
        ("a", "approved", "fine", yes),
        ("b", "denied", None, no),
    ]


def test_references() -> None:
    """A reference keeps its place among the items, in both of its forms."""
    said = input_from_wire(
        [{"role": "user", "content": "a"}, {"type": "item_reference", "id": "msg_1"}, {"id": "msg_2"}]
    )
    assert said.references == [Reference(at=1, id="msg_1"), Reference(at=1, id="msg_2")]


def test_place_of_a_decision() -> None:
    """A decision is told with its place, and a reference to the question that it answers is left out."""
    yes = {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}
    said = input_from_wire(
        [{"role": "user", "content": "a"}, {"id": "msg_1"}, {"type": "item_reference", "id": "a"}, yes]
    )
    assert said.references == [Reference(at=1, id="msg_1")]
    assert said.decided_at == [Place(items=1, references=1)]


@pytest.mark.parametrize("kind", ["mcp_approval_request", "mcp_list_tools"])
def test_replayed_items_that_say_nothing(kind: str) -> None:
    """Replayed items that are nothing for the agent are taken and left out."""
    assert items([{"type": kind, "id": "x"}]) == []


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (123, "input"),
        (True, "input"),
        ([1], "input[0]"),
        ([{"type": "no_such_item"}], "input[0].type"),
        ([{"role": "user", "content": "a"}, {"x": 1}], "input[1].type"),
        ([{"role": "wizard", "content": "hi"}], "input[0].role"),
        ({"role": "wizard", "content": "hi"}, "input.role"),
        ([{"type": "message", "content": "hi"}], "input[0].role"),
        ([{"role": "user"}], "input[0].content"),
        ([{"role": "user", "content": 5}], "input[0].content"),
        ([{"role": "user", "content": [{"type": "input_video"}]}], "input[0].content[0].type"),
        ([{"type": "function_call", "name": "f", "arguments": "{}"}], "input[0].call_id"),
        ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}], "input[0].arguments"),
        ([{"type": "function_call_output", "call_id": "c"}], "input[0].output"),
        ([{"type": "function_call_output", "output": "x"}], "input[0].call_id"),
        ([{"type": "reasoning", "summary": [{"text": 1}]}], "input[0].summary[0].text"),
        ([{"type": "mcp_approval_response", "approval_request_id": "a"}], "input[0].approve"),
        ([{"type": "mcp_approval_response", "approval_request_id": "a", "approve": "yes"}], "input[0].approve"),
        ([{"type": "mcp_approval_response", "approve": True}], "input[0].approval_request_id"),
        ([{"type": 7}], "input[0].type"),
    ],
)
def test_wrong_items_are_refused_with_their_path(value: object, param: str) -> None:
    """What is malformed or unknown is refused, and the error names where it is."""
    with pytest.raises(InvalidRequest) as caught:
        input_from_wire(value)
    assert caught.value.param == param


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_every_output_can_be_sent_back(path: Any) -> None:
    """The usual loop works: the output items of any response are a legal input, ids and statuses included."""
    response = read(path)["frames"][-2][1]["response"]
    said = input_from_wire(response["output"])
    shown = [item for item in response["output"] if item["type"] != "mcp_approval_request"]
    assert len(said.items) == len(shown) + sum(item["type"] == "mcp_call" for item in shown)
