"""What this server can, truthfully: Hermes' document for its clients, and in `agents` each agent's abilities with reasons."""

from __future__ import annotations

from typing import Any, Final, get_args

from runstone.core.runs import BusyPolicy, DisconnectPolicy, RecoveryPolicy
from runstone.protocols.hermes.errors import error_body
from runstone.protocols.hermes.objects import Served, abilities, capabilities
from runstone.server.calls import Call
from runstone.server.errors import JsonResponse
from runstone.server.routing import Route
from runstone.version import __version__


async def document(call: Call) -> JsonResponse:
    """`GET /v1/capabilities`: features are those of the default agent."""
    engine, config = call.engine, call.config
    served = Served(
        requires_key=bool(config.server.keys),
        model=engine.default_agent,
        cors=bool(config.server.origins),
        idempotency_seconds=int(config.engine.idempotency_ttl),
        websocket=True,
    )
    body = capabilities(engine.agents[engine.default_agent].capabilities, served)
    body["agents"] = {name: _agent(call, name) for name in engine.agents}
    body["policies"] = {
        "busy": {"words": list(get_args(BusyPolicy)), "default": config.engine.busy},
        "disconnect": {"words": list(get_args(DisconnectPolicy)), "default": config.engine.disconnect},
        "recovery": {"words": list(get_args(RecoveryPolicy)), "default": config.engine.recovery},
    }
    return JsonResponse(body)


def _agent(call: Call, name: str) -> dict[str, Any]:
    runner = call.engine.agents[name]
    return {"framework": runner.name, "capabilities": abilities(runner.capabilities)}


async def health(call: Call) -> JsonResponse:
    """The process answers; without a key."""
    return JsonResponse({"status": "ok", "platform": "hermes-agent", "server": "runstone", "version": __version__})


ROUTES: Final = [
    Route(method="GET", path="/v1/capabilities", handler=document, errors=error_body),
    *(Route(method="GET", path=path, handler=health, is_public=True) for path in ("/health", "/v1/health")),
]
