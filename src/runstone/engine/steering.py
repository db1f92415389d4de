"""Steering: new input into a run that is still going.

Rule: every input is settled exactly once: delivered (the agent took it; that place is its place in history) or returned with
the run's end. Nothing that was returned is ever started by us.
"""

from __future__ import annotations

import msgspec

from runstone.core.events import InputReceived, InputSettled
from runstone.core.items import Item
from runstone.engine.reader import Reader
from runstone.engine.recording import Recording
from runstone.errors import Conflict, Unsupported
from runstone.runners.base import Runner


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A steering input was accepted: it is in the log as event `seq`. Whether it was delivered, the log says later."""

    run_id: str
    input_id: str
    seq: int


def receive(recording: Recording, runner: Runner, content: list[Item], *, input_id: str, by: str | None) -> Receipt:
    """Put the input into the run's log, for the agent to take.

    Raises:
        Unsupported: the agent takes no input while it runs.
        Conflict: the run is not running (`run_not_accepting_steer`).
    """
    check_steerable(runner)
    run = recording.run
    if run.status != "running" or recording.is_sealed:
        raise not_accepting(run.id, run.status)
    items = [msgspec.structs.replace(item, item_id=f"{input_id}.{n}") for n, item in enumerate(content, 1)]
    seq = recording.emit(InputReceived(input_id=input_id, content=items, by=by))
    return Receipt(run_id=run.id, input_id=input_id, seq=seq)


def check_steerable(runner: Runner) -> None:
    """See that the agent can be steered at all.

    Raises:
        Unsupported: it cannot.
    """
    steer = runner.capabilities.steer
    if steer.level == "none":
        raise Unsupported(f"This agent cannot be steered: {steer.reason}.", capability="steer", param="busy")


def not_accepting(run_id: str, status: str) -> Conflict:
    """The answer to steering that comes at the wrong time."""
    return Conflict(
        f"The run {run_id!r} is {status} and takes no input; only a running one does.",
        run_id=run_id,
        code="run_not_accepting_steer",
    )


async def settled(reader: Reader, receipt: Receipt) -> int | None:
    """The event that delivered the input; None when it was returned, or the run is over. Closes the reader."""
    try:
        while events := await reader.read():
            for event in events:
                if isinstance(event.body, InputSettled) and event.body.input_id == receipt.input_id:
                    return event.seq if event.body.outcome == "delivered" else None
        return None
    finally:
        reader.close()
