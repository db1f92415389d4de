"""Runs, events and rows for the tests of storage, as short as they can be said."""

from __future__ import annotations

from typing import Any

import msgspec

from runstone.core.content import TextPart
from runstone.core.events import Body, Event, ItemEnded, RunCreated, RunEnded, TextDelta
from runstone.core.items import Item, Message, user_message
from runstone.core.runs import Run, Session
from runstone.core.transcript import HistoryRow, RowChange
from runstone.storage.base import Append, Created, Idempotency, NewRun, Store

OWNER = "ann"


def a_session(session_id: str = "s1", *, owner: str = OWNER, at: float = 1.0, **fields: Any) -> Session:
    """A session without runs."""
    return Session(id=session_id, owner=owner, agent=fields.pop("agent", "bot"), created_at=at, updated_at=at, **fields)


def a_run(run_id: str = "r1", session_id: str = "s1", *, owner: str = OWNER, **fields: Any) -> Run:
    """A queued run."""
    return Run(
        id=run_id,
        owner=owner,
        session_id=session_id,
        agent="bot",
        turn=fields.pop("turn", run_id),
        created_at=fields.pop("created_at", 1.0),
        **fields,
    )


def a_new_run(
    run: Run,
    *,
    position: int = 1,
    text: str = "hello",
    fingerprint: str = "f",
    head: str | None = None,
    idempotency: Idempotency | None = None,
    at: float = 1.0,
    session: Session | None = None,
) -> NewRun:
    """The run with one user message as its input, in a session that sees `head`."""
    body = RunCreated(agent=run.agent, input=[user_message("in1", text)], continues=run.continues)
    return NewRun(
        run=run,
        session=session or a_session(run.session_id, owner=run.owner),
        event=Event(1, position, at, 1, body),
        fingerprint=fingerprint,
        idempotency=idempotency,
        expected_head=head,
    )


def deltas(first_seq: int, count: int, *, shift: int = 0, text: str = "x") -> list[Event]:
    """Consecutive text deltas whose position is their seq plus `shift`."""
    return [event(seq, TextDelta(item_id="i1", text=text), shift=shift) for seq in range(first_seq, first_seq + count)]


def event(seq: int, body: Body, *, shift: int = 0, at: float = 2.0) -> Event:
    """One event."""
    return Event(seq, seq + shift, at, 1, body)


def an_append(run: Run, events: list[Event], /, **fields: Any) -> Append:
    """A batch for `run`."""
    return Append(
        owner=run.owner, session_id=run.session_id, run_id=run.id, at=fields.pop("at", 2.0), events=events, **fields
    )


def message(item_id: str, text: str) -> Message:
    """What the agent said."""
    return Message(item_id=item_id, role="assistant", parts=[TextPart(text=text)])


def a_row(position: int, item: Item, *, run_id: str | None = None, seq: int = 0, ordinal: int = 0) -> HistoryRow:
    """A row of a run, or of a client when there is none."""
    return HistoryRow(
        position=position,
        ordinal=ordinal,
        at=2.0,
        item=item,
        run_id=run_id,
        seq=seq,
        origin="client" if run_id is None else "run",
    )


def said(run: Run, seq: int, text: str, *, shift: int = 0) -> Append:
    """The run says one finished message."""
    item = message(f"i{seq}", text)
    row = a_row(seq + shift, item, run_id=run.id, seq=seq)
    return an_append(run, [event(seq, ItemEnded(item=item), shift=shift)], changes=[RowChange(added=[row])])


def ended(run: Run, seq: int, *, shift: int = 0, at: float = 3.0) -> Append:
    """The run is completed."""
    done = msgspec.structs.replace(run, status="completed", ended_at=at, last_seq=seq)
    return an_append(run, [event(seq, RunEnded(outcome="completed"), shift=shift)], run=done, at=at)


async def start(store: Store, run_id: str = "r1", session_id: str = "s1", **fields: Any) -> Run:
    """Create a run and give it back; fields of `a_new_run` and of the run."""
    names = ("position", "text", "fingerprint", "head", "idempotency", "at", "session")
    asked = {name: fields.pop(name) for name in names if name in fields}
    run = a_run(run_id, session_id, **fields)
    created: Created = await store.create_run(a_new_run(run, **asked))
    assert created.is_new
    return run


async def answered(store: Store, run_id: str, *, first: int, head: str | None, text: str, **fields: Any) -> Run:
    """A whole run at positions `first` to `first` + 2: asked, said, ended; it continues the head unless told otherwise."""
    continues = fields.pop("continues", head)
    run = await start(store, run_id, position=first, head=head, text=f"ask {run_id}", continues=continues, **fields)
    await store.append(said(run, 2, text, shift=first - 1))
    await store.append(ended(run, 3, shift=first - 1))
    return run


def texts(rows: list[HistoryRow]) -> list[str]:
    """What the rows' messages say."""
    return [row.item.text for row in rows if isinstance(row.item, Message)]
