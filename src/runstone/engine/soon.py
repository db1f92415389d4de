"""Things to do at the end of this round of the event loop, all by one entry in its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Soon:
    """Calls what it is given, in order, once the callbacks that are ready now have run."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def __call__(self, call: Callable[[], None]) -> None:
        """Have `call` called soon."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._run)
        self._due.append(call)

    def _run(self) -> None:
        due, self._due = self._due, []
        loop = asyncio.get_running_loop()
        for call in due:
            try:
                call()
            except Exception as e:  # one that fails must not keep the others from their turn
                loop.call_exception_handler({"message": "a call at the end of the round failed", "exception": e})
