"""Random legal runs, for property tests of every codec.

`runs()` gives events from `run_created` on that the lifecycle accepts; `Shape` switches off what a test cannot use.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from runstone.core.content import DataPart, Part, TextPart
from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    AttemptStarted,
    Body,
    Custom,
    Event,
    InputReceived,
    InputSettled,
    ItemEnded,
    ItemReplaced,
    ItemStarted,
    ReasoningDelta,
    RunContinued,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    StepEnded,
    StepStarted,
    TextDelta,
    ToolProgress,
)
from runstone.core.items import Message, Reasoning, ToolCall, ToolResult, user_message
from runstone.core.lifecycle import OpenItem, RunState, closing
from runstone.core.runs import RunFailure, Usage

AT = 1_760_000_000.0


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What may happen in a run.

    `rewrites`: an item may end as, or be replaced by, another text than its deltas. `parallel`: several messages may
    grow at once. `open_end`: the run may stop anywhere, without an outcome.
    """

    rewrites: bool = True
    parallel: bool = True
    client_tools: bool = True
    approvals: bool = True
    steering: bool = True
    attempts: bool = True
    open_end: bool = True
    actions: int = 25


PLAIN = Shape(rewrites=False, attempts=False, open_end=False)


def texts(*, min_size: int = 0) -> st.SearchStrategy[str]:
    """Text that breaks weak framing: line ends of every kind, quotes, NUL, letters of several bytes."""
    awkward = st.sampled_from(
        ["\n", "\r\n", "\n\nevent: done\ndata: {}\n\n", "\u2028", "\u0085", "\x00", '"', "你好", "🙂", " "]
    )
    letters = st.text(st.characters(codec="utf-8"), max_size=5)
    pieces = st.lists(st.one_of(letters, awkward), min_size=min_size, max_size=3)
    return pieces.map("".join).filter(lambda text: len(text) >= min_size)


class _Script:
    """A run being written: every body passes the lifecycle before it is kept."""

    def __init__(self, draw: st.DrawFn, shape: Shape) -> None:
        self.draw = draw
        self.shape = shape
        self.state = RunState()
        self.bodies: list[Body] = []
        self._count = 0
        self._discarded = 0

    def say(self, body: Body) -> None:
        self.state.advance(body)
        self.bodies.append(body)

    def name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def pick(self, choices: list[Any]) -> Any:
        return self.draw(st.sampled_from(choices))

    def opened(self, *kinds: str) -> list[OpenItem]:
        return [item for item in self.state.open_items.values() if item.started.kind in kinds]

    @property
    def step(self) -> str | None:
        return next(reversed(self.state.open_steps), None)

    # -- actions; each is possible where `possible` lists it

    def possible(self) -> list[Any]:
        """The actions that are legal here. One is always there."""
        actions: list[Any] = [self.custom]
        state, shape = self.state, self.shape
        if not state.open_steps:
            actions.append(self.start_step)
        if state.open_steps and not state.open_items:
            actions.append(self.end_step)
        if shape.parallel or not self.opened("message", "reasoning"):
            actions += [self.start_message, self.start_reasoning]
        actions.append(self.start_call)
        if state.open_items:
            actions += [self.grow] * 4 + [self.end_item] * 2
        if state.calls and not self.opened("message", "reasoning") and self.answerable():
            actions += [self.start_result] * 2
        if self.opened("tool_result"):
            actions.append(self.progress)
        if shape.rewrites and self.opened("message", "reasoning", "tool_call"):
            actions.append(self.replace)
        if shape.approvals:
            actions.append(self.ask)
        if state.approvals:
            actions.append(self.decide)
            if not state.open_items:
                actions.append(self.pause)
        if shape.steering:
            actions.append(self.receive)
        if state.inputs:
            actions.append(self.settle)
        if shape.attempts and state.attempt < 3:
            actions.append(self.restart)
        return actions

    def answerable(self) -> list[ToolCall]:
        running = {item.started.call_id for item in self.opened("tool_result")}
        return [call for call in self.state.calls.values() if call.executor == "server" and call.call_id not in running]

    def custom(self) -> None:
        self.say(Custom(name="note", data={"n": self._count}))

    def start_step(self) -> None:
        self.say(StepStarted(step=self.name("s")))

    def end_step(self) -> None:
        usage = self.draw(st.none() | st.builds(Usage, input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 9)))
        self.say(StepEnded(step=self.step or "", usage=usage))

    def start_message(self) -> None:
        self.say(ItemStarted(item_id=self.name("i"), kind="message", step=self.step))

    def start_reasoning(self) -> None:
        self.say(ItemStarted(item_id=self.name("i"), kind="reasoning", step=self.step))

    def start_call(self) -> None:
        executors: list[Any] = ["server", "client"] if self.shape.client_tools else ["server"]
        self.say(
            ItemStarted(
                item_id=self.name("i"),
                kind="tool_call",
                step=self.step,
                call_id=self.name("call_"),
                name=self.pick(["weather", "search"]),
                executor=self.pick(executors),
            )
        )

    def start_result(self) -> None:
        call = self.pick(self.answerable())
        self.say(
            ItemStarted(
                item_id=self.name("i"), kind="tool_result", step=call.step, call_id=call.call_id, name=call.name
            )
        )

    def grow(self) -> None:
        growing = self.opened("message", "reasoning", "tool_call")
        if not growing:
            return self.end_item()
        started = self.pick(growing).started
        kinds: dict[str, Any] = {"message": TextDelta, "reasoning": ReasoningDelta, "tool_call": ArgumentsDelta}
        return self.say(kinds[started.kind](item_id=started.item_id, text=self.draw(texts())))

    def rest(self, opened: OpenItem) -> str:
        """How the item ends: as its deltas, with more, or, with `rewrites`, otherwise."""
        ways = ["same", "same", "more", *(["other"] if self.shape.rewrites else [])]
        match self.pick(ways):
            case "same":
                return opened.text
            case "more":
                return opened.text + self.draw(texts(min_size=1))
            case _:
                return self.draw(texts())

    def end_item(self) -> None:
        opened: OpenItem = self.pick(list(self.state.open_items.values()))
        self.say(ItemEnded(item=self.final(opened, self.rest(opened))))

    def final(self, opened: OpenItem, text: str) -> Message | Reasoning | ToolCall | ToolResult:
        started = opened.started
        match started.kind:
            case "reasoning":
                return Reasoning(item_id=started.item_id, step=started.step, text=text)
            case "tool_call":
                return ToolCall(
                    item_id=started.item_id,
                    step=started.step,
                    call_id=started.call_id or "",
                    name=started.name or "",
                    arguments=text,
                    executor=started.executor or "server",
                )
            case "tool_result":
                data: list[Part] = [DataPart(data={"temp": 20})]
                words: list[Part] = [TextPart(text=self.draw(texts()))]
                return ToolResult(
                    item_id=started.item_id,
                    step=started.step,
                    call_id=started.call_id or "",
                    name=started.name,
                    output=self.pick([data, words]),
                    is_error=self.draw(st.booleans()),
                )
            case _:
                return Message(
                    item_id=started.item_id, step=started.step, role="assistant", parts=[TextPart(text=text)]
                )

    def replace(self) -> None:
        opened = self.pick(self.opened("message", "reasoning", "tool_call"))
        self.say(ItemReplaced(item=self.final(opened, self.rest(opened))))

    def progress(self) -> None:
        self.say(ToolProgress(call_id=self.pick(self.opened("tool_result")).started.call_id, data="half"))

    def ask(self) -> None:
        call = self.pick([None, *self.answerable()])
        self.say(
            ApprovalRequested(
                approval_id=self.name("appr_"),
                kind="confirm",
                call_id=call.call_id if call else self.name("call_"),
                name=call.name if call else None,
                arguments=call.arguments if call else None,
                prompt=self.draw(st.none() | texts()),
            )
        )

    def decide(self) -> None:
        decision = self.pick(["approved", "denied", "answered"])
        self.say(ApprovalDecided(approval_id=self.pick(list(self.state.approvals)), decision=decision, by="local"))

    def pause(self) -> None:
        for step in list(self.state.open_steps):
            self.say(StepEnded(step=step))
        pending = list(self.state.approvals)
        self.say(RunPaused(approvals=pending))
        if self.draw(st.booleans()):
            for approval_id in pending:
                self.say(ApprovalDecided(approval_id=approval_id, decision="approved"))
            self.say(RunContinued())

    def receive(self) -> None:
        input_id = self.name("in_")
        self.say(InputReceived(input_id=input_id, content=[user_message(input_id, self.draw(texts(min_size=1)))]))

    def settle(self) -> None:
        outcome = self.pick(["delivered", "returned"])
        self.say(InputSettled(input_id=self.pick(list(self.state.inputs)), outcome=outcome))

    def restart(self) -> None:
        discard = self.draw(st.integers(max(2, self._discarded), len(self.bodies)))
        self._discarded = len(self.bodies)
        self.say(AttemptStarted(attempt=self.state.attempt + 1, reason="worker_lost", discard_after_seq=discard))

    def end(self) -> None:
        has_client_calls = any(call.executor == "client" for call in self.state.calls.values())
        for body in closing(self.state):
            self.say(body)
        outcome = self.pick(["completed", "completed", "failed", "cancelled", "interrupted"])
        reasons: dict[str, Any] = {
            "completed": "client_tools"
            if has_client_calls
            else self.pick([None, "max_output_tokens", "content_filter"]),
            "cancelled": self.pick([None, "superseded"]),
            "interrupted": "worker_lost",
        }
        failure = RunFailure(code="agent_error", message="The agent failed.") if outcome == "failed" else None
        usage = self.draw(st.none() | st.just(Usage(input_tokens=3, output_tokens=4, total_tokens=7)))
        self.say(RunEnded(outcome=outcome, reason=reasons.get(outcome), error=failure, usage=usage))


@st.composite
def runs(draw: st.DrawFn, shape: Shape = Shape()) -> list[Event]:  # noqa: B008
    """Events of one run, numbered from 1, `position` equal to `seq`."""
    script = _Script(draw, shape)
    script.say(RunCreated(agent="echo", input=[user_message("in1", draw(texts(min_size=1)))]))
    if draw(st.integers(0, 19)) > 0:
        script.say(RunStarted())
        for _ in range(draw(st.integers(0, shape.actions))):
            if script.state.phase != "active":
                break
            script.pick(script.possible())()
    if not shape.open_end or draw(st.integers(0, 3)) > 0:
        script.end()
    return numbered(script.bodies)


def numbered(bodies: list[Body]) -> list[Event]:
    """`bodies` as the events 1, 2, 3 ... of a run, one second apart."""
    attempt = 1
    events = []
    for n, body in enumerate(bodies, 1):
        if isinstance(body, AttemptStarted):
            attempt = body.attempt
        events.append(Event(n, n, AT + n, attempt, body))
    return events
