"""Errors of Chat Completions: the body of a refusal, and the frame of a stream that ends badly.

Rule: a run that did not complete never looks like one that did. `failed`, `cancelled` and `interrupted` are an error
frame in a stream and an error body without one.
Source: OpenAI API reference, "Errors"; official clients raise on a chunk with `error`.
"""

from __future__ import annotations

from typing import Any, Final

from runstone.core.events import RunEnded
from runstone.core.runs import RunFailure
from runstone.errors import RunnerError, RunstoneError
from runstone.protocols.openai import error_body, error_object

__all__ = ["RESTARTED", "error_body", "error_of", "failure_of"]

_WORDS: Final = {
    "failed": "The agent failed.",
    "cancelled": "The run was stopped.",
    "interrupted": "The run was interrupted.",
}
#: The error of a stream that cannot go on because the work behind it began again.
RESTARTED: Final = {
    "error": error_object(
        "The run was restarted; what was streamed before no longer counts. Read the run's history.",
        type="server_error",
        code="run_restarted",
    )
}


def _failure(ended: RunEnded) -> RunFailure:
    """Code and message of a run that did not complete; the code of one that did not fail is its outcome."""
    said = ended.error
    message = said.message if said is not None else _WORDS[ended.outcome]
    if ended.outcome == "failed":
        return RunFailure(code=said.code if said is not None else "agent_error", message=message)
    return RunFailure(code=ended.outcome, message=message)


def error_of(ended: RunEnded) -> dict[str, Any]:
    """The data of the error frame; `reason` says more about a run that was cancelled or interrupted."""
    failure = _failure(ended)
    kind = "cancelled" if ended.outcome == "cancelled" else "server_error"
    error = error_object(failure.message, type=kind, code=failure.code)
    return {"error": error if ended.reason is None else {**error, "reason": ended.reason}}


def failure_of(ended: RunEnded) -> RunstoneError:
    """The error to answer a call without `stream` with; `error_body` makes it 500 and forbids the retry."""
    failure = _failure(ended)
    return RunnerError(failure.message, code=failure.code)
