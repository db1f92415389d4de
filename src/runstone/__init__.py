"""Runstone serves an agent over every protocol that agent front ends speak, with durable runs behind all of them.

The names below are what users import. Those that need a framework or the server are loaded when they are first used, so that
a module which only declares an agent stays light.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from runstone.errors import (
    AlreadyDecided,
    BackendError,
    ConfigError,
    Conflict,
    CursorExpired,
    CursorUnknown,
    IdempotencyConflict,
    InvalidRequest,
    LimitExceeded,
    NotAllowed,
    NotFound,
    ProtocolError,
    RequestError,
    RunActive,
    RunEnded,
    RunnerError,
    RunstoneError,
    StorageError,
    StorageUnavailable,
    Unsupported,
)
from runstone.version import __version__

if TYPE_CHECKING:
    from runstone.app import AgentContext, App, SyncAgentContext, agent, serve
    from runstone.config import Config

__all__ = [
    "AgentContext",
    "AlreadyDecided",
    "App",
    "BackendError",
    "Config",
    "ConfigError",
    "Conflict",
    "CursorExpired",
    "CursorUnknown",
    "IdempotencyConflict",
    "InvalidRequest",
    "LimitExceeded",
    "NotAllowed",
    "NotFound",
    "ProtocolError",
    "RequestError",
    "RunActive",
    "RunEnded",
    "RunnerError",
    "RunstoneError",
    "StorageError",
    "StorageUnavailable",
    "SyncAgentContext",
    "Unsupported",
    "__version__",
    "agent",
    "serve",
]

#: Where the names are that are loaded when they are used.
_LAZY = {
    "AgentContext": "runstone.runners.agent_context",
    "App": "runstone.app",
    "Config": "runstone.config",
    "SyncAgentContext": "runstone.runners.threads",
    "agent": "runstone.runners.function",
    "serve": "runstone.app",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'runstone' has no attribute {name!r}")
    value = getattr(_import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
