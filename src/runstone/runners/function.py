"""Plain functions as agents.

An agent is a callable of `(messages)` or `(messages, context)`: an async generator, a coroutine function, a generator, or a
function. It says text with `yield`, with its return value, or through the context. Blocking ones run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import Any, Final, TypeVar, overload

import msgspec

from runstone.core.content import TextPart
from runstone.core.items import Message
from runstone.core.runs import RunRequest
from runstone.errors import ConfigError, RunnerError
from runstone.runners.agent_context import AgentContext, stored_bytes
from runstone.runners.base import NATIVE, Capabilities, Capability, RunContext, no
from runstone.runners.hooks import RunnerOptions
from runstone.runners.payload import chat_messages
from runstone.runners.threads import Bridge, SyncAgentContext, Threads, start_thread

AnyAgent = TypeVar("AnyAgent", bound=Callable[..., Any])
_MARK: Final = "__runstone__"
_EXPECTED: Final = "an agent yields or returns text or None, and says everything else through its context"
_SIGNATURE: Final = "expected (messages) or (messages, context)"


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says of itself."""

    name: str | None = None
    steers: bool = False
    approvals: bool = False
    client_tools: bool = False
    model_override: bool = False
    models: list[str] = []


@overload
def agent(function: AnyAgent, /) -> AnyAgent: ...


@overload
def agent(
    *,
    name: str | None = None,
    steers: bool = False,
    approvals: bool = False,
    client_tools: bool = False,
    models: Sequence[str] = (),
    model_override: bool = False,
) -> Callable[[AnyAgent], AnyAgent]: ...


def agent(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    steers: bool = False,
    approvals: bool = False,
    client_tools: bool = False,
    models: Sequence[str] = (),
    model_override: bool = False,
) -> Any:
    """Say what a plain agent can do, so that clients are offered it.

    Args:
        function: The agent, when the decorator stands without brackets.
        name: What the agent is called, instead of the name of its file or variable.
        steers: It reads `context.inbox` while it runs.
        approvals: It uses `context.approve` or `context.ask`.
        client_tools: It honours `context.tools`.
        models: The models that a request may ask for; implies `model_override`.
        model_override: It honours `context.model`.
    """
    declared = Declared(
        name=name,
        steers=steers,
        approvals=approvals,
        client_tools=client_tools,
        models=list(models),
        model_override=model_override or bool(models),
    )

    def mark(marked: AnyAgent) -> AnyAgent:
        setattr(marked, _MARK, declared)
        return marked

    return mark if function is None else mark(function)


def declared_by(agent: Any) -> Declared:
    """What the decorator, or attributes of the same names, say of `agent`."""
    declared: Declared = getattr(agent, _MARK, None) or Declared()
    attributes = {name: bool(getattr(agent, name, False)) for name in ("steers", "approvals", "client_tools")}
    return msgspec.structs.replace(
        declared, **{name: True for name, is_set in attributes.items() if is_set and not getattr(declared, name)}
    )


def is_declared(agent: Any) -> bool:
    """Whether the decorator was used on `agent`."""
    return isinstance(getattr(agent, _MARK, None), Declared)


def capabilities_of(declared: Declared, *, is_async: bool) -> Capabilities:
    """What clients are offered."""
    stop = NATIVE
    if not is_async:
        reason = "a blocking agent stops at its next word; until then its thread runs on unheard"
        stop = Capability(level="emulated", reason=reason)
    return Capabilities(
        stop=stop,
        steer=NATIVE if declared.steers else no("the agent does not read its inbox"),
        approvals=NATIVE if declared.approvals else no("the agent does not ask for approvals"),
        client_tools=NATIVE if declared.client_tools else no("the agent does not use tools that the client declares"),
        models=NATIVE if declared.model_override else no("the agent chooses its model itself"),
        model_names=declared.models,
    )


class FunctionRunner:
    """One plain agent."""

    name = "function"

    def __init__(self, agent: Callable[..., Any], options: RunnerOptions | None = None) -> None:
        """A runner for `agent`.

        Raises:
            ConfigError: it takes neither one nor two arguments.
        """
        self._options = options or RunnerOptions()
        self._agent = agent
        self._is_async = is_async(agent)
        self._takes_context = _takes_context(agent)
        self.threads = Threads(self._options.threads)
        self.capabilities = capabilities_of(declared_by(agent), is_async=self._is_async)

    async def run(self, request: RunRequest, context: RunContext) -> None:
        """Call the agent and say what it says."""
        mine = AgentContext(request, context, self._options.hooks)
        messages = await messages_of(request, context)
        try:
            if self._is_async:
                await self._run_async(mine, messages, context)
            else:
                await self._run_thread(mine, messages, context, request)
        except SystemExit as e:
            raise RunnerError("the agent called exit") from e
        mine.composer.close()

    async def close(self) -> None:
        """Nothing is held."""

    def _call(self, messages: list[dict[str, Any]], context: Any) -> Any:
        return self._agent(messages, context) if self._takes_context else self._agent(messages)

    async def _run_async(self, mine: AgentContext, messages: list[dict[str, Any]], context: RunContext) -> None:
        result = self._call(messages, mine)
        if inspect.isawaitable(result):
            result = await result
        if not isinstance(result, AsyncIterator):
            mine.composer.text(returned_text(result))
            return
        text = mine.composer.text
        async with contextlib.aclosing(result) if isinstance(result, AsyncGenerator) else contextlib.nullcontext():
            async for chunk in result:
                text(chunk if type(chunk) is str else yielded_text(chunk))
                if context.must_wait:
                    await context.wait()

    async def _run_thread(
        self, mine: AgentContext, messages: list[dict[str, Any]], context: RunContext, request: RunRequest
    ) -> None:
        bridge = Bridge(asyncio.get_running_loop())
        theirs = SyncAgentContext(request, mine, bridge)

        def call() -> None:
            result = self._call(messages, theirs)
            if not isinstance(result, Iterator):
                bridge.say(returned_text(result))
                return
            try:
                for chunk in result:
                    bridge.say(chunk if type(chunk) is str else yielded_text(chunk))
            finally:
                if isinstance(result, Generator):
                    result.close()

        await self.threads.take()
        start_thread(bridge, call, self.threads.give_back, f"agent {request.run_id}")
        try:
            await bridge.pump(mine.composer.text, lambda: context.wait() if context.must_wait else None)
        finally:
            bridge.close()


async def messages_of(request: RunRequest, context: RunContext) -> list[dict[str, Any]]:
    """History and input as Chat messages, the request's instructions first."""
    items = [*request.history, *request.input]
    blobs = await stored_bytes(items, context)
    if request.settings.instructions:
        parts = [TextPart(text=request.settings.instructions)]
        items.insert(0, Message(item_id="instructions", role="system", parts=list(parts)))
    return chat_messages(items, blobs)


def yielded_text(chunk: Any) -> str:
    """The text of what an agent yielded.

    Raises:
        RunnerError: it is neither text nor None.
    """
    if chunk is None:
        return ""
    if isinstance(chunk, str):
        return str(chunk)
    raise RunnerError(f"the agent yielded a {type(chunk).__name__!r}; {_EXPECTED}")


def returned_text(result: Any) -> str:
    """The text of what an agent returned: text, None, or a Chat message of the assistant.

    Raises:
        RunnerError: it is something else.
    """
    if isinstance(result, dict) and isinstance(result.get("content"), str):
        return str(result["content"])
    if result is None or isinstance(result, str):
        return result or ""
    if inspect.iscoroutine(result):
        result.close()
        raise RunnerError("the agent returned a coroutine; declare it `async def`")
    raise RunnerError(f"the agent returned a {type(result).__name__!r}; {_EXPECTED}")


def is_async(agent: Any) -> bool:
    """Whether calling `agent` gives a coroutine or an async generator."""
    function = _function(agent)
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _function(agent: Any) -> Any:
    while isinstance(agent, functools.partial):
        agent = agent.func
    if not inspect.isroutine(agent):
        agent = agent.__call__
    return inspect.unwrap(agent)


def _takes_context(agent: Any) -> bool:
    """Whether the second argument is for the context: it is required, or called `context`."""
    positional: list[inspect.Parameter] = []
    for parameter in inspect.signature(agent).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return True
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append(parameter)
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise ConfigError(f"the agent needs the keyword {parameter.name!r}; {_SIGNATURE}")
    required = sum(parameter.default is parameter.empty for parameter in positional)
    if not positional or required > 2:
        raise ConfigError(f"the agent takes {required} arguments; {_SIGNATURE}")
    return required == 2 or (len(positional) > 1 and positional[1].name == "context")


def runner_for(obj: Any, options: RunnerOptions) -> FunctionRunner | None:
    """A runner when `obj` is a function or an object that can be called; None when it is not, or is a class."""
    if not callable(obj) or isinstance(obj, type):
        return None
    return FunctionRunner(obj, options)
