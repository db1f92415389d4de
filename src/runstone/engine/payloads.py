"""The payload that user functions and hooks of the second contract see; made on demand, during the run."""

from __future__ import annotations

from typing import Any, Protocol

from runstone.core.runs import Run, RunRequest
from runstone.runners.base import RunContext


class Payloads(Protocol):
    """Makes payloads."""

    async def payload(self, run: Run, request: RunRequest, context: RunContext) -> dict[str, Any]:
        """The payload of one run; attachments are extracted here, with progress in the run's log."""
        ...


class NoPayloads:
    """For agents that need none."""

    async def payload(self, run: Run, request: RunRequest, context: RunContext) -> dict[str, Any]:
        """Nothing."""
        return {}
