"""Requests that an official client sends again by itself.

When an answer is lost, such a client repeats the request without any key, and says only that it is a repetition. The first
one's run is still there, so an equal body from the same place soon after is answered by that run.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from typing import Final

from starlette.requests import Request

from runstone.core.commands import Start

_COUNT: Final = "x-stainless-retry-count"
_KEPT_FOR: Final = 60.0
_MOST: Final = 4_096


class Retries:
    """Starts of the last minute by clients that would repeat them."""

    def __init__(self) -> None:
        self._runs: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def run_of(self, owner: str, start: Start, request: Request) -> str | None:
        """The run of the request that this one repeats, None when it repeats none."""
        count = request.headers.get(_COUNT, "0")
        if count == "0" or start.run_id is not None or start.idempotency_key is not None:
            return None
        run_id, at = self._runs.get(_mark(owner, start, request), (None, 0.0))
        return run_id if time.monotonic() - at < _KEPT_FOR else None

    def note(self, owner: str, start: Start, request: Request, run_id: str) -> None:
        """Remember a start that may be repeated."""
        if request.headers.get(_COUNT) is None:
            return
        mark = _mark(owner, start, request)
        self._runs[mark] = (run_id, time.monotonic())
        self._runs.move_to_end(mark)
        if len(self._runs) > _MOST:
            self._runs.popitem(last=False)


def _mark(owner: str, start: Start, request: Request) -> bytes:
    host = request.client.host if request.client is not None else ""
    digest = hashlib.sha256()
    for part in (owner, start.surface, start.agent or "", host, request.headers.get("user-agent", "")):
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    digest.update(start.body)
    return digest.digest()
