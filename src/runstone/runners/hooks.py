"""Optional functions beside an agent, and the options a runner is made with.

A hook is found by its name in the module of the agent, when the agent is loaded:

- `prepare_state(payload)` or `prepare_state(payload, session_context)`: the state that a graph with fields beyond
  `messages` starts from;
- `graph_factory(...)`: makes the graph, in place of the module's variable;
- `kb_context(payload)` and `memory_context(payload)`: async; what a knowledge base and a long-term memory know for this
  turn.

`ksadk_` before a name is accepted too, and wins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from runstone.errors import ConfigError, RunnerError

Hook = Callable[..., Any]
Memory = Literal["run", "framework"]
NAMES: Final = ("prepare_state", "graph_factory", "kb_context", "memory_context")


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """The hooks of one agent; None where it has none."""

    prepare_state: Hook | None = None
    graph_factory: Hook | None = None
    kb_context: Hook | None = None
    memory_context: Hook | None = None


class RunnerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How runners are made.

    Attributes:
        checkpoint_path: The SQLite file for the checkpoints of graphs without a saver of their own, None for memory.
        memory: `run`: each run gets a thread of its own, seeded from history. `framework`: one thread per session,
            whose state the graph keeps itself.
        threads: Most threads that run blocking agents at one time, per agent.
        models: The models that a request may ask for, empty when any name may be tried.
        model_override: The agent honours the model that a request asks for.
        client_tools: The agent honours the tools that a client declares.
        hooks: The agent's hooks.
    """

    checkpoint_path: Path | None = None
    memory: Memory = "run"
    threads: int = 64
    models: list[str] = []
    model_override: bool = False
    client_tools: bool = False
    hooks: Hooks = Hooks()


def hooks_in(namespace: dict[str, Any]) -> Hooks:
    """The hooks among the names of a module.

    Raises:
        ConfigError: a name is taken by something that cannot be called, or a context hook is not async.
    """
    found: dict[str, Hook] = {}
    for name in NAMES:
        hook = namespace.get(f"ksadk_{name}", namespace.get(name))
        if hook is None:
            continue
        if not callable(hook):
            raise ConfigError(f"the hook {name!r} is a {type(hook).__name__!r}, expected a function", option=name)
        if name.endswith("_context") and not inspect.iscoroutinefunction(hook):
            raise ConfigError(f"the hook {name!r} is not `async def`", option=name)
        found[name] = hook
    return Hooks(**found)


async def with_contexts(payload: dict[str, Any], hooks: Hooks) -> dict[str, Any]:
    """`payload` with `kb_context` and `memory_context` where hooks give some."""
    contexts = {
        name: await hook(payload)
        for name, hook in (("kb_context", hooks.kb_context), ("memory_context", hooks.memory_context))
        if hook is not None
    }
    return {**payload, **{name: value for name, value in contexts.items() if value is not None}}


async def prepared_state(hook: Hook, payload: dict[str, Any], *, is_resume: bool = False) -> dict[str, Any]:
    """What `prepare_state` makes of the payload; the hook may be async and may take the session's context too.

    Raises:
        RunnerError: it gave something other than a dict.
    """
    arguments: list[Any] = [payload]
    if _takes_two(hook):
        arguments = [
            {key: value for key, value in payload.items() if key not in ("kb_context", "memory_context")},
            {
                "session_id": payload["session_id"],
                "history": payload["history"],
                "is_resume": is_resume,
                "kb_context": payload.get("kb_context"),
                "memory_context": payload.get("memory_context"),
            },
        ]
    state = hook(*arguments)
    if inspect.isawaitable(state):
        state = await state
    if not isinstance(state, dict):
        raise RunnerError(f"prepare_state gave a {type(state).__name__!r}, expected a dict")
    return state


def _takes_two(hook: Hook) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(hook).parameters.values()
    return sum(parameter.kind in kinds for parameter in parameters) >= 2
