"""How a run that did not complete is told."""

from __future__ import annotations

import pytest

from runstone.core.events import RunEnded
from runstone.core.runs import Outcome, RunFailure
from runstone.protocols.chat.errors import error_body, error_of, failure_of


@pytest.mark.parametrize(
    ("outcome", "error", "code", "message"),
    [
        ("failed", None, "agent_error", "The agent failed."),
        ("failed", RunFailure(code="tool_error", message="No disk."), "tool_error", "No disk."),
        ("cancelled", None, "cancelled", "The run was stopped."),
        ("interrupted", RunFailure(code="deadline", message="It took too long."), "interrupted", "It took too long."),
    ],
)
def test_a_bad_end_is_an_error_everywhere(outcome: Outcome, error: RunFailure | None, code: str, message: str) -> None:
    """Frame and body say the same code and message; the body is 500 and forbids the retry."""
    ended = RunEnded(outcome=outcome, error=error)
    frame = error_of(ended)["error"]
    assert (frame["code"], frame["message"], frame["param"]) == (code, message, None)
    answer = error_body(failure_of(ended))
    assert (answer.status, answer.headers) == (500, {"x-should-retry": "false"})
    assert (answer.body["error"]["code"], answer.body["error"]["message"]) == (code, message)


def test_the_reason_is_told() -> None:
    """Why a run was interrupted stands beside the code."""
    assert error_of(RunEnded(outcome="interrupted", reason="worker_lost"))["error"]["reason"] == "worker_lost"
    assert "reason" not in error_of(RunEnded(outcome="cancelled"))["error"]
