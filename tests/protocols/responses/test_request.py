from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runstone.core.content import TextPart
from runstone.core.items import Message, user_message
from runstone.core.runs import PendingApproval, ToolSpec
from runstone.errors import CursorUnknown, InvalidRequest, NotFound, RunstoneError, Unsupported
from runstone.protocols.responses.encode import response_body
from runstone.protocols.responses.input import Reference
from runstone.protocols.responses.request import (
    ResponsesRequest,
    answering,
    start_from_responses,
    starting_after_from_query,
    with_referenced,
    without_decisions,
)
from tests.protocols.responses.support import check_response, header_of

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def ask(**fields: Any) -> ResponsesRequest:
    """What a request with these fields asks for."""
    return start_from_responses({"model": "m", "input": "hi", **fields})


def echoed(**fields: Any) -> dict[str, Any]:
    """The response that answers a request with these fields, before anything happened."""
    start = ask(**fields).start
    body = response_body(header_of(echo=start.echo["responses"], store=start.store, background=start.background), [])
    check_response(dict(body))
    return dict(body)


def refused(body: object) -> InvalidRequest:
    """The error of a request that is refused."""
    with pytest.raises(InvalidRequest) as caught:
        start_from_responses(body)
    return caught.value


def test_smallest_request() -> None:
    """Model and input are enough; everything else is left to the server."""
    request = ask()
    start = request.start
    assert (start.surface, start.agent, start.input) == ("responses", "m", [user_message("in1", "hi")])
    assert (start.session_id, start.continues, start.store, start.background) == (None, None, True, False)
    assert (start.busy, start.disconnect, start.recovery, start.run_id) == (None, None, None, None)
    assert (request.stream, request.previous, request.references) == (False, [], [])


def test_items_are_counted() -> None:
    """The items of a turn have the ids `in1`, `in2` ..."""
    start = ask(input=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]).start
    assert [item.item_id for item in start.input] == ["in1", "in2"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], "body"),
        ({"input": "hi"}, "model"),
        ({"model": None, "input": "hi"}, "model"),
        ({"model": 7, "input": "hi"}, "model"),
        ({"model": "m"}, "input"),
        ({"model": "m", "input": 123}, "input"),
        ({"model": "m", "input": ""}, "input"),
        ({"model": "m", "input": []}, "input"),
        ({"model": "m", "input": "hi", "background": True, "store": False}, "background"),
        ({"model": "m", "input": "hi", "conversation": "a", "previous_response_id": "resp_r"}, "previous_response_id"),
        ({"model": "m", "input": "hi", "conversation": "a", "session_id": "b"}, "session_id"),
        ({"model": "m", "input": "hi", "conversation": 5}, "conversation"),
        ({"model": "m", "input": "hi", "conversation": {"id": 5}}, "conversation"),
        ({"model": "m", "input": "hi", "conversation": ""}, "conversation"),
        ({"model": "m", "input": "hi", "conversation": {"id": "a/b"}}, "conversation.id"),
        ({"model": "m", "input": "hi", "session_id": 5}, "session_id"),
        ({"model": "m", "input": "hi", "metadata": []}, "metadata"),
        ({"model": "m", "input": "hi", "instructions": ["x"]}, "instructions"),
        ({"model": "m", "input": "hi", "temperature": "hot"}, "temperature"),
        ({"model": "m", "input": "hi", "temperature": True}, "temperature"),
        ({"model": "m", "input": "hi", "max_output_tokens": 1.5}, "max_output_tokens"),
        ({"model": "m", "input": "hi", "parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"model": "m", "input": "hi", "stream": "yes"}, "stream"),
        ({"model": "m", "input": "hi", "stream_options": 1}, "stream_options"),
        ({"model": "m", "input": "hi", "store": 0}, "store"),
        ({"model": "m", "input": "hi", "truncation": "maybe"}, "truncation"),
        ({"model": "m", "input": "hi", "include": "x"}, "include"),
        ({"model": "m", "input": "hi", "text": "x"}, "text"),
        ({"model": "m", "input": "hi", "reasoning": "low"}, "reasoning"),
        ({"model": "m", "input": "hi", "tools": {}}, "tools"),
        ({"model": "m", "input": "hi", "tools": [{}]}, "tools[0].type"),
        ({"model": "m", "input": "hi", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"model": "m", "input": "hi", "tools": [{**WEATHER, "parameters": 1}]}, "tools[0].parameters"),
        ({"model": "m", "input": "hi", "tool_choice": "sometimes"}, "tool_choice"),
        ({"model": "m", "input": "hi", "tool_choice": {}}, "tool_choice.type"),
        ({"model": "m", "input": "hi", "tool_choice": 1}, "tool_choice"),
        ({"model": "m", "input": "hi", "model_options": []}, "model_options"),
        ({"model": "m", "input": "hi", "model_metadata": "x"}, "model_metadata"),
        ({"model": "m", "input": "hi", "user": 1}, "user"),
        ({"model": "m", "input": "hi", "busy": "maybe"}, "busy"),
        ({"model": "m", "input": "hi", "disconnect": "maybe"}, "disconnect"),
        ({"model": "m", "input": "hi", "recovery": "maybe"}, "recovery"),
        ({"model": "m", "input": "hi", "run_id": "a b"}, "run_id"),
    ],
)
def test_wrong_fields_are_refused(body: object, param: str) -> None:
    """A field that is missing, of a wrong type or contradicts another is refused by its name."""
    assert (refused(body).param or "body") == param


def test_conflict_names_both_sessions() -> None:
    """Conversation and session_id that differ are refused with both of their values."""
    message = refused({"model": "m", "input": "hi", "conversation": "one", "session_id": "two"}).message
    assert "'one'" in message
    assert "'two'" in message


def test_stored_prompts_are_refused() -> None:
    """A stored prompt is refused, not ignored."""
    with pytest.raises(Unsupported) as caught:
        start_from_responses({"model": "m", "prompt": {"id": "pmpt_1"}})
    assert caught.value.param == "prompt"


def test_no_response_id_is_not_found() -> None:
    """A previous_response_id that cannot be one of ours is unknown, by its parameter."""
    with pytest.raises(NotFound) as caught:
        ask(previous_response_id="chatcmpl-1")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "previous_response_not_found")


def test_previous_response() -> None:
    """previous_response_id is read as a run and a leg, and repeated."""
    request = ask(previous_response_id="resp_run_a_1")
    assert request.previous == [("run_a_1", 0), ("run_a", 1)]
    assert echoed(previous_response_id="resp_run_a_1")["previous_response_id"] == "resp_run_a_1"


@pytest.mark.parametrize("where", [{"conversation": "c"}, {"session_id": "c"}, {"previous_response_id": "resp_r"}])
@pytest.mark.parametrize("input", ["", [], None])
def test_empty_input_goes_on_from_what_is_there(where: dict[str, str], input: Any) -> None:
    """An empty input is taken when there is a conversation or response to go on from."""
    if input is not None or "session_id" not in where:
        assert ask(input=input, **where).start.input == []


def test_session_id_equal_to_conversation() -> None:
    """The legacy field may repeat the conversation."""
    assert ask(conversation={"id": "c"}, session_id="c").start.session_id == "c"


def test_everything_is_echoed() -> None:
    """What the request said about the answer is repeated in the response."""
    fields: dict[str, Any] = {
        "instructions": "Be brief.",
        "metadata": {"k": "v"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 500,
        "max_tool_calls": 3,
        "top_logprobs": 2,
        "parallel_tool_calls": False,
        "truncation": "auto",
        "service_tier": "auto",
        "safety_identifier": "s",
        "prompt_cache_key": "p",
        "user": "u-1",
        "tool_choice": {"type": "function", "name": "get_weather"},
    }
    body = echoed(**fields, text={"format": {"type": "text"}}, reasoning={"effort": "low"}, tools=[WEATHER])
    assert {key: body[key] for key in fields} == fields
    assert body["reasoning"] == {"effort": "low", "summary": None}
    assert body["tools"] == [{**WEATHER, "description": None, "strict": None}]


def test_settings_have_what_a_model_may_heed() -> None:
    """Official options come to the agent beside the provider's own, which win where both say the same."""
    settings = ask(
        temperature=0.5, max_output_tokens=9, model_options={"seed": 7, "temperature": 0.1}, tools=[WEATHER], user="u"
    ).start.settings
    assert settings.model_options == {"seed": 7, "temperature": 0.1, "max_output_tokens": 9}
    assert settings.tools == [ToolSpec(name="get_weather", parameters={"type": "object"})]
    assert settings.user == "u"


def test_other_tools_are_echoed_and_not_passed_on() -> None:
    """A tool that is no function is repeated as it came, and the agent does not get it."""
    tool = {"type": "web_search"}
    assert echoed(tools=[tool])["tools"] == [tool]
    assert ask(tools=[tool]).start.settings.tools == []


def test_extension_fields() -> None:
    """Policies and the client's run id are read; LangGraph's words mean ours."""
    start = ask(busy="enqueue", disconnect="cancel", recovery="retry", run_id="job.1").start
    assert (start.busy, start.disconnect, start.recovery, start.run_id) == ("queue", "stop", "retry", "job.1")


def test_unknown_fields_are_ignored() -> None:
    """A field that nobody knows changes nothing but the fingerprint."""
    assert ask(zz_unknown=1).start.echo == ask().start.echo


def test_fingerprint_is_the_request_without_its_transport() -> None:
    """The same request with and without a stream, in any order of fields, asks for the same run; another one does not."""
    body = ask(stream=True, stream_options={"include_obfuscation": False}).start.body
    assert body == start_from_responses({"input": "hi", "model": "m"}).start.body
    assert json.loads(body) == {"input": "hi", "model": "m"}
    assert body != ask(temperature=1).start.body


def test_references_are_replaced_by_what_they_name() -> None:
    """Referenced items take the place of their references, and all items are counted anew."""
    request = ask(input=[{"role": "user", "content": "a"}, {"id": "msg_x"}, {"role": "user", "content": "b"}])
    found = Message(item_id="i7", role="assistant", parts=[TextPart(text="said")])
    start = with_referenced(request, {"msg_x": [found]}).start
    assert [(item.item_id, getattr(item, "text", "")) for item in start.input] == [
        ("in1", "a"),
        ("in2", "said"),
        ("in3", "b"),
    ]
    with pytest.raises(NotFound):
        with_referenced(request, {})


def decision(id: str) -> dict[str, Any]:
    """The answer to an approval."""
    return {"type": "mcp_approval_response", "approval_request_id": id, "approve": True}


def test_an_answer_in_a_repeated_conversation() -> None:
    """What stands before the answer to a waiting run is left out; so is the answer to what it does not wait for."""
    run = msgspec.structs.replace(header_of().run, approvals=[PendingApproval(approval_id="new", kind="confirm")])
    said = {"role": "user", "content": "a"}
    request = ask(input=[said, {"id": "msg_x"}, decision("old"), said, decision("new"), {"id": "msg_y"}, said])
    found = answering(request, run)
    assert not request.is_answer
    assert (found.start.continues, [item.item_id for item in found.start.input]) == (run.id, ["in1"])
    assert [one.approval_id for one in found.start.decisions] == ["new"]
    assert found.references == [Reference(at=0, id="msg_y")]


def test_decisions_as_part_of_a_conversation() -> None:
    """A decision that something follows is not what the request asks for, and can be taken away."""
    said = {"role": "user", "content": "a"}
    assert ask(input=[said, decision("a")]).is_answer
    assert not ask(input=[decision("a"), {"id": "msg_x"}]).is_answer
    request = ask(input=[said, decision("a"), said])
    assert not request.is_answer
    assert without_decisions(request).start == msgspec.structs.replace(request.start, decisions=[])


@pytest.mark.parametrize(("text", "number"), [(None, -1), ("0", 0), ("17", 17)])
def test_starting_after(text: str | None, number: int) -> None:
    """The cursor is the number of the last frame that was read; none is before the first."""
    assert starting_after_from_query(text) == number


@pytest.mark.parametrize("text", ["", "abc", "-1", "1.5", "٣", "9" * 16])
def test_bad_starting_after(text: str) -> None:
    """Anything else is refused, never taken for the beginning."""
    with pytest.raises(CursorUnknown):
        starting_after_from_query(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "input",
        "instructions",
        "metadata",
        "conversation",
        "session_id",
        "previous_response_id",
        "store",
        "background",
        "stream",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "truncation",
        "temperature",
        "max_output_tokens",
        "include",
        "user",
        "model_options",
        "busy",
        "run_id",
        "prompt",
    ]
)


@given(st.dictionaries(FIELDS, JSON, max_size=5))
def test_no_json_breaks_the_door(fields: dict[str, Any]) -> None:
    """Whatever JSON comes, it is a start or an error of ours."""
    try:
        request = start_from_responses({"model": "m", **fields})
    except RunstoneError:
        return
    echo = request.start.echo["responses"]
    assert response_body(header_of(echo=echo), [])["model"] == "m"
