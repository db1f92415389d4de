"""The examples of agents do what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runstone.core.items import ToolResult
from runstone.core.runs import Decision
from runstone.runners.base import Runner
from runstone.runners.load import load
from runstone.testing import drive, run_request

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> Runner:
    """The agent of an example."""
    (loaded,) = load(str(EXAMPLES / f"{name}.py"))
    assert loaded.name == name
    return loaded.runner


@pytest.mark.parametrize(
    ("name", "question", "answer"),
    [
        ("function_agent", "What is the capital of Italy?", "The capital of Italy is Rome."),
        ("function_agent", "And you?", "I know the capitals of France, Italy, Norway."),
        ("sync_agent", "one two", "I count 2 words: one two"),
    ],
)
async def test_an_example_answers(name: str, question: str, answer: str) -> None:
    """Loaded as a user would load it."""
    assert (await drive(example(name), run_request(question))).text == answer


async def test_the_approval_example_sends_what_was_decided() -> None:
    """It asks to whom, and whether; edited arguments are what is sent."""

    def decide(asked: Any) -> Decision:
        if asked.kind == "input":
            return Decision(approval_id=asked.approval_id, decision="answered", value="ben")
        return Decision(
            approval_id=asked.approval_id, decision="approved", arguments='{"to":"ben","text":"hello, Ben"}'
        )

    assert (await drive(example("approval_agent"), decide=decide)).text == "Sent to ben: hello, Ben"


async def test_the_langgraph_example_asks_before_it_deletes() -> None:
    """It pauses on its tool; the approval names the call."""
    context = await drive(example("langgraph_agent"), run_request("delete a.txt"))
    (asked,) = context.state.approvals.values()
    assert (asked.name, asked.arguments, asked.prompt) == ("delete_file", '{"path":"a.txt"}', "Delete a.txt?")
    assert not [item for item in context.items if isinstance(item, ToolResult)]
