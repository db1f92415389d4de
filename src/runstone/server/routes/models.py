"""Models: the agents of this server by name, and the models that they let a request choose. Source: OpenAI API, "Models"."""

from __future__ import annotations

from typing import Any, Final

from runstone.engine.engine import Engine
from runstone.errors import NotFound
from runstone.server.calls import Call
from runstone.server.errors import JsonResponse
from runstone.server.routing import Route

#: The wire wants a time of creation, and an agent has none; the same one always is the least surprising.
_CREATED: Final = 0


def model_names(engine: Engine) -> list[str]:
    """Every word that `model` may be, agents first, each once."""
    declared = [name for runner in engine.agents.values() for name in runner.capabilities.model_names]
    return list(dict.fromkeys([*engine.agents, *declared]))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "runstone"}


async def list_models(call: Call) -> JsonResponse:
    """All of them."""
    return JsonResponse({"object": "list", "data": [_model(name) for name in model_names(call.engine)]})


async def get_model(call: Call) -> JsonResponse:
    """One of them; its name may have slashes."""
    name = call.params["model"]
    if name not in model_names(call.engine):
        raise NotFound("model", name, param="model")
    return JsonResponse(_model(name))


ROUTES: Final = [
    Route(method="GET", path="/v1/models", handler=list_models),
    Route(method="GET", path="/v1/models/{model:path}", handler=get_model),
]
