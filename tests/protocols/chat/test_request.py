"""Chat requests as starts."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from runstone.core.content import FilePart, ImagePart, RefusalPart, TextPart
from runstone.core.items import Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import ToolSpec
from runstone.errors import InvalidRequest, RequestError, Unsupported
from runstone.protocols.chat.request import OPTIONS, REFUSED, ChatRequest, start_from_chat

HELLO = [{"role": "user", "content": "Say hello from KsADK."}]


def read(**fields: Any) -> ChatRequest:
    """The request with one user message and `fields`."""
    return start_from_chat({"model": "my-agent", "messages": HELLO, **fields})


def refused(**fields: Any) -> str | None:
    """The `param` of the refusal."""
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert isinstance(caught.value, InvalidRequest | Unsupported)
    return caught.value.param


def test_the_smallest_request_is_stateless() -> None:
    """Without a session the run is not kept, all messages are input, and the model is what the request calls it."""
    request = read()
    start = request.start
    assert start.input == [Message(item_id="in1", role="user", parts=[TextPart(text="Say hello from KsADK.")])]
    assert (start.surface, start.agent, start.session_id, start.store) == ("chat", "my-agent", None, False)
    assert (start.reuses_history, start.replaces_history) == (False, False)
    assert (request.stream, request.include_usage, request.dialect) == (False, False, "openai")
    assert start_from_chat({"messages": HELLO}).start.agent is None
    assert read(store=True).start.store


def test_a_named_session_repeats_its_history() -> None:
    """`session_id` names a session, whose history the messages repeat; `history: replace` begins a branch."""
    start = read(session_id="s-1").start
    assert (start.session_id, start.store, start.reuses_history, start.replaces_history) == ("s-1", True, True, False)
    assert read(session_id="s-1", history="replace").start.replaces_history
    assert not read(session_id="s-1", store=False).start.store
    assert refused(history="replace") == "history"
    assert refused(session_id="s", history="merge") == "history"
    assert refused(session_id="a/b") == "session_id"
    assert refused(session_id=7) == "session_id"


def test_every_role_becomes_its_item() -> None:
    """System, developer, user, assistant with and without calls, and tool messages become items in order."""
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}
    items = read(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": "Weather?", "name": "ann"},
            {"role": "assistant", "content": None, "reasoning_content": "Ask.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "20 C"},
            {"role": "assistant", "content": "Warm.", "refusal": None},
            {"role": "assistant", "content": None, "refusal": "No."},
            {"role": "assistant", "content": "I look.", "tool_calls": [{**call, "id": "call_2"}]},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "21 C"}]},
        ]
    ).start.input
    text = TextPart
    assert items == [
        Message(item_id="in1", role="system", parts=[text(text="Be brief.")]),
        Message(item_id="in2", role="developer", parts=[text(text="Be kind.")]),
        Message(item_id="in3", role="user", parts=[text(text="Weather?")], author="ann"),
        Reasoning(item_id="in4", text="Ask."),
        ToolCall(item_id="in5", call_id="call_1", name="weather", arguments='{"city":"Paris"}', executor="client"),
        ToolResult(item_id="in6", call_id="call_1", name="weather", output=[text(text="20 C")], executor="client"),
        Message(item_id="in7", role="assistant", parts=[text(text="Warm.")]),
        Message(item_id="in8", role="assistant", parts=[RefusalPart(text="No.")]),
        Message(item_id="in9", role="assistant", parts=[text(text="I look.")]),
        ToolCall(item_id="in10", call_id="call_2", name="weather", arguments='{"city":"Paris"}', executor="client"),
        ToolResult(item_id="in11", call_id="call_2", name="weather", output=[text(text="21 C")], executor="client"),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"error": "timeout"}', "timeout"),
        ('{"error": "a", "b": 1}', None),
        ('{"error": {"code": 1}}', None),
        ('{"error": ', None),
        ("error", None),
        ("[" * 5000, None),
    ],
)
def test_a_failed_tool_is_known_by_its_content(content: str, reason: str | None) -> None:
    """A tool message that is exactly an error object is a failed result; anything else is what the tool gave."""
    [result] = read(messages=[{"role": "tool", "tool_call_id": "c", "content": content}]).start.input
    assert isinstance(result, ToolResult)
    assert result.is_error is (reason is not None)
    assert result.text == (content if reason is None else reason)


def test_images_and_files_bring_their_bytes() -> None:
    """Chat's blocks for images and files become parts that carry bytes, a reference or a file id."""
    data = base64.b64encode(b"\x89PNG").decode()
    blocks = [
        {"type": "text", "text": "What is in this image?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]
    [message] = read(messages=[{"role": "user", "content": blocks}]).start.input
    assert isinstance(message, Message)
    assert message.parts == [
        TextPart(text="What is in this image?"),
        ImagePart(content=b"\x89PNG", media_type="image/png", detail="low"),
        ImagePart(url="https://example.com/a.png"),
        FilePart(content=b"\x89PNG", media_type="application/pdf", name="a.pdf", is_data_url=True),
        FilePart(file_id="file-1"),
    ]


def test_options_reach_the_agent_under_their_names() -> None:
    """Sampling fields become model options; `model_options` adds to them and wins; metadata may nest."""
    start = read(
        temperature=0.2, stop=["zzz"], seed=None, response_format={"type": "json_object"}, reasoning_effort="low",
        model_options={"temperature": 1, "vendor": {"x": 1}}, model_metadata={"vision": True}, user="u",
        metadata={"nested": {"a": [1]}}, unknown_field=1,
    ).start  # fmt: skip
    assert start.settings.model_options == {
        "temperature": 1,
        "stop": ["zzz"],
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "vendor": {"x": 1},
    }
    assert start.settings.model_metadata == {"vision": True}
    assert (start.settings.user, start.metadata) == ("u", {"nested": {"a": [1]}})


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_is_passed_on(option: str) -> None:
    """Every listed option reaches the agent as it came."""
    assert read(**{option: 1}).start.settings.model_options == {option: 1}


def test_function_tools_are_declared() -> None:
    """Function tools become specs, tool_choice is passed on, and any other tool is refused by its place."""
    tool = {"type": "function", "function": {"name": "w", "description": "d", "parameters": {"type": "object"}}}
    settings = read(tools=[tool], tool_choice="required").start.settings
    assert settings.tools == [ToolSpec(name="w", description="d", parameters={"type": "object"})]
    assert settings.tool_choice == "required"
    assert refused(tools=[tool, {"type": "web_search"}]) == "tools[1].type"
    assert refused(tools=[{"type": "function"}]) == "tools[0].function"
    assert refused(tools=[{"type": "function", "function": {"description": "no name"}}]) == "tools[0].function.name"
    assert refused(tools={}) == "tools"
    assert refused(tool_choice=3) == "tool_choice"


@pytest.mark.parametrize("value", ["true", "false", 0, 1, [], {}])
@pytest.mark.parametrize("field", ["stream", "store"])
def test_a_boolean_is_true_or_false(field: str, value: Any) -> None:
    """A flag given as text or number is refused with the field named, o-htp-04."""
    assert refused(**{field: value}) == field


def test_null_counts_as_absent() -> None:
    """Null in any field is as if the field were not there, o-htp-04."""
    fields = (
        "stream",
        "store",
        "session_id",
        "tools",
        "metadata",
        "n",
        "stream_options",
        "busy",
        "user",
        "temperature",
    )
    assert read(**dict.fromkeys(fields)).start.settings == read().start.settings
    assert not read(stream=None).stream


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "assistant", "function_call": {}}]}, "messages[0].function_call"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}]}, "messages[0].tool_calls[0].type"),
        ({"model": 3}, "model"),
        ({"n": 2}, "n"),
        ({"n": "1"}, "n"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"metadata": "x"}, "metadata"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"busy": "rollback"}, "busy"),
        ({"disconnect": "maybe"}, "disconnect"),
        ({"dialect": "ksadk"}, "dialect"),
        ({"run_id": "a b"}, "run_id"),
        *(({field: {}}, field) for field in REFUSED),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    """A wrong field is refused with its path."""
    assert refused(**fields) == param


def test_a_body_that_is_no_object_is_refused() -> None:
    """A JSON array or text is no request."""
    bodies: list[Any] = [[], "x", None, 1]
    for body in bodies:
        with pytest.raises(InvalidRequest):
            start_from_chat(body)


def test_extension_fields_set_the_policies() -> None:
    """`busy` (LangGraph's words too), `disconnect`, `run_id` and `dialect` are read."""
    request = read(busy="enqueue", disconnect="stop", run_id="run:1", dialect="steps", stream=True)
    start = request.start
    assert (start.busy, start.disconnect, start.run_id) == ("queue", "stop", "run:1")
    assert (request.dialect, request.stream) == ("steps", True)


def test_the_echo_remembers_how_the_answer_looks() -> None:
    """Model, usage wish and dialect are kept with the leg, so that a resumed stream looks the same."""
    request = read(stream=True, stream_options={"include_usage": True}, dialect="steps")
    assert request.start.echo == {"chat": {"model": "my-agent", "include_usage": True, "dialect": "steps"}}


def test_the_fingerprint_does_not_know_how_the_answer_is_read() -> None:
    """Two requests that differ in `stream` or in the order of fields are the same request; another text is not."""
    body = {"model": "m", "messages": HELLO}
    other = {"stream": True, "messages": HELLO, "model": "m", "stream_options": {"include_usage": True}}
    assert start_from_chat(body).start.body == start_from_chat(other).start.body
    assert start_from_chat({**body, "seed": 1}).start.body != start_from_chat(body).start.body
