"""What a request asks for, as every protocol's `request.py` says it to the engine."""

from __future__ import annotations

from typing import Any

import msgspec

from runstone.core.items import Item
from runstone.core.runs import BusyPolicy, Decision, DisconnectPolicy, RecoveryPolicy, Settings


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Start a turn, or answer a waiting run.

    `agent`: what the wire calls the model or the agent, None for the default one. `input`: the turn's items; their `item_id`s
    are `in1`, `in2` ... in the order of the request; parts may still carry `content`. A `ToolResult` in it answers a call
    that the client ran, or a pending approval with the same call id: the engine finds out which.
    `decisions` answer pending approvals by id. `session_id` is created on first use unless `session_must_exist`.
    `continues`: the run that this turn follows, None for the session's head. `reuses_history`: `input` repeats the session's
    history, of which only what follows the last assistant message is new (Chat with a named session);
    `replaces_history` says that a difference is meant and begins a branch.
    `echo`: protocol -> values that its encoder needs to answer this request.
    `body`: the request as it came, without `stream`; with the route and the agent it is the fingerprint for attaching.
    """

    surface: str
    input: list[Item]
    agent: str | None = None
    session_id: str | None = None
    session_must_exist: bool = False
    continues: str | None = None
    decisions: list[Decision] = []
    settings: Settings = Settings()
    metadata: dict[str, Any] = {}
    store: bool = True
    background: bool = False
    reuses_history: bool = False
    replaces_history: bool = False
    busy: BusyPolicy | None = None
    disconnect: DisconnectPolicy | None = None
    recovery: RecoveryPolicy | None = None
    run_id: str | None = None
    idempotency_key: str | None = None
    echo: dict[str, Any] = {}
    body: bytes = b""
