"""What the process keeps of a session in use: who may admit a start, and the next position."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from runstone.storage.base import EventLog


class Positions:
    """Hands out the positions of one session: rising, without repeats."""

    __slots__ = ("__weakref__", "_next")

    def __init__(self, next_position: int) -> None:
        self._next = next_position

    def next(self) -> int:
        """The next position; it counts as used."""
        value = self._next
        self._next = value + 1
        return value

    def peek(self) -> int:
        """What `next` will give."""
        return self._next


class LiveSession:
    """One session in use in this process. `lock` is held while a start is admitted or the session's rows are changed."""

    __slots__ = ("__weakref__", "lock", "positions")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.positions: Positions | None = None


class LiveSessions:
    """The sessions in use; one is forgotten when nobody holds it any more."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._live: WeakValueDictionary[tuple[str, str], LiveSession] = WeakValueDictionary()

    def get(self, owner: str, session_id: str) -> LiveSession:
        """The session's place in this process. Hold the object as long as it is used."""
        live = self._live.get((owner, session_id))
        if live is None:
            live = self._live[(owner, session_id)] = LiveSession()
        return live

    async def positions(self, owner: str, session_id: str, live: LiveSession) -> Positions:
        """The counter, set from the store on first use."""
        if live.positions is None:
            last = await self._log.last_position(owner, session_id)
            if live.positions is None:
                live.positions = Positions(last + 1)
        return live.positions
