"""Errors of Responses: the body of a refusal, and what a response says that failed.

Rule: a run that fails is no failed request. It is answered by 200 and a response of status `failed`, also without a stream:
official clients send a 5xx again by themselves, which would run the agent three times.
Source: OpenAI API reference, "Errors" and "The response object / error".
"""

from __future__ import annotations

from typing import Final

from runstone.core.events import RunEnded
from runstone.core.runs import RunFailure
from runstone.protocols.openai import error_body
from runstone.protocols.responses.types import ResponseError

__all__ = ["ERROR_CODES", "RUN_RESTARTED", "error_body", "error_of"]

#: OpenAI's words for `error.code` that an agent may use; its clients check them, so any other becomes the first.
ERROR_CODES: Final = frozenset({"server_error", "rate_limit_exceeded", "invalid_prompt", "bio_policy"})
#: Why a response ends when the work behind it began again.
RUN_RESTARTED: Final[ResponseError] = {
    "code": "server_error",
    "message": "The run was restarted (run_restarted); what this response said no longer counts.",
    "type": "run_restarted",
    "param": None,
}


def error_of(ended: RunEnded) -> ResponseError:
    """The error of a response whose run failed or was interrupted; `type` is our word for why."""
    word = ended.reason or ended.outcome
    failure = ended.error or RunFailure(code=word, message=f"The run was {ended.outcome} ({word}).")
    return {
        "code": failure.code if failure.code in ERROR_CODES else "server_error",
        "message": failure.message,
        "type": failure.code,
        "param": None,
    }
