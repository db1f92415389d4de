"""Pauses of a run: waiting for decisions, taking them, going on.

Rule: a leg begins with the first event after a pause, so whoever decides begins one; `Run.legs` says where each begins.
"""

from __future__ import annotations

from typing import Any

import msgspec

from runstone.core.events import ApprovalDecided, RunContinued, RunPaused
from runstone.core.runs import Decision, Leg
from runstone.core.transcript import pending_approval
from runstone.engine.recording import Recording
from runstone.engine.scrub import storable
from runstone.errors import AlreadyDecided, NotFound


def pause(recording: Recording) -> None:
    """Record that the run waits for the approvals that are pending."""
    pending = list(recording.state.approvals.values())
    recording.note_pause()
    recording.emit(RunPaused(approvals=[asked.approval_id for asked in pending]))
    recording.update(
        status="waiting",
        approvals=[pending_approval(asked) for asked in pending],
    )


def continue_run(
    recording: Recording,
    *,
    decisions: list[Decision] | None = None,
    echo: dict[str, Any] | None = None,
    delivered: bool = False,
) -> None:
    """Record `decisions` and that the run goes on. When it was paused, a leg begins; `echo` is what its request said.

    `delivered`: the agent knows them already; others stay in the record until it is given them.
    """
    was_paused = recording.state.phase == "paused"
    first_seq = recording.last_seq + 1
    for decision in decisions or []:
        recording.emit(
            ApprovalDecided(
                approval_id=decision.approval_id,
                decision=decision.decision,
                arguments=decision.arguments,
                value=decision.value,
                scope=decision.scope,
                reason=decision.reason,
                by=decision.by,
            )
        )
    pending = recording.state.approvals
    run = recording.run
    fields: dict[str, Any] = {
        "approvals": [asked for asked in run.approvals if asked.approval_id in pending],
    }
    if decisions and not delivered:
        fields["decided"] = [*run.decided, *decisions]
    if was_paused:
        recording.note_continuation()
        seq = recording.emit(RunContinued())
        leg = Leg(first_seq=min(first_seq, seq), created_at=recording.now(), echo=echo or run.legs[-1].echo)
        fields |= {"status": "running", "legs": [*run.legs, leg]}
    recording.update(**fields)


def checked_decisions(recording: Recording, decisions: list[Decision]) -> list[Decision]:
    """`decisions` when each answers an approval that is pending, once; an answer's missing arguments become those asked for.

    Raises:
        NotFound: the run never asked for one of them.
        AlreadyDecided: one of them has its answer, or two of `decisions` answer the same one.
    """
    pending = recording.state.approvals
    seen: set[str] = set()
    checked = []
    for decision in decisions:
        asked = pending.get(decision.approval_id)
        if decision.approval_id in seen or (asked is None and recording.state.has_asked(decision.approval_id)):
            raise AlreadyDecided(
                f"The approval {decision.approval_id!r} has its decision already.",
                run_id=recording.run.id,
                code="approval_not_pending",
            )
        if asked is None:
            raise NotFound("approval", decision.approval_id, code="approval_not_found")
        seen.add(decision.approval_id)
        decision = storable(decision)
        checked.append(
            decision if decision.arguments is not None else msgspec.structs.replace(decision, arguments=asked.arguments)
        )
    return checked
