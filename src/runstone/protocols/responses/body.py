"""The response object: one leg of a run, at any moment of it.

Rule: what the request said is echoed from the leg; fields that every client wants and nobody set have fixed defaults.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from runstone.core.events import RunEnded
from runstone.core.runs import Leg, Usage
from runstone.protocols.base import Header
from runstone.protocols.openai import responses_usage
from runstone.protocols.responses.errors import RUN_RESTARTED, error_of
from runstone.protocols.responses.ids import response_id
from runstone.protocols.responses.items import output_text
from runstone.protocols.responses.types import Dialect, OutputItem, ResponseError, ResponseObject, Status

#: The key of a leg's echo.
PROTOCOL: Final = "responses"
#: What a response says where the request said nothing. Open Responses wants every one of them, and numbers for numbers.
DEFAULTS: Final[dict[str, Any]] = {
    "instructions": None,
    "metadata": {},
    "conversation": None,
    "previous_response_id": None,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "truncation": "disabled",
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "default",
    "safety_identifier": None,
    "prompt_cache_key": None,
}
INCOMPLETE_REASONS: Final = frozenset({"max_output_tokens", "content_filter"})


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a response ends: its status, the last event's type, and why."""

    status: Status
    event: str
    error: ResponseError | None = None
    reason: str | None = None


WAITING: Final[dict[Dialect, Ending]] = {
    # Official clients raise on anything but `completed`, so a leg that waits is complete for them.
    "openai": Ending(status="completed", event="response.completed"),
    "ksadk": Ending(status="incomplete", event="response.incomplete", reason="approval_required"),
}
RESTARTED: Final = Ending(status="failed", event="response.failed", error=RUN_RESTARTED)


def ending_of(ended: RunEnded, dialect: Dialect) -> Ending:
    """How the last response of a run ends."""
    match ended.outcome:
        case "completed" if ended.reason in INCOMPLETE_REASONS:
            return Ending(status="incomplete", event="response.incomplete", reason=ended.reason)
        case "completed":
            return Ending(status="completed", event="response.completed")
        case "cancelled":
            # There is no official event for it; the status says it, and a reason would have to be one of OpenAI's words.
            reason = "cancelled" if dialect == "ksadk" else None
            return Ending(status="cancelled", event="response.incomplete", reason=reason)
        case "interrupted" if dialect == "ksadk":
            reason = ended.reason or "interrupted"
            return Ending(status="incomplete", event="response.incomplete", reason=reason)
        case "failed" | "interrupted":
            return Ending(status="failed", event="response.failed", error=error_of(ended))


class ResponseBody:
    """The response object of one leg; only status, output and what an end brings change."""

    def __init__(self, header: Header) -> None:
        run, leg = header.run, header.leg
        self.created_at = int(leg.created_at)
        self._head: dict[str, Any] = {
            "id": response_id(run.id, header.leg_index),
            "object": "response",
            "created_at": self.created_at,
        }
        self._said = {**DEFAULTS, "model": run.model or run.agent, **_echo(header)}
        self._said["store"] = run.store
        self._said["background"] = run.background
        self._tail = {"session_id": run.session_id, "run_id": run.id}

    def make(
        self,
        status: Status,
        output: list[OutputItem],
        *,
        ending: Ending | None = None,
        at: float = 0.0,
        usage: Usage | None = None,
    ) -> ResponseObject:
        """The object with this status and output; `ending` and its time `at` when it has ended."""
        body: Any = {
            **self._head,
            "completed_at": max(int(at), self.created_at) if status == "completed" else None,
            "status": status,
            "error": ending.error if ending else None,
            "incomplete_details": {"reason": ending.reason} if ending and ending.reason else None,
            "output": output,
            "usage": responses_usage(usage),
            **self._said,
            "output_text": output_text(output),
            **self._tail,
        }
        made: ResponseObject = body
        return made


def _echo(header: Header) -> dict[str, Any]:
    """What the leg's request said; a leg that began without one says what the request before it said."""
    run, leg, k = header.run, header.leg, header.leg_index
    before = run.legs[k - 1] if 0 < k <= len(run.legs) else None
    own = _of(leg)
    if own is not None and (before is None or own != _of(before)):
        return own
    texts = {key: value for key, value in run.metadata.items() if isinstance(value, str)}
    said = own or (_of(run.legs[0]) if run.legs else None) or {"metadata": texts}
    if not k or ("conversation" in said and said["conversation"] is not None):
        return said
    return {**said, "previous_response_id": response_id(run.id, k - 1)}


def _of(leg: Leg) -> dict[str, Any] | None:
    echo: dict[str, Any] | None = leg.echo.get(PROTOCOL)
    return echo
