from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runstone.core.content import TextPart
from runstone.core.events import (
    DELTAS,
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    AttemptStarted,
    Body,
    Event,
    ItemEnded,
    ItemReplaced,
    ItemStarted,
    ReasoningDelta,
    RunContinued,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    StepEnded,
    TextDelta,
)
from runstone.core.items import Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import Usage
from runstone.errors import LocalProtocolError
from runstone.protocols.base import Frame
from runstone.protocols.responses.encode import Encoder, response_body
from tests.protocols.responses.support import (
    ENDS,
    RUN_ID,
    check_event,
    check_response,
    data_of,
    header_of,
    is_over,
    legs_of,
    stream,
)
from tests.protocols.strategies import PLAIN, Shape, numbered, runs

STYLES: list[dict[str, Any]] = [
    {},
    {"reasoning_as": "text"},
    {"tools_as": "function_pair"},
    {"tools_as": "hidden"},
    {"dialect": "ksadk"},
    {"dialect": "ksadk", "tools_as": "hidden"},
]
OFFICIAL = [style for style in STYLES if "dialect" not in style]


def text_run(*bodies: Any) -> list[Event]:
    """A run with one open message `i1`, then `bodies`."""
    return numbered([RunCreated(agent="a", input=[]), RunStarted(), ItemStarted(item_id="i1", kind="message"), *bodies])


def message(text: str, item_id: str = "i1") -> ItemEnded:
    """The end of a message."""
    return ItemEnded(item=Message(item_id=item_id, role="assistant", parts=[TextPart(text=text)]))


def said(events: list[Event], kind: str, **style: Any) -> list[dict[str, Any]]:
    """What the frames of one type say in the first leg."""
    return [one for one in data_of(stream(header_of(), events, **style)) if one["type"] == kind]


# -- laws


@given(runs(), st.sampled_from(OFFICIAL))
def test_every_event_is_official(events: list[Event], style: dict[str, Any]) -> None:
    """The official client's models take every frame of every leg strictly."""
    for k, first_seq in enumerate(legs_of(events)):
        for event in data_of(stream(header_of(k, first_seq), events, **style)):
            check_event(event)


@given(runs(), st.sampled_from(STYLES))
def test_shape_of_a_stream(events: list[Event], style: dict[str, Any]) -> None:
    """Created comes first, one end comes last, numbers count from 0, and the event field equals the type."""
    for k, first_seq in enumerate(legs_of(events)):
        frames = stream(header_of(k, first_seq), events, **style)
        found = data_of(frames)
        kinds = [one["type"] for one in found]
        assert [one["sequence_number"] for one in found] == list(range(len(found)))
        assert kinds == [frame.event for frame in frames if frame.event is not None]
        assert all(frame.id is None for frame in frames)
        assert kinds.index("response.created") == 0
        assert kinds.count("response.created") == 1
        assert kinds.count("response.in_progress") <= 1
        ends = [kind for kind in kinds if kind in ENDS]
        assert ends == (kinds[-1:] if is_over(events, first_seq) else [])
        assert (frames[-1] == Frame(b"[DONE]")) == is_over(events, first_seq)


@given(runs(), st.sampled_from(STYLES))
def test_items_are_opened_filled_and_closed(events: list[Event], style: dict[str, Any]) -> None:
    """Indexes count from 0 in the order of added; nothing about an item comes before its added or after its done."""
    for k, first_seq in enumerate(legs_of(events)):
        added: list[dict[str, Any]] = []
        done: set[int] = set()
        for one in data_of(stream(header_of(k, first_seq), events, **style)):
            if one["type"] == "response.output_item.added":
                assert one["output_index"] == len(added)
                added.append(one["item"])
            elif "output_index" in one:
                index = one["output_index"]
                assert index < len(added)
                assert index not in done
                assert one.get("item_id", added[index]["id"]) == added[index]["id"]
                if one["type"] == "response.output_item.done":
                    done.add(index)
                    assert (one["item"]["id"], one["item"]["type"]) == (added[index]["id"], added[index]["type"])
                    assert one["item"].get("status") != "in_progress"


@given(runs(), st.sampled_from(STYLES))
def test_final_output_is_the_done_items(events: list[Event], style: dict[str, Any]) -> None:
    """The output of the last frame equals the done items, field by field, in the order of their index."""
    for k, first_seq in enumerate(legs_of(events)):
        found = data_of(stream(header_of(k, first_seq), events, **style))
        if found[-1]["type"] in ENDS:
            done = [one for one in found if one["type"] == "response.output_item.done"]
            done.sort(key=lambda one: one["output_index"])
            assert found[-1]["response"]["output"] == [one["item"] for one in done]


@given(runs(PLAIN), st.sampled_from(STYLES))
def test_deltas_join_to_the_finished_text(events: list[Event], style: dict[str, Any]) -> None:
    """Where no text was rewritten, the deltas of a part joined are its done text; no delta is empty."""
    texts: dict[tuple[int, int], str] = {}
    for one in data_of(stream(header_of(), events, **style)):
        words = one["type"].split(".")
        if words[-1] == "delta":
            place = (one["output_index"], one.get("content_index", one.get("summary_index", 0)))
            texts[place] = texts.get(place, "") + one["delta"]
            assert one["delta"] != ""
        elif words[-1] == "done" and ("text" in one or "arguments" in one):
            place = (one["output_index"], one.get("content_index", one.get("summary_index", 0)))
            assert texts.get(place, "") == one.get("text", one.get("arguments"))


@given(runs(), st.sampled_from(STYLES), st.data())
def test_resume_law(events: list[Event], style: dict[str, Any], data: st.DataObject) -> None:
    """For every number, the frames after it in a replay are the tail of the whole, byte for byte."""
    legs = legs_of(events)
    k = data.draw(st.integers(0, len(legs) - 1))
    whole = stream(header_of(k, legs[k]), events, **style)
    encoder = Encoder(header_of(k, legs[k]), **style)
    replay: list[tuple[int, Frame]] = []
    for event in events:
        if encoder.is_over:
            break
        number = encoder.sent
        replay += enumerate(encoder.encode(event), number)
    numbers = [number for number, _ in replay]
    assert numbers == list(range(encoder.sent))
    for after in range(-1, encoder.sent):
        assert [frame for number, frame in replay if number > after] == whole[after + 1 : encoder.sent]


@given(runs(), st.sampled_from(STYLES))
def test_body_needs_no_deltas(events: list[Event], style: dict[str, Any]) -> None:
    """The response object is the same with and without deltas, and it is that of the last frame."""
    skeleton = [event for event in events if not isinstance(event.body, DELTAS)]
    for k, first_seq in enumerate(legs_of(events)):
        header = header_of(k, first_seq)
        body = response_body(header, skeleton, **style)
        assert body == response_body(header, events, **style)
        last = data_of(stream(header, events, **style))[-1]
        if last["type"] in ENDS:
            assert msgspec.to_builtins(body) == last["response"]


@given(runs(Shape(actions=40)))
def test_a_stream_does_not_depend_on_where_it_is_cut(events: list[Event]) -> None:
    """What was said of a run that goes on stays as it was when more events come."""
    whole = stream(header_of(), events)
    part = stream(header_of(), events[: len(events) // 2])
    done = [frame for frame in part if frame.event is not None]
    assert whole[: len(done)] == done


# -- the response object


def test_statuses_before_the_end() -> None:
    """A run that nobody drives is queued, one that is driven in progress; of its items the finished ones are shown."""
    events = text_run(TextDelta(item_id="i1", text="a"), message("a"), ItemStarted(item_id="i2", kind="message"))
    assert response_body(header_of(), events[:1])["status"] == "queued"
    body = response_body(header_of(), events)
    assert (body["status"], body["completed_at"], body["usage"]) == ("in_progress", None, None)
    assert [item["id"] for item in body["output"]] == [f"msg_{RUN_ID}_i1"]
    check_response(dict(body))


def test_defaults_satisfy_both_schemas() -> None:
    """A run of another surface has a whole response object; its metadata are the texts of the run's."""
    body = response_body(header_of(metadata={"a": "b", "n": {"deep": 1}}, model="m", store=False), [])
    check_response(dict(body))
    assert body["metadata"] == {"a": "b"}
    assert (body["model"], body["store"], body["background"]) == ("m", False, False)
    assert (body["temperature"], body["top_logprobs"], body["truncation"]) == (1.0, 0, "disabled")


def test_usage_of_a_leg_is_that_of_its_steps() -> None:
    """The first leg that ends the run has the run's usage, one that waits the sum of its steps; unknown is null."""
    used = Usage(input_tokens=1, output_tokens=2)
    pause: list[Body] = [ApprovalRequested(approval_id="a", kind="input"), RunPaused(approvals=["a"])]
    start: list[Body] = [RunCreated(agent="a", input=[]), RunStarted()]
    waits = numbered([*start, StepEnded(step="s1", usage=used), StepEnded(step="s2", usage=used), *pause])
    usage = response_body(header_of(), waits)["usage"]
    assert usage is not None
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (2, 4, 6)
    ends = numbered(
        [*start, StepEnded(step="s1", usage=used), RunEnded(outcome="completed", usage=Usage(total_tokens=9))]
    )
    assert response_body(header_of(), ends)["usage"] is None


def test_a_leg_without_a_request_follows_the_leg_before() -> None:
    """A leg that another surface began repeats what the first request said, and names the response before it."""
    first = header_of(echo={"model": "m", "metadata": {"k": "v"}, "previous_response_id": "resp_x"})
    run = msgspec.structs.replace(first.run, legs=[first.leg])
    header = msgspec.structs.replace(header_of(1, 5), run=run)
    body = response_body(header, [])
    assert (body["id"], body["model"], body["metadata"]) == (f"resp_{RUN_ID}_1", "m", {"k": "v"})
    assert body["previous_response_id"] == f"resp_{RUN_ID}"


def test_next_response_id_is_named_when_given() -> None:
    """A leg that has a successor names it; one that has none has no such field."""
    assert "next_response_id" not in response_body(header_of(), [])
    assert response_body(header_of(), [], next_response_id="resp_r_1")["next_response_id"] == "resp_r_1"


# -- items


def test_text_that_goes_on_is_sent_as_a_delta() -> None:
    """A finished message that is longer than its deltas brings the rest as one more delta."""
    events = text_run(TextDelta(item_id="i1", text="He"), message("Hello"))
    assert [one["delta"] for one in said(events, "response.output_text.delta")] == ["He", "llo"]


def test_text_that_differs_is_told_by_the_done_events() -> None:
    """A finished message that does not go on from its deltas is told by done, and no delta is made up."""
    events = text_run(TextDelta(item_id="i1", text="Hallo"), message("Hello"))
    assert [one["delta"] for one in said(events, "response.output_text.delta")] == ["Hallo"]
    assert [one["text"] for one in said(events, "response.output_text.done")] == ["Hello"]


@pytest.mark.parametrize(("text", "deltas"), [("Hello", ["He", "llo"]), ("Other", ["He"])])
def test_replacement_of_an_open_message(text: str, deltas: list[str]) -> None:
    """A replacement that goes on is appended; another one waits for the end."""
    new = Message(item_id="i1", role="assistant", parts=[TextPart(text=text)])
    events = text_run(TextDelta(item_id="i1", text="He"), ItemReplaced(item=new))
    assert [one["delta"] for one in said(events, "response.output_text.delta")] == deltas


def test_item_that_is_open_over_a_pause() -> None:
    """An item that is open at the pause is closed as incomplete, and opened again in the next leg with all of its text."""
    asked = [ApprovalRequested(approval_id="a", kind="input"), RunPaused(approvals=["a"])]
    events = text_run(TextDelta(item_id="i1", text="Half"), *asked, RunContinued(), message("Half and whole"))
    first = data_of(stream(header_of(), events))
    closed = [one["item"] for one in first if one["type"] == "response.output_item.done"]
    assert [item["status"] for item in closed if item["type"] == "message"] == ["incomplete"]
    second = data_of(stream(header_of(1, 7), events))
    deltas = [one["delta"] for one in second if one["type"] == "response.output_text.delta"]
    assert deltas == ["Half", " and whole"]


def test_what_is_still_undecided_is_asked_again() -> None:
    """A response after one of two decisions shows the approval that the run still waits for, and not the decided one."""
    events = text_run(
        message(""),
        ApprovalRequested(approval_id="a", kind="confirm", call_id="c1", arguments="{}"),
        ApprovalRequested(approval_id="b", kind="confirm", call_id="c2", arguments="{}"),
        RunPaused(approvals=["a", "b"]),
        ApprovalDecided(approval_id="a", decision="approved", by="u"),
        RunContinued(),
        RunPaused(approvals=["b"]),
    )
    decided = next(event.seq for event in events if isinstance(event.body, ApprovalDecided))
    legs = [data_of(stream(header, events)) for header in (header_of(), header_of(1, decided))]
    asked = [[item["id"] for item in leg[-1]["response"]["output"] if "approval" in item["type"]] for leg in legs]
    assert asked == [["a", "b"], ["b"]]
    for one in legs[1]:
        check_event(one)


def test_reasoning_and_call_that_are_open_over_a_pause() -> None:
    """Reasoning, client calls and running tools are closed as incomplete when the leg ends."""
    call = ToolCall(item_id="i4", call_id="c2", name="t", arguments="{}")
    events = text_run(
        message(""),
        ItemStarted(item_id="i2", kind="reasoning"),
        ReasoningDelta(item_id="i2", text="hm"),
        ItemStarted(item_id="i3", kind="tool_call", call_id="c1", name="f", executor="client"),
        ArgumentsDelta(item_id="i3", text="{"),
        ItemStarted(item_id="i4", kind="tool_call", call_id="c2", name="t"),
        ItemEnded(item=call),
        ItemStarted(item_id="i5", kind="tool_result", call_id="c2"),
        ApprovalRequested(approval_id="a", kind="confirm", call_id="c2", arguments="{}"),
        RunPaused(approvals=["a"]),
    )
    found = data_of(stream(header_of(), events))
    for one in found:
        check_event(one)
    output = found[-1]["response"]["output"]
    assert [(item["type"], item.get("status")) for item in output] == [
        ("message", "completed"),
        ("reasoning", "incomplete"),
        ("function_call", "incomplete"),
        ("mcp_call", "incomplete"),
        ("mcp_approval_request", None),
    ]


def test_call_that_turns_out_to_be_the_clients() -> None:
    """A call whose executor is known at its end only is shown when it is the client's."""
    events = text_run(
        message(""),
        ItemStarted(item_id="i2", kind="tool_call", call_id="c1", name="f"),
        ItemEnded(item=ToolCall(item_id="i2", call_id="c1", name="f", arguments="{}", executor="client")),
    )
    assert [one["arguments"] for one in said(events, "response.function_call_arguments.done")] == ["{}"]


def test_call_whose_name_comes_late() -> None:
    """A call without a name is opened when it has one, with all of its arguments."""
    events = text_run(
        message(""),
        ItemStarted(item_id="i2", kind="tool_call", call_id="c1", executor="client"),
        ArgumentsDelta(item_id="i2", text="{"),
        ItemEnded(item=ToolCall(item_id="i2", call_id="c1", name="f", arguments="{}", executor="client")),
    )
    deltas = [one["delta"] for one in said(events, "response.function_call_arguments.delta")]
    assert "".join(deltas) == "{}"
    assert said(events, "response.output_item.added")[-1]["item"]["name"] == "f"


def test_result_of_the_client_is_not_output() -> None:
    """What the client answered to its own call is its input, so it is in no output."""
    events = text_run(
        message(""),
        ItemStarted(item_id="i2", kind="tool_call", call_id="c1", name="f", executor="client"),
        ItemEnded(item=ToolCall(item_id="i2", call_id="c1", name="f", arguments="{}", executor="client")),
        ItemStarted(item_id="i3", kind="tool_result", call_id="c1"),
        ItemEnded(item=ToolResult(item_id="i3", call_id="c1", output=[TextPart(text="x")])),
    )
    kinds = [one["item"]["type"] for one in said(events, "response.output_item.done")]
    assert kinds == ["message", "function_call"]


def test_sealed_reasoning_keeps_its_seal() -> None:
    """Encrypted reasoning is handed to the client, who sends it back."""
    item = Reasoning(item_id="i2", text="", opaque={"openai": "gAAA", "google": "x"})
    events = text_run(message(""), ItemStarted(item_id="i2", kind="reasoning"), ItemEnded(item=item))
    last = said(events, "response.output_item.done")[-1]["item"]
    assert (last["summary"], last["encrypted_content"]) == ([], "gAAA")
    assert "google" not in last


# -- order


def test_event_out_of_order_is_refused() -> None:
    """An event that was there, a delta of nothing, and anything after the end are refused."""
    events = text_run(message("a"), RunEnded(outcome="completed"))
    encoder = Encoder(header_of())
    encoder.encode(events[0])
    with pytest.raises(LocalProtocolError):
        encoder.encode(events[0])
    with pytest.raises(LocalProtocolError):
        encoder.encode(Event(9, 9, 0.0, 1, TextDelta(item_id="i9", text="a")))
    encoder = Encoder(header_of())
    for event in events:
        encoder.encode(event)
    assert encoder.is_over
    with pytest.raises(LocalProtocolError):
        encoder.encode(Event(99, 99, 0.0, 1, RunStarted()))


def test_result_of_no_call_is_refused() -> None:
    """A tool result without its call is a bug on this side, and said so."""
    with pytest.raises(LocalProtocolError):
        stream(header_of(), text_run(ItemStarted(item_id="i2", kind="tool_result", call_id="none")))


def test_item_that_ends_as_another_kind_is_refused() -> None:
    """A message cannot end as reasoning."""
    with pytest.raises(LocalProtocolError):
        stream(header_of(), text_run(ItemEnded(item=Reasoning(item_id="i1", text=""))))


def test_restart_before_the_leg_forgets_what_was_open() -> None:
    """What was going on before a new attempt is not in the leg that the attempt begins."""
    restart = AttemptStarted(attempt=2, reason="worker_lost", discard_after_seq=2)
    events = text_run(TextDelta(item_id="i1", text="x"), restart, RunEnded(outcome="failed"))
    found = data_of(stream(header_of(1, 5), events))
    assert [one["type"] for one in found] == ["response.created", "response.in_progress", "response.failed"]
    assert found[-1]["response"]["error"]["type"] == "failed"


@pytest.mark.parametrize("text", ["a", "\u2028\u2029\u0085", "你好 🙂", "\n\r\n\x00", '"\\'])
def test_text_survives_the_fast_way(text: str) -> None:
    """Every delta is one line, reads back as it was, and has no character that weak clients take for a line end."""
    events = text_run(
        TextDelta(item_id="i1", text="first"), TextDelta(item_id="i1", text=text), message(f"first{text}")
    )
    frames = stream(header_of(), events)
    assert [one["delta"] for one in said(events, "response.output_text.delta")] == ["first", text]
    for frame in frames:
        assert len(frame.data.decode().splitlines()) == 1
