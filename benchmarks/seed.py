"""Large databases to measure on, filled through the store that the server uses."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from runstone.core.content import TextPart
from runstone.core.events import Body, Event, ItemEnded, ItemStarted, RunCreated, RunEnded, RunStarted, TextDelta
from runstone.core.items import Message, user_message
from runstone.core.lifecycle import RunState
from runstone.core.runs import Leg, Run, Session
from runstone.core.transcript import RowChange, row_change
from runstone.storage.base import Append, NewRun
from runstone.storage.sqlite import SqliteStore

OWNER = "local"
#: Events in one append, as a fast agent makes them.
BATCH = 200


def fill(database: Path, *, messages: int = 0, sessions: int = 0, events: int = 0) -> None:
    """A session `long` of so many messages, so many sessions, a run `huge` of so many events."""
    asyncio.run(_fill(database, messages, sessions, events))


async def _fill(database: Path, messages: int, sessions: int, events: int) -> None:
    store = SqliteStore(database, longest_wait=0.0)
    await store.open()
    head, position = None, 0
    for n in range(messages // 2):
        position = await _run(store, f"run{n}", "long", head, position, [f"answer {n} " * 5])
        head = f"run{n}"
    if events:
        await _run(store, "huge", "big", None, 0, [f"word{n} " for n in range(events - 6)])
    for start in range(0, sessions, 1_000):
        await asyncio.gather(*(_session(store, n) for n in range(start, min(start + 1_000, sessions))))
    await store.close()


async def _session(store: SqliteStore, n: int) -> None:
    session = Session(
        id=f"s{n}", owner=OWNER, agent="words", created_at=n, updated_at=n, title=f"A talk about the number {n}"
    )
    await store.create_session(session, [])


async def _run(store: SqliteStore, run_id: str, session: str, head: str | None, position: int, words: list[str]) -> int:
    """One turn: a question, and an answer of `words`; the position that it ended with."""
    text = "".join(words)
    bodies: list[Body] = [
        RunStarted(),
        ItemStarted(item_id="i1", kind="message"),
        *(TextDelta(item_id="i1", text=word) for word in words),
        ItemEnded(item=Message(item_id="i1", role="assistant", parts=[TextPart(text=text)])),
        RunEnded(outcome="completed"),
    ]
    created = RunCreated(agent="words", input=[user_message("in1", "a question")], continues=head)
    first = Event(1, position + 1, float(position), 1, created)
    run = Run(
        id=run_id,
        owner=OWNER,
        session_id=session,
        agent="words",
        turn=run_id,
        created_at=1.0,
        continues=head,
        surface="chat",
        first_position=first.position,
        legs=[Leg(first_seq=1, created_at=1.0)],
    )
    record = Session(id=session, owner=OWNER, agent="words", created_at=1.0, updated_at=1.0, head=head)
    await store.create_run(NewRun(run=run, session=record, event=first, fingerprint=run_id, expected_head=head))
    state = RunState()
    state.advance(created)
    events: list[Event] = []
    changes: list[RowChange] = []
    record_at_end = msgspec.structs.replace(run, status="completed", ended_at=time.time(), last_seq=len(bodies) + 1)
    for n, body in enumerate(bodies, 2):
        event = Event(n, position + n, float(position), 1, body)
        change = row_change(run_id, event, state)
        state.advance(body)
        events.append(event)
        changes += [change] if change else []
        if len(events) == BATCH or n == len(bodies) + 1:
            batch = Append(
                owner=OWNER,
                session_id=session,
                run_id=run_id,
                at=time.time(),
                events=events,
                changes=changes,
                run=record_at_end if n == len(bodies) + 1 else None,
            )
            await store.append(batch)
            events, changes = [], []
    return position + len(bodies) + 1
