from __future__ import annotations

import pytest

from runstone.core.events import RunEnded
from runstone.core.runs import RunFailure
from runstone.errors import NotFound, RunActive
from runstone.protocols.responses.errors import error_body, error_of


def test_failure_has_an_official_code_and_our_word() -> None:
    """`code` is one of OpenAI's words, `type` ours, and the message is the failure's."""
    ended = RunEnded(outcome="failed", error=RunFailure(code="agent_error", message="No."))
    assert error_of(ended) == {"code": "server_error", "message": "No.", "type": "agent_error", "param": None}


def test_official_code_is_kept() -> None:
    """A failure whose code is OpenAI's keeps it."""
    ended = RunEnded(outcome="failed", error=RunFailure(code="rate_limit_exceeded", message="Slow down."))
    assert error_of(ended)["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize("reason", ["worker_lost", "deadline", None])
def test_interrupted_names_the_reason(reason: str | None) -> None:
    """A run without an error of its own is told by its reason."""
    error = error_of(RunEnded(outcome="interrupted", reason=reason))
    assert error["type"] == (reason or "interrupted")
    assert (reason or "interrupted") in error["message"]


def test_conflict_is_no_409() -> None:
    """Official clients send a 409 again, so a locked conversation is 400."""
    answer = error_body(RunActive("The run 'r' is running.", run_id="r"))
    assert (answer.status, answer.body["error"]["code"]) == (400, "conversation_locked")


def test_unknown_previous_response_is_400() -> None:
    """An unknown previous response is a wrong parameter, not a missing page."""
    error = NotFound("response", "resp_x", param="previous_response_id", code="previous_response_not_found")
    answer = error_body(error)
    assert (answer.status, answer.body["error"]["param"]) == (400, "previous_response_id")
