"""Everything that Hermes' routes answer with beside streams and messages: sessions, runs, receipts, capabilities.

Rule: a field that nobody counts or knows here is null or absent, never 0 or a guess.
Source: the Hermes agent API server as measured; docs/protocols/hermes.md says which fields are ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from runstone.core.events import RunEnded
from runstone.core.items import ApprovalItem, Message, ToolCall
from runstone.core.runs import Run, Session
from runstone.core.transcript import HistoryRow
from runstone.protocols.hermes.history import last_answer, rows_of, run_word, session_state, text_to_show
from runstone.protocols.hermes.sessions import is_hidden, own_field, source_of
from runstone.protocols.hermes.types import ANY_AGENT, SESSION_HEADER, RunWire, SessionWire
from runstone.protocols.hermes.vocabulary import approval_to_wire, choice_of, end_of_run

_PREVIEW: Final = 200

# -- sessions


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session beside its record: counts of its rows, and its first words; None where nobody counted."""

    message_count: int | None = None
    tool_call_count: int | None = None
    preview: str | None = None


def facts_of(rows: Iterable[HistoryRow], session_id: str) -> SessionFacts:
    """The facts of a session all of whose rows are given."""
    rows = list(rows)
    calls = sum(isinstance(row.item, ToolCall) for row in rows)
    return SessionFacts(
        message_count=len(rows_of(rows, session_id)), tool_call_count=calls, preview=preview_of(rows) or ""
    )


def preview_of(rows: Iterable[HistoryRow]) -> str | None:
    """The beginning of the first words of the user in `rows`, None when there are none."""
    for row in rows:
        if isinstance(row.item, Message) and row.item.role == "user":
            return " ".join(text_to_show(row.item.parts).split())[:_PREVIEW]
    return None


def session_object(session: Session, head: Run | None, facts: SessionFacts = SessionFacts()) -> SessionWire:  # noqa: B008
    """A session; `head` is the newest run of its chain."""
    state = session_state(session, head)
    ended_at = own_field(session, "ended_at")
    return {
        "id": session.id,
        "source": source_of(session),
        "user_id": None,
        "model": own_field(session, "model") or (head.model if head is not None else None),
        "title": session.title,
        "started_at": session.created_at,
        "ended_at": float(ended_at) if ended_at is not None else None,
        "end_reason": own_field(session, "end_reason"),
        "message_count": facts.message_count,
        "tool_call_count": facts.tool_call_count,
        "input_tokens": None,
        "output_tokens": None,
        "cache_read_tokens": None,
        "cache_write_tokens": None,
        "reasoning_tokens": None,
        "estimated_cost_usd": None,
        "actual_cost_usd": None,
        "api_call_count": None,
        "parent_session_id": session.parent,
        "pinned": own_field(session, "pinned") == "true",
        "archived": own_field(session, "archived") == "true",
        "unread": own_field(session, "unread") == "true",
        "hidden": is_hidden(session),
        "is_internal_child": False,
        "has_system_prompt": own_field(session, "system_prompt") is not None,
        "has_model_config": own_field(session, "model") is not None,
        "status": state["status"],
        "metadata": state["metadata"],
        "active_run_id": head.id if head is not None and head.outcome is None else None,
    }


def listed_session(session: Session, head: Run | None, facts: SessionFacts = SessionFacts()) -> SessionWire:  # noqa: B008
    """A session as lists show it: with the time of its newest change, and its first words."""
    wire = session_object(session, head, facts)
    wire["last_active"] = session.updated_at
    wire["preview"] = facts.preview or ""
    return wire


def session_body(wire: SessionWire) -> dict[str, Any]:
    """One session."""
    return {"object": "hermes.session", "session": wire}


def sessions_page(sessions: list[SessionWire], *, limit: int, offset: int, has_more: bool) -> dict[str, Any]:
    """A page of the list; `has_more` is True only when a session follows."""
    return {"object": "list", "data": sessions, "limit": limit, "offset": offset, "has_more": has_more}


def deleted(session_id: str) -> dict[str, Any]:
    """The receipt of a deletion."""
    return {"object": "hermes.session.deleted", "id": session_id, "deleted": True}


# -- runs


def run_object(
    run: Run, rows: Iterable[HistoryRow] | None = None, *, pending_steer: str | None = None, is_stopping: bool = False
) -> RunWire:
    """A run as it is now.

    `rows` are its history rows (`output` and `approvals` come from them, and are absent without); `pending_steer` is what
    `encode.pending_steer` finds in its events; `is_stopping`: somebody asked it to end and it has not yet.
    """
    rows = None if rows is None else list(rows)
    times = [run.created_at, *(leg.created_at for leg in run.legs), run.started_at or 0.0, run.ended_at or 0.0]
    wire: RunWire = {
        "object": "hermes.run",
        "run_id": run.id,
        "status": "stopping" if is_stopping and run.outcome is None else run_word(run.status),
        "created_at": run.created_at,
        "updated_at": max(times),
        "session_id": run.session_id,
        "model": run.model,
        "agent": run.agent,
        "attempt": run.attempt,
        "last_event_id": str(run.last_seq),
        "turn": run.turn,
    }
    if run.continues is not None:
        wire["continues"] = run.continues
    if run.approvals:
        wire["approval"] = {**approval_to_wire(run.approvals[0]), "event": "approval.request", "run_id": run.id}
        wire["last_event"] = "approval.request"
    if rows is not None and (asked := _approvals(run, rows)):
        wire["approvals"] = asked
    output = None if rows is None else last_answer(rows_of((row for row in rows if not row.is_input), run.session_id))
    if run.outcome is not None:
        ended = RunEnded(outcome=run.outcome, reason=run.reason, error=run.error, usage=run.usage)
        wire["last_event"] = f"run.{run.outcome}"
        wire |= end_of_run(ended, output, pending_steer)  # type: ignore[typeddict-item]
    elif output:
        wire["output"] = output
    return wire


def _approvals(run: Run, rows: Iterable[HistoryRow]) -> list[dict[str, Any]]:
    """All approvals of the run in the order they were asked for, with their decisions."""
    pending = {asked.approval_id: asked for asked in run.approvals}
    wires = []
    for row in rows:
        if isinstance(row.item, ApprovalItem):
            asked = pending.get(row.item.approval_id)
            undecided = {"choice": None, "decision": None}
            wires.append(
                {**approval_to_wire(asked), **undecided} if asked is not None else approval_item_to_wire(row.item)
            )
    return wires


def approval_item_to_wire(item: ApprovalItem) -> dict[str, Any]:
    """An approval of history; `choice` and `decision` are null while it is pending."""
    fields: dict[str, Any] = {
        "request_id": item.approval_id,
        "approval_id": item.approval_id,
        "kind": item.approval_kind,
        "tool_call_id": item.call_id,
        "tool_name": item.name,
        "arguments": item.arguments,
        "description": item.prompt or item.name or "",
        "choice": None if item.decision is None else choice_of(item.decision, None),
        "decision": item.decision,
    }
    ours = {"choices": item.choices, "value": item.value, "reason": item.reason}
    return fields | {key: value for key, value in ours.items() if value is not None}


def runs_page(runs: Iterable[Run], *, cursor: str | None) -> dict[str, Any]:
    """A page of runs, newest first; `cursor` leads to the next one. Ours."""
    return {
        "object": "list",
        "data": [run_object(run) for run in runs],
        "has_more": cursor is not None,
        "cursor": cursor,
    }


def alternatives(runs: Iterable[Run], *, current: str | None) -> dict[str, Any]:
    """The runs that answer one turn, oldest first; `current` is the one that the session shows. Ours."""
    data = [{**run_object(run), "is_current": run.id == current} for run in runs]
    return {"object": "list", "data": data}


# -- receipts


def started(run: Run, *, attached: bool) -> dict[str, Any]:
    """The receipt of a start; one that found its run there says how that is now."""
    status = run_word(run.status) if attached else "started"
    return {
        "run_id": run.id,
        "status": status,
        "replayed": attached,
        "session_id": run.session_id,
    }


def stopping(run_id: str) -> dict[str, Any]:
    """The receipt of a stop for a run that has no outcome yet; one that has is answered with its object."""
    return {"run_id": run_id, "status": "stopping"}


def steered(run_id: str, input_id: str | None = None) -> dict[str, Any]:
    """The receipt of a steer; what becomes of the input is said on the stream, by `input_id`."""
    receipt: dict[str, Any] = {"object": "hermes.run.steer", "run_id": run_id, "accepted": True}
    return receipt if input_id is None else {**receipt, "input_id": input_id}


def approval_response(run: Run, choice: str, *, resolved: int) -> dict[str, Any]:
    """The receipt of an answer to `resolved` approvals."""
    return {
        "object": "hermes.run.approval_response",
        "run_id": run.id,
        "choice": choice,
        "resolved": resolved,
        "status": run_word(run.status),
    }


# -- what the server can


class Ability(Protocol):
    """Whether an agent can do something (`runners.base.Capability`)."""

    @property
    def level(self) -> str:
        """`native`, `emulated` or `none`."""
        ...

    @property
    def reason(self) -> str | None:
        """Why not."""
        ...


class Abilities(Protocol):
    """What an agent can (`runners.base.Capabilities`)."""

    @property
    def stop(self) -> Ability:
        """Be stopped."""
        ...

    @property
    def steer(self) -> Ability:
        """Take new input while it runs."""
        ...

    @property
    def approvals(self) -> Ability:
        """Pause for a decision."""
        ...

    @property
    def durable_approvals(self) -> Ability:
        """Pauses that survive a restart."""
        ...

    @property
    def checkpoints(self) -> Ability:
        """Go on after a crash where it was."""
        ...

    @property
    def regenerate(self) -> Ability:
        """Answer an earlier turn again."""
        ...

    @property
    def client_tools(self) -> Ability:
        """Honour tools that the client declares."""
        ...

    @property
    def models(self) -> Ability:
        """Take another model by name."""
        ...


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What the server offers beside the agent's own abilities. A switch is True only when the route behind it works."""

    requires_key: bool
    model: str = ANY_AGENT
    chat: bool = True
    responses: bool = True
    cors: bool = False
    session_header: bool = True
    idempotency_seconds: int = 86_400
    session_events: bool = True
    websocket: bool = False


def capabilities(can: Abilities, served: Served) -> dict[str, Any]:
    """The document of `GET /v1/capabilities`: what works here, and in `reasons` why the rest does not.

    `can` is the default agent's `runners.base.Capabilities`. Keys after `endpoints` are ours.
    """
    reasons = {
        feature: ability.reason
        for feature, ability in (
            ("run_steer", can.steer),
            ("run_stop", can.stop),
            ("run_approval_response", can.approvals),
            ("run_regenerate", can.regenerate),
            ("durable_approvals", can.durable_approvals),
            ("model_options", can.models),
            ("client_tools", can.client_tools),
        )
        if ability.level == "none" and ability.reason
    }
    return {
        "object": "hermes.api_server.capabilities",
        "platform": "hermes-agent",
        "model": served.model,
        "auth": {"type": "bearer", "required": served.requires_key},
        "runtime": {
            "mode": "server_agent",
            "tool_execution": "server",
            "split_runtime": False,
            "description": "Runstone drives the agent on this server; its tools run where the agent runs.",
        },
        "features": _features(can, served),
        "endpoints": {
            name: {"method": method, "path": path} for name, (method, path) in _endpoints(can, served).items()
        },
        "server": "runstone",
        "reasons": reasons,
    }


#: What every agent has by being driven by this server, whatever its framework.
_OF_THE_SERVER: Final = ("start", "resume", "history", "subscribe")
_OF_THE_AGENT: Final = (
    "stop",
    "steer",
    "regenerate",
    "approvals",
    "durable_approvals",
    "checkpoints",
    "client_tools",
    "models",
)


def abilities(can: Abilities) -> dict[str, dict[str, Any]]:
    """Each capability of one agent: its level, and the reason where one is given. Ours."""
    own = {name: getattr(can, name) for name in _OF_THE_AGENT}
    shown: dict[str, dict[str, Any]] = {name: {"level": "native"} for name in _OF_THE_SERVER}
    for name, ability in own.items():
        shown[name] = {"level": ability.level, **({"reason": ability.reason} if ability.reason else {})}
    return shown


def _offers(ability: Ability) -> bool:
    return ability.level != "none"


def _features(can: Abilities, served: Served) -> dict[str, Any]:
    keeps_keys = {"supported": True, "durable": True, "retention_seconds": served.idempotency_seconds}
    return {
        "chat_completions": served.chat,
        "chat_completions_streaming": served.chat,
        "responses_api": served.responses,
        "responses_streaming": served.responses,
        "run_submission": True,
        "runs_idempotency": keeps_keys,
        "run_status": True,
        "run_events_sse": True,
        "run_stop": _offers(can.stop),
        "run_steer": _offers(can.steer),
        "run_approval_response": _offers(can.approvals),
        "approval_events": _offers(can.approvals),
        "approval_identity_v1": _offers(can.approvals),
        "tool_progress_events": True,
        "session_resources": True,
        "model_options": True,
        "session_chat": True,
        "session_chat_streaming": True,
        "session_fork": True,
        "session_model_lock": False,
        "reasoning_streaming": True,
        "admin_config_rw": False,
        "jobs_admin": False,
        "memory_write_api": False,
        "skills_api": False,
        "audio_api": False,
        "realtime_voice": False,
        "session_continuity_header": SESSION_HEADER if served.session_header else None,
        "session_key_header": None,
        "cors": served.cors,
        "run_resume": True,
        "run_regenerate": _offers(can.regenerate),
        "session_events": served.session_events,
        "session_events_websocket": served.websocket,
        "client_tools": _offers(can.client_tools),
        "durable_approvals": _offers(can.durable_approvals),
    }


def _endpoints(can: Abilities, served: Served) -> dict[str, tuple[str, str]]:
    run, session = "/v1/runs/{run_id}", "/api/sessions/{session_id}"
    endpoints = {
        "health": ("GET", "/health"),
        "models": ("GET", "/v1/models"),
        "runs": ("POST", "/v1/runs"),
        "run_status": ("GET", run),
        "run_events": ("GET", f"{run}/events"),
        "sessions": ("GET", "/api/sessions"),
        "session_create": ("POST", "/api/sessions"),
        "session": ("GET", session),
        "session_update": ("PATCH", session),
        "session_delete": ("DELETE", session),
        "session_messages": ("GET", f"{session}/messages"),
        "session_fork": ("POST", f"{session}/fork"),
        "session_chat": ("POST", f"{session}/chat"),
        "session_chat_stream": ("POST", f"{session}/chat/stream"),
    }
    optional = {
        "chat_completions": (served.chat, "POST", "/v1/chat/completions"),
        "responses": (served.responses, "POST", "/v1/responses"),
        "run_stop": (_offers(can.stop), "POST", f"{run}/stop"),
        "run_steer": (_offers(can.steer), "POST", f"{run}/steer"),
        "run_approval": (_offers(can.approvals), "POST", f"{run}/approval"),
        "run_regenerate": (_offers(can.regenerate), "POST", f"{run}/regenerate"),
        "session_events": (served.session_events, "GET", f"{session}/events"),
    }
    return endpoints | {name: (method, path) for name, (is_offered, method, path) in optional.items() if is_offered}
