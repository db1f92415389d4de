"""Approvals that are decided by clients which keep no ids and repeat the whole conversation in each request.

Such a request names neither a response nor a conversation: which run it answers is known by the approvals alone. Once they are
decided, they are repeated like everything else, and then mean nothing.
"""

from __future__ import annotations

from typing import Final

from runstone.core.runs import Run
from runstone.protocols.responses.request import ResponsesRequest, answering, without_decisions
from runstone.server.calls import Call

_PAGE: Final = 100


async def placed(call: Call, request: ResponsesRequest) -> ResponsesRequest:
    """`request` with the run that its decisions answer; one that names its place by itself is returned as it is."""
    start = request.start
    if not start.decisions or start.session_id is not None or request.previous_response_id is not None:
        return request
    run = await _waiting(call, {decision.approval_id for decision in start.decisions})
    if run is not None:
        return answering(request, run)
    # With nothing after them they are meant as answers, and the engine says that nobody asked.
    return request if request.is_answer else without_decisions(request)


async def _waiting(call: Call, approval_ids: set[str]) -> Run | None:
    """The owner's newest run that waits for one of the approvals."""
    before = None
    while True:
        runs = await call.engine.store.runs(call.owner, statuses=["waiting"], limit=_PAGE, before=before)
        for run in runs:
            if run.store and not approval_ids.isdisjoint(asked.approval_id for asked in run.approvals):
                return run
        if len(runs) < _PAGE:
            return None
        before = runs[-1].id
