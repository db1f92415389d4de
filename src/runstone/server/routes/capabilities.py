"""What this server can, truthfully: Hermes' document for its clients, and in `agents` each agent's abilities with reasons."""

from __future__ import annotations

from typing import Any, Final, get_args

from runstone.config import AgentPolicies
from runstone.core.runs import BusyPolicy, DisconnectPolicy, RecoveryPolicy
from runstone.engine.engine import Engine
from runstone.protocols.hermes.errors import error_body
from runstone.protocols.hermes.objects import Served, abilities, capabilities
from runstone.server.calls import Call
from runstone.server.errors import JsonResponse
from runstone.server.routes.subscription import formats
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
    body["formats"] = sorted(formats(call))
    return JsonResponse(body)


def _agent(call: Call, name: str) -> dict[str, Any]:
    runner = call.engine.agents[name]
    return {
        "framework": runner.name,
        "capabilities": abilities(runner.capabilities),
        "models": runner.capabilities.model_names,
        "policies": _policies(call.engine, name),
    }


def _policies(engine: Engine, agent: str) -> dict[str, Any]:
    """The words that a start of the agent may say, and what holds when it says none."""
    config, can = engine.config, engine.agents[agent].capabilities
    own = config.agents.get(agent, AgentPolicies())
    busy = [word for word in get_args(BusyPolicy) if word != "steer" or can.steer.level != "none"]
    recovery = [word for word in get_args(RecoveryPolicy) if word != "resume" or can.checkpoints.level != "none"]
    return {
        "busy": {"words": busy, "default": own.busy or config.busy},
        "disconnect": {"words": list(get_args(DisconnectPolicy)), "default": own.disconnect or config.disconnect},
        "recovery": {"words": recovery, "default": own.recovery or config.recovery},
    }


async def health(call: Call) -> JsonResponse:
    """The process answers; without a key."""
    return JsonResponse({"status": "ok", "platform": "hermes-agent", "server": "runstone", "version": __version__})


ROUTES: Final = [
    Route(method="GET", path="/v1/capabilities", handler=document, errors=error_body),
    *(Route(method="GET", path=path, handler=health, is_public=True) for path in ("/health", "/v1/health")),
]
