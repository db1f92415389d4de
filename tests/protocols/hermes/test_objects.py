"""Sessions, runs, receipts and the capability document."""

from __future__ import annotations

from typing import Any

import pytest

from runstone.core.content import TextPart
from runstone.core.items import ApprovalItem, Message, ToolCall, user_message
from runstone.core.runs import Leg, PendingApproval, Run, RunFailure, Session, Usage
from runstone.core.transcript import HistoryRow
from runstone.protocols.hermes.objects import (
    Served,
    SessionFacts,
    alternatives,
    approval_response,
    capabilities,
    deleted,
    facts_of,
    listed_session,
    run_object,
    session_body,
    session_object,
    sessions_page,
    started,
    steered,
    stopping,
)
from runstone.runners.base import NATIVE, Capabilities, no

AT = 1_760_000_000.5
MEASURED = {"id", "source", "user_id", "model", "title", "started_at", "ended_at", "end_reason", "message_count"}
MEASURED |= {"tool_call_count", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"}
MEASURED |= {
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
    "api_call_count",
    "parent_session_id",
    "pinned",
}
MEASURED |= {"archived", "hidden", "has_system_prompt", "has_model_config", "is_internal_child"}


def run(id: str = "r1", **fields: Any) -> Run:
    """A run."""
    common = {"id": id, "owner": "local", "session_id": "s-1", "agent": "echo", "turn": "t1", "created_at": AT}
    return Run(**{**common, "legs": [Leg(first_seq=1, created_at=AT)], **fields})


def session(**fields: Any) -> Session:
    """A session."""
    return Session(**{"id": "s-1", "owner": "local", "agent": "echo", "created_at": 1.0, "updated_at": 2.0, **fields})


def rows(*items: Any) -> list[HistoryRow]:
    """Rows of a run; the first is its input."""
    return [
        HistoryRow(position=n, ordinal=0, at=AT, item=item, run_id="r1", seq=n, is_input=n == 1)
        for n, item in enumerate(items, 1)
    ]


def answer(text: str) -> Message:
    """A text of the assistant."""
    return Message(item_id="m", role="assistant", parts=[TextPart(text=text)])


# -- sessions


def test_a_session_has_every_measured_field() -> None:
    """The fields of a real session are all there; what nobody counts is null."""
    wire = session_object(session(title="T", parent="s-0"), run(status="running", model="m"))
    assert wire.keys() >= MEASURED
    assert (wire["id"], wire["title"], wire["parent_session_id"], wire["model"]) == ("s-1", "T", "s-0", "m")
    assert (wire["started_at"], wire["status"], wire["active_run_id"]) == (1.0, "running", "r1")
    assert {wire["input_tokens"], wire["message_count"], wire["estimated_cost_usd"]} == {None}
    assert "preview" not in wire and session_body(wire) == {"object": "hermes.session", "session": wire}


def test_own_fields_of_a_session_come_from_its_metadata() -> None:
    """Source, model, flags, prompt and end are shown as fields and not as metadata."""
    own = {"source": "bot", "model": "m", "system_prompt": "p", "pinned": "true", "end_reason": "x", "ended_at": "9.0"}
    wire = session_object(session(metadata={f"hermes_{key}": value for key, value in own.items()}), None)
    assert (wire["source"], wire["model"], wire["pinned"], wire["archived"]) == ("bot", "m", True, False)
    assert (wire["has_system_prompt"], wire["has_model_config"]) == (True, True)
    assert (wire["end_reason"], wire["ended_at"], wire["metadata"]) == ("x", 9.0, {"backendStatus": "idle"})


def test_a_list_has_times_and_first_words() -> None:
    """A listed session has `last_active` and `preview`; counts come from its rows."""
    call = ToolCall(item_id="c", call_id="c1", name="t", arguments="{}")
    facts = facts_of(rows(user_message("in1", "Beijing\n weather " + "x" * 300), answer("a"), call), "s-1")
    assert (facts.message_count, facts.tool_call_count) == (2, 1)
    wire = listed_session(session(), None, facts)
    assert (
        wire["last_active"] == 2.0 and wire["preview"].startswith("Beijing weather x") and len(wire["preview"]) == 200
    )
    assert listed_session(session(), None, SessionFacts())["preview"] == ""
    page = sessions_page([wire], limit=1, offset=2, has_more=True)
    assert (page["object"], page["data"], page["limit"], page["offset"], page["has_more"]) == (
        "list",
        [wire],
        1,
        2,
        True,
    )
    assert deleted("s-1") == {"object": "hermes.session.deleted", "id": "s-1", "deleted": True}


# -- runs


@pytest.mark.parametrize(
    ("status", "word"),
    [("queued", "queued"), ("running", "running"), ("waiting", "waiting_for_approval"), ("completed", "completed")],
)
def test_a_run_has_hermes_status(status: Any, word: str) -> None:
    """A run's status is Hermes' word; one that was asked to stop is `stopping` until it has its outcome."""
    assert run_object(run(status=status))["status"] == word
    assert run_object(run(status=status), is_stopping=True)["status"] == ("stopping" if word != "completed" else word)


def test_an_ended_run_says_everything() -> None:
    """Output, usage, flags, reason, steering that came back, and the last event."""
    ended = run(status="completed", ended_at=AT + 3, usage=Usage(input_tokens=1, cached_tokens=2), last_seq=9)
    wire = run_object(ended, rows(user_message("in1", "?"), answer("first"), answer("last")), pending_steer="more")
    assert (wire["output"], wire["usage"], wire["pending_steer"]) == (
        "last",
        {"input_tokens": 1, "cache_read_tokens": 2},
        "more",
    )
    assert (wire["completed"], wire["partial"], wire["interrupted"]) == (True, False, False)
    assert (wire["last_event"], wire["last_event_id"], wire["updated_at"]) == ("run.completed", "9", AT + 3)


def test_a_bad_end_is_told_as_text_and_code() -> None:
    """A failure has a text in `error` and a word in `error_code`; without rows the output is not known."""
    wire = run_object(
        run(status="interrupted", reason="worker_lost", error=RunFailure(code="interrupted", message="lost"))
    )
    assert (wire["error"], wire["error_code"], wire["turn_exit_reason"]) == ("lost", "interrupted", "worker_lost")
    assert (wire["interrupted"], "output" in wire, wire["last_event"]) == (True, False, "run.interrupted")


def test_a_waiting_run_shows_what_it_waits_for() -> None:
    """The first pending request is in `approval`, all of the run's with their decisions in `approvals`."""
    asked = PendingApproval(approval_id="a2", kind="confirm", call_id="c1", name="rm", arguments='{"path":"x"}')
    decided = ApprovalItem(item_id="a1", approval_id="a1", approval_kind="confirm", decision="denied", reason="no")
    pending = ApprovalItem(item_id="a2", approval_id="a2", approval_kind="confirm", call_id="c1")
    wire = run_object(run(status="waiting", approvals=[asked]), rows(user_message("in1", "?"), decided, pending))
    assert (wire["approval"]["request_id"], wire["approval"]["command"], wire["last_event"]) == (
        "a2",
        "x",
        "approval.request",
    )
    first, second = wire["approvals"]
    assert (first["choice"], first["decision"], first["reason"]) == ("deny", "denied", "no")
    assert (second["request_id"], second["choices"]) == ("a2", ["once", "deny"])


def test_alternatives_name_the_current_one() -> None:
    """The runs of a turn are listed, and the one that the session shows is marked."""
    wire = alternatives([run("r1", status="completed"), run("r2", status="running", continues="r0")], current="r2")
    assert [(one["run_id"], one["is_current"]) for one in wire["data"]] == [("r1", False), ("r2", True)]
    assert wire["data"][1]["continues"] == "r0"


def test_receipts_are_hermes_receipts() -> None:
    """Start, stop, steer and decide are answered as Hermes answers them, the session beside the run."""
    live = run(status="running")
    assert started(live, attached=False) == {
        "run_id": "r1",
        "status": "started",
        "replayed": False,
        "session_id": "s-1",
    }
    assert started(live, attached=True)["status"] == "running" and started(live, attached=True)["replayed"]
    assert stopping("r1") == {"run_id": "r1", "status": "stopping"}
    assert steered("r1") == {"object": "hermes.run.steer", "run_id": "r1", "accepted": True}
    assert steered("r1", "in_1")["input_id"] == "in_1"
    receipt = approval_response(live, "once", resolved=1)
    assert (receipt["object"], receipt["choice"], receipt["resolved"]) == ("hermes.run.approval_response", "once", 1)


# -- capabilities


def test_the_document_passes_a_strict_probe() -> None:
    """Object, platform, model, auth and chat are what the strictest known client demands, literally."""
    wire = capabilities(Capabilities(), Served(requires_key=True))
    assert (wire["object"], wire["platform"]) == ("hermes.api_server.capabilities", "hermes-agent")
    assert 0 < len(wire["model"].strip()) <= 255
    assert wire["auth"] == {"type": "bearer", "required": True}
    assert wire["features"]["chat_completions"] is True and wire["features"]["chat_completions_streaming"] is True


def test_only_what_works_is_offered() -> None:
    """A feature is true when the agent has the ability; else it is false, without an endpoint, and says why."""
    poor = capabilities(Capabilities(steer=no("it does not listen")), Served(requires_key=False, chat=False))
    rich = capabilities(Capabilities(steer=NATIVE, approvals=NATIVE), Served(requires_key=True))
    assert (poor["features"]["run_steer"], "run_steer" in poor["endpoints"]) == (False, False)
    assert poor["reasons"]["run_steer"] == "it does not listen"
    assert poor["auth"]["required"] is False and "chat_completions" not in poor["endpoints"]
    assert (rich["features"]["run_steer"], rich["features"]["approval_events"]) == (True, True)
    assert rich["endpoints"]["run_steer"] == {"method": "POST", "path": "/v1/runs/{run_id}/steer"}
    assert rich["features"]["runs_idempotency"] == {"supported": True, "durable": True, "retention_seconds": 86_400}
    assert "run_steer" not in rich["reasons"]
