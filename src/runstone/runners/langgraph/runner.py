"""Runs of a LangGraph graph.

Rules: history is ours. Each run works on a thread of its own, begun from the transcript and dropped when the run has ended,
unless the graph keeps its memory itself (`memory="framework"`). A pause is a checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.types import Command

from runstone.core.runs import Decision, RunRequest
from runstone.errors import RunnerError
from runstone.runners.agent_context import stored_bytes
from runstone.runners.base import NATIVE, Capabilities, Capability, RunContext, no
from runstone.runners.compose import Composer
from runstone.runners.hooks import RunnerOptions, prepared_state, with_contexts
from runstone.runners.langgraph.graphs import Graph, Savers, Source, is_factory, is_graph, with_saver
from runstone.runners.langgraph.messages import instructions_message, langchain_messages
from runstone.runners.langgraph.pauses import (
    BREAKPOINT,
    approval_id,
    asks,
    interrupt_of,
    resume_values,
    undecided,
)
from runstone.runners.langgraph.steering import Boundary, can_take, is_between_turns, steer_capability
from runstone.runners.langgraph.stream import MODES, Teller
from runstone.runners.payload import chat_rows, runner_payload, tool_dict


class LangGraphRunner:
    """One graph."""

    name = "langgraph"

    def __init__(self, graph: Any, options: RunnerOptions | None = None) -> None:
        """A runner for a graph, compiled or not, or for a function that makes it.

        Raises:
            ConfigError: the graph cannot be served.
        """
        self._options = options or RunnerOptions()
        self._source = Source(graph, needs_messages=self._options.hooks.prepare_state is None)
        self._savers = Savers(self._options.checkpoint_path)
        self.memory = self._options.memory
        self.capabilities = _capabilities(self._source.known, self._options)

    async def run(self, request: RunRequest, context: RunContext) -> None:
        """Work until the graph ends or interrupts itself."""
        config = self._config(request)
        async with self._source.graph(config) as made:
            saver = await self._savers.saver()
            graph = with_saver(made, saver)
            has_paused = False
            try:
                has_paused = await self._run(graph, config, request, context)
            except asyncio.CancelledError:
                has_paused = True  # Recovery may go on from here.
                raise
            except GraphRecursionError as e:
                raise RunnerError("the graph took more steps than its limit allows") from e
            finally:
                if not has_paused and self.memory == "run" and graph.checkpointer is saver:
                    await saver.adelete_thread(config["configurable"]["thread_id"])

    async def _run(self, graph: Graph, config: dict[str, Any], request: RunRequest, context: RunContext) -> bool:
        """Begin or go on; whether the graph has paused."""
        if request.decisions:
            return await self._resumed(graph, config, request, context)
        work = await self._first_input(graph, config, request, context)
        return await self._work(graph, config, work, request, context)

    async def close(self) -> None:
        """Close the checkpoints and leave the factory's context."""
        await self._savers.close()
        await self._source.close()

    def _config(self, request: RunRequest) -> dict[str, Any]:
        settings = request.settings
        thread = request.session_id if self.memory == "framework" else request.run_id
        values = {
            "thread_id": f"{request.owner}/{thread}",
            "session_id": request.session_id,
            "model": settings.model,
            "model_options": settings.model_options or None,
            "model_metadata": settings.model_metadata or None,
            "user": settings.user,
            "tools": [tool_dict(tool) for tool in settings.tools] or None,
        }
        return {
            "configurable": {key: value for key, value in values.items() if value is not None},
            "metadata": {"runstone_run_id": request.run_id},
        }

    # -- what goes in

    async def _first_input(self, graph: Graph, config: dict[str, Any], request: RunRequest, context: RunContext) -> Any:
        """The state to begin with; None when an earlier attempt left a checkpoint to go on from."""
        if request.attempt > 1 and graph.checkpointer:
            if request.transcript and (await graph.aget_state(_runnable(config))).next:
                return None
            if self.memory == "run":
                await graph.checkpointer.adelete_thread(config["configurable"]["thread_id"])  # type: ignore[union-attr]
        state = await self._state(request, context)
        if request.settings.instructions and isinstance(state.get("messages"), list):
            message = instructions_message(request.settings.instructions)
            state = {**state, "messages": [message, *state["messages"]]}
        return state

    async def _state(self, request: RunRequest, context: RunContext) -> dict[str, Any]:
        hooks = self._options.hooks
        if hooks.prepare_state is None:
            items = request.input if self.memory == "framework" else [*request.history, *request.input]
            return {"messages": langchain_messages(items, await stored_bytes(items, context))}
        payload = await with_contexts(await context.payload() or runner_payload(request), hooks)
        state = await prepared_state(hooks.prepare_state, payload)
        if isinstance(state.get("messages"), list):
            state = {**state, "messages": chat_rows(state["messages"])}
        return state

    async def _resumed(self, graph: Graph, config: dict[str, Any], request: RunRequest, context: RunContext) -> bool:
        """Go on with the decisions; whether the graph has paused again."""
        state = await graph.aget_state(_runnable(config))
        decisions = list(request.decisions)
        if any(decision.approval_id.startswith(BREAKPOINT) for decision in decisions):
            if not state.next:
                raise RunnerError("the graph does not wait for this decision any more: its checkpoint is gone")
            approved = all(decision.decision == "approved" for decision in decisions)
            return await self._work(graph, config, None, request, context) if approved else False
        # What a middleware asked for together is answered together, so the rest is waited for here.
        for id in undecided(decisions, request.asked, state.interrupts):
            decisions.append(await context.decision(id))
        values = resume_values(state.interrupts, decisions, request.asked)
        return await self._work(graph, config, Command(resume=values), request, context, decisions)

    # -- the work

    async def _work(
        self,
        graph: Graph,
        config: dict[str, Any],
        work: Any,
        request: RunRequest,
        context: RunContext,
        decisions: list[Decision] | None = None,
    ) -> bool:
        """Stream the graph; whether it has paused."""
        teller = Teller(request, context)
        boundary = Boundary(context, graph.interrupt_before_nodes) if can_take(graph) else None
        while True:
            stream: Any = graph.astream(
                work,
                _runnable(config),
                stream_mode=MODES,  # type: ignore[arg-type]
                subgraphs=True,
                interrupt_before=boundary,
            )
            async with contextlib.aclosing(stream):
                async for namespace, mode, data in stream:
                    teller.take(namespace, mode, data)
                    if context.must_wait:
                        await context.wait()
            if boundary is None or not (boundary.taken() and teller.is_at_breakpoint):
                break
            teller.is_at_breakpoint = False
            work = await _steered(graph, config, teller, context)
        teller.close()
        if teller.interrupts:
            _ask(teller, request, context, decisions or [])
        elif teller.is_at_breakpoint:
            await _ask_at_breakpoint(graph, config, context)
        return bool(teller.interrupts) or teller.is_at_breakpoint


def _runnable(config: dict[str, Any]) -> Any:
    """A config of its own for each use: LangGraph writes into it."""
    return {**config, "configurable": dict(config["configurable"])}


def _ask(teller: Teller, request: RunRequest, context: RunContext, decided: list[Decision]) -> None:
    """Ask for what the graph waits for, but for what it waited for before and still does."""
    composer = Composer(context)
    before = {interrupt_of(id) for id in request.asked} - {interrupt_of(decision.approval_id) for decision in decided}
    for interrupt in teller.interrupts_in_order():
        if interrupt.id in before:
            continue
        for part, ask in enumerate(asks(interrupt, teller.calls_of(interrupt.id))):
            composer.approval(
                ask.kind,
                approval_id=approval_id(interrupt.id, part, request.asked),
                call_id=ask.call_id,
                name=ask.name,
                arguments=ask.arguments,
                prompt=ask.prompt,
                choices=ask.choices,
                schema=ask.schema,
            )


async def _steered(graph: Graph, config: dict[str, Any], teller: Teller, context: RunContext) -> Any:
    """What to go on with at a boundary: the user's new messages, or nothing where they would part a call and its result."""
    state = await graph.aget_state(_runnable(config))
    if not is_between_turns(state.values.get("messages") or []):
        return None
    teller.break_off()
    items = context.take_input()
    return Command(update={"messages": langchain_messages(items, await stored_bytes(items, context))})


async def _ask_at_breakpoint(graph: Graph, config: dict[str, Any], context: RunContext) -> None:
    """A graph compiled to stop before or after some nodes asks whether to go on."""
    state = await graph.aget_state(_runnable(config))
    prompt = f"Go on with {', '.join(state.next)}?" if state.next else "Go on?"
    Composer(context).approval("confirm", approval_id=f"{BREAKPOINT}{context.approval_id()}", prompt=prompt)


def _capabilities(graph: Any, options: RunnerOptions) -> Capabilities:
    saver = getattr(graph, "checkpointer", None)
    durable: Capability = NATIVE
    if isinstance(saver, InMemorySaver) or (not saver and options.checkpoint_path is None):
        durable = no("the graph's checkpoints live in this process")
    approvals = no("the graph was compiled without checkpoints") if saver is False else NATIVE
    models = NATIVE if options.models or options.model_override else no("the graph does not say that it reads a model")
    return Capabilities(
        approvals=approvals,
        durable_approvals=approvals if saver is False else durable,
        checkpoints=approvals if saver is False else durable,
        regenerate=no("the graph keeps the session's memory itself") if options.memory == "framework" else NATIVE,
        steer=steer_capability(graph, makes_own_state=options.hooks.prepare_state is not None),
        client_tools=NATIVE if options.client_tools else no("the graph has its own tools"),
        models=models,
        model_names=options.models,
    )


def runner_for(obj: Any, options: RunnerOptions) -> LangGraphRunner | None:
    """A runner when `obj` is a graph or a function that makes one."""
    if options.hooks.graph_factory is not None:
        return LangGraphRunner(options.hooks.graph_factory, options)
    return LangGraphRunner(obj, options) if is_graph(obj) or is_factory(obj) else None
