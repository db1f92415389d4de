"""What an agent says, as legal bodies.

Rules: one thing at a time, in the order it was said. Reasoning ends before text begins and the other way round; a call
ends both; a tool result ends the message, so text after it is a new one. Every item names its step: a source that knows
its model calls opens steps itself, any other gets one per stretch between tool results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from runstone.core.content import Part, TextPart
from runstone.core.events import (
    ApprovalRequested,
    ArgumentsDelta,
    Custom,
    ItemEnded,
    ItemStarted,
    ReasoningDelta,
    StepEnded,
    StepStarted,
    TextDelta,
    ToolProgress,
)
from runstone.core.items import Executor, FileItem, Message, Opaque, Reasoning, ToolCall, ToolResult
from runstone.core.runs import ApprovalKind, Usage
from runstone.core.serde import to_json
from runstone.errors import RunnerError
from runstone.runners.base import RunContext


class Call(msgspec.Struct):
    """A tool call from its start to its result. `result_id` is set once the tool runs."""

    item_id: str
    name: str
    executor: Executor
    step: str
    author: str | None
    is_open: bool = True
    result_id: str | None = None


def json_text(value: Any, *, of: str) -> str:
    """`value` as JSON text; a `str` is taken to be what is meant already. `of` says whose value it is, for the error.

    Raises:
        RunnerError: JSON has no form for it.
    """
    if isinstance(value, str):
        return value
    try:
        return to_json(value).decode()
    except UnicodeEncodeError:  # A lone surrogate; the engine replaces it in plain text.
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise RunnerError(f"{of} is a {type(value).__name__!r} that has no JSON form") from e


class Composer:
    """One voice of a run. Everything that it opened is closed by `close`.

    `calls` is shared by the voices of one run whose tools are answered elsewhere than they were called.
    """

    __slots__ = (
        "_author",
        "_context",
        "_emit",
        "_finish_reason",
        "_is_own_step",
        "_message",
        "_model",
        "_reasoning",
        "_step",
        "_step_author",
        "_usage",
        "calls",
    )

    def __init__(self, context: RunContext, *, calls: dict[str, Call] | None = None) -> None:
        self._context = context
        self._emit = context.emit
        self.calls: dict[str, Call] = {} if calls is None else calls
        self._message: str | None = None
        self._reasoning: str | None = None
        self._author: str | None = None
        self._step: str | None = None
        self._step_author: str | None = None
        self._is_own_step = False
        self._finish_reason: str | None = None
        self._model: str | None = None
        self._usage: Usage | None = None

    # -- words

    def text(self, chunk: str, author: str | None = None) -> None:
        """More of the answer."""
        if not chunk:
            return
        if self._message is None or author != self._author:
            self._open_message(author)
        self._emit(TextDelta(item_id=self._message, text=chunk))  # type: ignore[arg-type]

    def reasoning(self, chunk: str, author: str | None = None) -> None:
        """More of the thinking."""
        if not chunk:
            return
        if self._reasoning is None or author != self._author:
            self._open_reasoning(author)
        self._emit(ReasoningDelta(item_id=self._reasoning, text=chunk))  # type: ignore[arg-type]

    def _open_message(self, author: str | None) -> None:
        step = self._ready(author)
        item_id = self._context.item_id()
        self._emit(ItemStarted(item_id=item_id, kind="message", step=step, author=self._speaker))
        self._message = item_id

    def _open_reasoning(self, author: str | None) -> None:
        step = self._ready(author)
        item_id = self._context.item_id()
        self._emit(ItemStarted(item_id=item_id, kind="reasoning", step=step, author=self._speaker))
        self._reasoning = item_id

    def _ready(self, author: str | None) -> str:
        """Close what is being said and give the step that the next item belongs to."""
        self.close_words()
        if self._step is not None and author != self._author and not self._is_own_step:
            self._end_step()
        self._author = author
        return self._step or self._start_step(author, None)

    @property
    def _speaker(self) -> str | None:
        """Who says what is being said: named with it, else with the step."""
        return self._author or self._step_author

    def close_words(self, *, opaque: Opaque | None = None) -> None:
        """End the message or the reasoning that is open. `opaque` is what its provider wants back with it."""
        if self._message is not None:
            id, self._message = self._message, None
            parts: list[Part] = [TextPart(text=self._context.open_text(id))]
            self._emit(
                ItemEnded(
                    item=Message(
                        item_id=id, role="assistant", parts=parts, step=self._step, author=self._speaker, opaque=opaque
                    )
                )
            )
        if self._reasoning is not None:
            id, self._reasoning = self._reasoning, None
            text = self._context.open_text(id)
            self._emit(
                ItemEnded(item=Reasoning(item_id=id, text=text, step=self._step, author=self._speaker, opaque=opaque))
            )

    def file(self, parts: Sequence[Part], author: str | None = None) -> None:
        """A file or image that the agent made."""
        step = self._ready(author)
        item_id = self._context.item_id()
        self._emit(ItemStarted(item_id=item_id, kind="file", step=step, author=self._speaker))
        self._emit(ItemEnded(item=FileItem(item_id=item_id, parts=list(parts), step=step, author=self._speaker)))

    def custom(self, name: str, data: Any) -> None:
        """Something that no word here covers."""
        self._emit(Custom(name=name, data=data))

    # -- steps

    def begin_step(self, author: str | None = None, branch: str | None = None) -> str:
        """A model call begins, and the step it is."""
        self.close()
        self._is_own_step = True
        return self._start_step(author, branch)

    def end_step(
        self, *, finish_reason: str | None = None, model: str | None = None, usage: Usage | None = None
    ) -> None:
        """The model call is over; nothing when none is open. What was noted before is kept unless said anew."""
        self.close_words()
        self._close_calls()
        self.note(finish_reason=finish_reason, model=model, usage=usage, opens_step=False)
        self._end_step()

    def note(
        self,
        *,
        finish_reason: str | None = None,
        model: str | None = None,
        usage: Usage | None = None,
        opens_step: bool = True,
    ) -> None:
        """Facts of the current model call, said when it ends. Usages add up. Opens a step when none is open."""
        if self._step is None:
            if not opens_step:
                return
            self._start_step(self._author, None)
        self._finish_reason = finish_reason or self._finish_reason
        self._model = model or self._model
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage.plus(usage)

    def _start_step(self, author: str | None, branch: str | None) -> str:
        step = self._context.step_id()
        self._author = self._step_author = author
        self._step = step
        self._emit(StepStarted(step=step, author=author, branch=branch))
        return step

    def _end_step(self) -> None:
        if self._step is None:
            return
        step, self._step, self._is_own_step = self._step, None, False
        ended = StepEnded(step=step, finish_reason=self._finish_reason, model=self._model, usage=self._usage)
        self._finish_reason = self._model = self._usage = None
        self._emit(ended)

    @property
    def step(self) -> str | None:
        """The step that is open."""
        return self._step

    # -- tools

    def tool_call(
        self,
        name: str,
        arguments: str | Mapping[str, Any],
        call_id: str | None = None,
        executor: Executor = "server",
        author: str | None = None,
    ) -> str:
        """A whole call, and its id."""
        text = json_text(arguments, of=f"the arguments of {name!r}")
        call_id = self.tool_call_started(name, call_id, executor, author)
        if text:
            self.tool_call_delta(call_id, text)
        self.tool_call_ended(call_id)
        return call_id

    def tool_call_started(
        self, name: str, call_id: str | None = None, executor: Executor = "server", author: str | None = None
    ) -> str:
        """A call whose arguments follow in pieces, and its id. Several may be open at once."""
        step = self._ready(author)
        call_id = call_id or self._context.call_id()
        item_id = self._context.item_id()
        self.calls[call_id] = Call(item_id=item_id, name=name, executor=executor, step=step, author=self._speaker)
        self._emit(
            ItemStarted(
                item_id=item_id,
                kind="tool_call",
                call_id=call_id,
                name=name,
                executor=executor,
                step=step,
                author=self._speaker,
            )
        )
        return call_id

    def tool_call_delta(self, call_id: str, text: str) -> None:
        """More of the JSON text of the arguments."""
        if text:
            self._emit(ArgumentsDelta(item_id=self.calls[call_id].item_id, text=text))

    def tool_call_ended(self, call_id: str, arguments: str | None = None) -> None:
        """The call is whole. `arguments`, when given, replace the pieces; none at all are `{}`."""
        call = self.calls[call_id]
        call.is_open = False
        text = arguments if arguments is not None else self._context.open_text(call.item_id)
        self._emit(
            ItemEnded(
                item=ToolCall(
                    item_id=call.item_id,
                    call_id=call_id,
                    name=call.name,
                    arguments=text or "{}",
                    executor=call.executor,
                    step=call.step,
                    author=call.author,
                )
            )
        )

    def tool_started(self, call_id: str) -> None:
        """The tool of a finished call begins to run; nothing when it runs already."""
        call = self.calls[call_id]
        if call.is_open:
            self.tool_call_ended(call_id)
        if call.result_id is None:
            call.result_id = self._context.item_id()
            self._emit(
                ItemStarted(
                    item_id=call.result_id,
                    kind="tool_result",
                    call_id=call_id,
                    name=call.name,
                    executor=call.executor,
                    step=call.step,
                    author=call.author,
                )
            )

    def tool_progress(self, call_id: str, data: Any) -> None:
        """What a running tool says before its result."""
        self.tool_started(call_id)
        self._emit(ToolProgress(call_id=call_id, data=data))

    def tool_result(self, call_id: str, output: str | Sequence[Part], is_error: bool = False) -> None:
        """What the call gave. Ends the message that is open and a step that nobody opened."""
        self.tool_started(call_id)
        call = self.calls.pop(call_id)
        self.close_words()
        parts: list[Part] = [TextPart(text=output)] if isinstance(output, str) else list(output)
        self._emit(
            ItemEnded(
                item=ToolResult(
                    item_id=call.result_id or "",
                    call_id=call_id,
                    name=call.name,
                    output=parts,
                    is_error=is_error,
                    executor=call.executor,
                    step=call.step,
                    author=call.author,
                )
            )
        )
        if not self._is_own_step:
            self._end_step()

    def _close_calls(self) -> None:
        for call_id, call in list(self.calls.items()):
            if call.is_open and call.step == self._step:
                self.tool_call_ended(call_id)

    # -- pauses and the end

    def break_off(self) -> None:
        """End what is being said, because something else comes in between. A step of the source's own goes on."""
        self.close_words()
        self._close_calls()
        if not self._is_own_step:
            self._end_step()

    def approval(
        self,
        kind: ApprovalKind,
        *,
        approval_id: str | None = None,
        call_id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        prompt: str | None = None,
        choices: list[str] | None = None,
        schema: dict[str, Any] | None = None,
    ) -> str:
        """Ask somebody to decide, and the approval's id. What is being said ends here."""
        self.break_off()
        approval_id = approval_id or self._context.approval_id()
        self._emit(
            ApprovalRequested(
                approval_id=approval_id,
                kind=kind,
                call_id=call_id or self._context.call_id(),
                name=name,
                arguments=arguments,
                prompt=prompt,
                choices=choices,
                schema=schema,
            )
        )
        return approval_id

    def close(self) -> None:
        """End what this voice has open: words, calls that are being written, the step.

        Results stay open: their tools run on.
        """
        self.end_step()
