"""Where a graph comes from, and where its checkpoints go."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel

from runstone.errors import ConfigError, RunnerError

Graph = Pregel[Any, Any, Any, Any]
Factory = Callable[..., Any]


def is_graph(obj: Any) -> bool:
    """Whether `obj` is a graph, compiled or not."""
    return isinstance(obj, Pregel | StateGraph)


def is_factory(obj: Any) -> bool:
    """Whether `obj` is a function that makes a graph: it says so in its annotation, or it takes no messages.

    A function without arguments, or one whose first argument is a config, makes something; a plain agent takes messages.
    """
    if not inspect.isroutine(obj):
        return False
    function = inspect.unwrap(obj)
    try:
        made = get_type_hints(function).get("return")
    except (NameError, TypeError):
        made = None
    if isinstance(made, type) and issubclass(made, Pregel | StateGraph):
        return True
    parameters = list(inspect.signature(function).parameters.values())
    return not parameters or parameters[0].name in ("config", "runtime")


def checked(graph: Any, *, needs_messages: bool) -> Any:
    """`graph` when it can be served.

    Raises:
        ConfigError: it is no graph, its saver only works in blocking code, or its state has no `messages`.
    """
    if not is_graph(graph):
        raise ConfigError(f"the factory gave a {type(graph).__name__!r}, expected a LangGraph graph")
    channels = graph.channels if isinstance(graph, CompiledStateGraph | StateGraph) else {"messages": None}
    if needs_messages and "messages" not in channels:
        raise ConfigError(
            f"the graph's state has {sorted(k for k in channels if not k.startswith(('__', 'branch:')))!r} and no "
            "'messages'; write a function prepare_state(payload) beside it that makes its first state"
        )
    saver = getattr(graph, "checkpointer", None)
    if isinstance(saver, BaseCheckpointSaver) and _is_blocking(saver):
        raise ConfigError(
            f"the graph's saver {type(saver).__name__!r} works in blocking code only; use its async sibling, "
            "or none at all to have the graph's checkpoints kept for you"
        )
    return graph


def _is_blocking(saver: BaseCheckpointSaver[Any]) -> bool:
    kind = type(saver)
    return kind.aget_tuple is BaseCheckpointSaver.aget_tuple or (
        kind.__module__ == "langgraph.checkpoint.sqlite" and kind.__name__ == "SqliteSaver"
    )


class Savers:
    """Our own checkpoints: a SQLite file, or memory without one. Opened on first use, on the loop that uses it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._saver: BaseCheckpointSaver[Any] | None = InMemorySaver() if path is None else None
        self._lock = asyncio.Lock()
        self._held = contextlib.AsyncExitStack()

    async def saver(self) -> BaseCheckpointSaver[Any]:
        """The saver.

        Raises:
            RunnerError: the library for SQLite checkpoints is missing.
        """
        async with self._lock:
            if self._saver is None:
                self._saver = await self._opened(str(self._path))
            return self._saver

    async def _opened(self, path: str) -> BaseCheckpointSaver[Any]:
        try:
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
        except ImportError as e:
            raise RunnerError("checkpoints in a file need langgraph-checkpoint-sqlite; see runstone[langgraph]") from e
        saver = await self._held.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
        await saver.setup()
        return saver

    async def close(self) -> None:
        """Close the file."""
        await self._held.aclose()


class Source:
    """A graph, or a function that makes it: plain or async, a context manager or not, once or anew for each run.

    A function with an argument is called for each run with the run's config; one without is called once.
    """

    def __init__(self, obj: Any, *, needs_messages: bool) -> None:
        self._needs_messages = needs_messages
        self._factory: Factory | None = None if is_graph(obj) else obj
        self._graph: Any = checked(obj, needs_messages=needs_messages) if is_graph(obj) else None
        self._takes_config = self._factory is not None and bool(inspect.signature(self._factory).parameters)
        self._lock = asyncio.Lock()
        self._held = contextlib.AsyncExitStack()

    @property
    def known(self) -> Any:
        """The graph when it is there already, None when a function will make it."""
        return self._graph

    @contextlib.asynccontextmanager
    async def graph(self, config: dict[str, Any]) -> Any:
        """The graph for one run."""
        if self._takes_config:
            async with contextlib.AsyncExitStack() as held:
                yield await self._made(held, config)
            return
        async with self._lock:
            if self._graph is None:
                self._graph = await self._made(self._held)
        yield self._graph

    async def _made(self, held: contextlib.AsyncExitStack, *arguments: Any) -> Any:
        assert self._factory is not None
        made = self._factory(*arguments)
        if inspect.isawaitable(made):
            made = await made
        if hasattr(made, "__aenter__"):
            made = await held.enter_async_context(made)
        elif hasattr(made, "__enter__"):
            made = held.enter_context(made)
        return checked(made, needs_messages=self._needs_messages)

    async def close(self) -> None:
        """Leave the context that the graph was made in."""
        await self._held.aclose()


def with_saver(graph: Any, saver: BaseCheckpointSaver[Any]) -> Graph:
    """The graph, compiled, with `saver` unless it has one or wants none."""
    compiled: Graph = graph.compile() if isinstance(graph, StateGraph) else graph
    return compiled if compiled.checkpointer is not None else compiled.copy(update={"checkpointer": saver})
