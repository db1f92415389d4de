"""Our errors in Hermes' words."""

from __future__ import annotations

import pytest

from runstone import errors
from runstone.core.events import RunEnded
from runstone.core.runs import RunFailure
from runstone.protocols.hermes.errors import Verb, error_body, failure_of


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidRequest("no"), 400, None),
        (errors.InvalidRequest("no", param="title", code="invalid_title"), 400, "invalid_title"),
        (errors.NotAllowed("no"), 401, "gateway_auth_failed"),
        (errors.NotAllowed("no", code="forbidden"), 403, "forbidden"),
        (errors.NotFound("session", "s"), 404, "session_not_found"),
        (errors.NotFound("run", "r"), 404, "run_not_found"),
        (errors.Conflict("no", code="session_exists"), 409, "session_exists"),
        (errors.RunActive("no", run_id="r"), 409, "run_already_active"),
        (errors.RunEnded("no", run_id="r"), 409, "run_not_active"),
        (errors.AlreadyDecided("no"), 409, "approval_not_pending"),
        (errors.IdempotencyConflict("no"), 409, "idempotency_key_conflict"),
        (errors.CursorUnknown("x", expected="y"), 400, "cursor_unknown"),
        (errors.CursorExpired("x", oldest=None), 410, "cursor_expired"),
        (errors.LimitExceeded("no", limit="body_bytes", value=1), 413, "body_too_large"),
        (errors.LimitExceeded("no", limit="active_runs", value=1), 429, "rate_limit_exceeded"),
        (errors.LimitExceeded("no", limit="files", value=1), 400, "limit_exceeded"),
        (errors.Unsupported("no", capability="steer"), 400, "unsupported_steer"),
        (errors.StorageUnavailable("no", code="draining"), 503, "gateway_draining"),
        (errors.StorageUnavailable("secret path"), 503, "storage_unavailable"),
        (errors.RunnerError("it broke", code="boom"), 500, "boom"),
        (errors.StorageError("secret path"), 500, "internal_error"),
    ],
)
def test_every_error_has_a_status_and_a_code(error: errors.RunstoneError, status: int, code: str | None) -> None:
    """Each error of our tree has Hermes' status and code in Hermes' envelope, and shows nothing that is not fit to be shown."""
    answer = error_body(error)
    assert (answer.status, answer.body["error"]["code"]) == (status, code)
    assert answer.body["error"].keys() - {"run_id"} == {"message", "type", "param", "code"}
    assert "secret" not in answer.body["error"]["message"]
    assert ("retry-after" in answer.headers) == (status in (429, 503))


@pytest.mark.parametrize(
    ("verb", "code"),
    [("steer", "run_not_accepting_steer"), ("approval", "approval_not_active"), ("delete", "session_active_turn")],
)
def test_a_conflict_is_named_after_what_was_asked(verb: Verb, code: str) -> None:
    """The same conflict with a run has another code for each verb, and names the run."""
    for error in (errors.RunActive("no", run_id="r"), errors.RunEnded("no", run_id="r")):
        answer = error_body(error, verb=verb)
        assert (answer.status, answer.body["error"]["code"], answer.body["error"]["run_id"]) == (409, code, "r")


def test_a_turn_that_did_not_complete_is_an_error() -> None:
    """`/chat` answers a failed, stopped or interrupted turn with an error that says which."""
    failure = RunFailure(code="provider_error", message="provider 500")
    ends = [
        (RunEnded(outcome="failed", error=failure), "provider_error", "provider 500"),
        (RunEnded(outcome="failed"), "agent_error", "The agent failed."),
        (RunEnded(outcome="cancelled"), "cancelled", "The run was stopped."),
        (RunEnded(outcome="interrupted", error=failure), "interrupted", "provider 500"),
    ]
    for ended, code, message in ends:
        answer = error_body(failure_of(ended))
        assert (answer.status, answer.body["error"]["code"], answer.body["error"]["message"]) == (500, code, message)
