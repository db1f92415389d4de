"""What agents say becomes legal bodies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runstone.core.events import (
    ApprovalRequested,
    ItemEnded,
    ItemStarted,
    RunEnded,
    StepEnded,
    StepStarted,
    TextDelta,
    ToolProgress,
)
from runstone.core.items import Message, Reasoning, ToolCall, ToolResult
from runstone.core.lifecycle import closing
from runstone.core.runs import Usage
from runstone.errors import RunnerError
from runstone.runners.compose import Composer
from runstone.testing import FakeContext, said


def composer() -> tuple[Composer, FakeContext]:
    """A composer and where it speaks."""
    context = FakeContext()
    return Composer(context), context


def test_text_is_one_message_in_one_step() -> None:
    """Chunks make one message; its final text is the chunks joined."""
    say, context = composer()
    say.text("He")
    say.text("llo")
    say.close()
    assert context.bodies == [
        StepStarted(step="s1"),
        *said("Hello", chunks=["He", "llo"]),
        StepEnded(step="s1"),
    ]


def test_an_open_message_costs_one_delta() -> None:
    """Text of an open message is one body and nothing else."""
    say, context = composer()
    say.text("a")
    before = len(context.bodies)
    say.text("b")
    assert context.bodies[before:] == [TextDelta(item_id="i1", text="b")]


def test_empty_text_opens_nothing() -> None:
    """An empty chunk says nothing."""
    say, context = composer()
    say.text("")
    say.reasoning("")
    say.close()
    assert context.bodies == []


def test_reasoning_closes_before_text() -> None:
    """Thinking and words never overlap, and come out in the order they were said."""
    say, context = composer()
    say.reasoning("hm")
    say.text("yes")
    say.reasoning("wait")
    say.close()
    kinds = [(type(item), getattr(item, "text", None)) for item in context.items]
    assert kinds == [(Reasoning, "hm"), (Message, "yes"), (Reasoning, "wait")]
    assert {item.step for item in context.items} == {"s1"}
    assert context.is_closed


def test_text_after_a_tool_result_is_a_new_message_of_a_new_step() -> None:
    """A result ends the message and the step that nobody opened."""
    say, context = composer()
    say.text("let me look")
    say.tool_call("weather", {"city": "Paris"}, "c1")
    say.tool_started("c1")
    say.tool_result("c1", "20")
    say.text("it is 20")
    say.close()
    assert [(type(item), item.step) for item in context.items] == [
        (Message, "s1"),
        (ToolCall, "s1"),
        (ToolResult, "s1"),
        (Message, "s2"),
    ]
    call = context.items[1]
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"city":"Paris"}'


def test_parallel_calls_share_a_step() -> None:
    """Calls made before the first result belong to one model call."""
    say, context = composer()
    for call_id in ("a", "b"):
        say.tool_call("t", {}, call_id)
        say.tool_started(call_id)
    say.tool_result("b", "2")
    say.tool_result("a", "1")
    say.close()
    assert [(item.step, item.call_id) for item in context.items if isinstance(item, ToolCall | ToolResult)] == [
        ("s1", "a"),
        ("s1", "b"),
        ("s1", "b"),
        ("s1", "a"),
    ]
    assert len(context.of(StepEnded)) == 1


def test_arguments_stream_for_several_calls_at_once() -> None:
    """Pieces of two calls may interleave; each call keeps its own text."""
    say, context = composer()
    say.tool_call_started("f", "a")
    say.tool_call_started("g", "b")
    say.tool_call_delta("a", '{"x"')
    say.tool_call_delta("b", '{"y"')
    say.tool_call_delta("a", ":1}")
    say.tool_call_delta("b", ":2}")
    say.close()
    assert [(c.name, c.arguments) for c in context.items if isinstance(c, ToolCall)] == [
        ("f", '{"x":1}'),
        ("g", '{"y":2}'),
    ]


def test_a_call_without_arguments_is_an_empty_object() -> None:
    """No arguments are one JSON document too."""
    say, context = composer()
    say.tool_call("now", "", "a")
    assert isinstance(context.items[0], ToolCall)
    assert context.items[0].arguments == "{}"


def test_the_result_starts_when_the_tool_starts() -> None:
    """Progress comes between the start of the result and the result, also when nobody said that the tool started."""
    say, context = composer()
    say.tool_call("t", {}, "a")
    say.tool_progress("a", {"done": 1})
    say.tool_result("a", "x", is_error=True)
    kinds = [type(body) for body in context.bodies[-4:]]
    assert kinds == [ItemStarted, ToolProgress, ItemEnded, StepEnded]
    result = context.items[-1]
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert result.name == "t"


def test_a_step_of_the_source_survives_tool_results() -> None:
    """A step that the source opened ends when the source says so, with what it noted."""
    say, context = composer()
    say.begin_step(author="writer")
    say.note(usage=Usage(input_tokens=3))
    say.tool_call("t", {}, "a")
    say.tool_result("a", "x")
    say.text("done")
    say.end_step(finish_reason="stop", model="m", usage=Usage(output_tokens=4))
    (ended,) = context.of(StepEnded)
    assert ended == StepEnded(step="s1", finish_reason="stop", model="m", usage=Usage(input_tokens=3, output_tokens=4))
    assert {(item.step, item.author) for item in context.items} == {("s1", "writer")}


def test_usage_without_words_is_a_step_of_its_own() -> None:
    """A model call that said nothing still counts."""
    say, context = composer()
    say.note(usage=Usage(total_tokens=5))
    say.close()
    assert context.bodies == [StepStarted(step="s1"), StepEnded(step="s1", usage=Usage(total_tokens=5))]


def test_another_author_is_another_message() -> None:
    """Words of two authors are two messages of two steps."""
    say, context = composer()
    say.text("a", "x")
    say.text("b", "y")
    say.close()
    assert [(item.author, item.step) for item in context.items] == [("x", "s1"), ("y", "s2")]


def test_an_approval_ends_what_is_being_said() -> None:
    """Nothing is half said while somebody decides, and the pause has an approval id and a call id."""
    say, context = composer()
    say.text("may I?")
    say.approval("confirm", name="rm", arguments="{}")
    assert context.is_closed
    (asked,) = context.of(ApprovalRequested)
    assert (asked.approval_id, asked.call_id) == ("appr_1", "call_1")


def test_arguments_without_a_json_form_are_refused() -> None:
    """The error names the tool and the type."""
    say, _ = composer()
    with pytest.raises(RunnerError, match=r"the arguments of 't' is a 'dict' that has no JSON form"):
        say.tool_call("t", {"x": object()})


ACTIONS = st.sampled_from(["text", "reason", "call", "start", "result", "step", "end", "note", "approve", "other"])


@given(st.lists(ACTIONS, max_size=40))
def test_whatever_is_said_is_legal(actions: list[str]) -> None:
    """Any order of words, calls, results and steps is legal, ends closed, and keeps every word once in order."""
    say, context = composer()
    words: list[str] = []
    calls: list[str] = []
    for n, action in enumerate(actions):
        _act(say, action, n, words, calls)
    say.close()
    for body in [*closing(context.state), RunEnded(outcome="completed")]:
        context.state.advance(body)
    spoken = "".join(i.text for i in context.items if isinstance(i, Message | Reasoning))
    assert spoken == "".join(words)
    results = [i for i in context.items if isinstance(i, ToolResult)]
    assert len({r.call_id for r in results}) == len(results)


def _act(say: Composer, action: str, n: int, words: list[str], calls: list[str]) -> None:
    match action:
        case "text" | "reason" | "other":
            words.append(f"<{n}>")
            said_by: Any = "other" if action == "other" else None
            (say.reasoning if action == "reason" else say.text)(f"<{n}>", said_by)
        case "call":
            calls.append(say.tool_call_started("t"))
        case "start" if calls:
            say.tool_started(calls[-1])
        case "result" if calls:
            say.tool_result(calls.pop(0), "x")
        case "step":
            say.begin_step()
        case "end":
            say.end_step(finish_reason="stop")
        case "note":
            say.note(usage=Usage(output_tokens=1))
        case "approve":
            say.approval("input")
