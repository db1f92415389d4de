"""What a plain agent is given beside its messages.

Rule: one voice. What the agent says through the context and what it yields come out in the order it did so.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any

import msgspec

from runstone.core.content import FilePart, ImagePart
from runstone.core.events import Custom
from runstone.core.items import Item
from runstone.core.runs import Decision, RunRequest, Usage
from runstone.errors import NotFound, RunnerError
from runstone.runners.base import RunContext
from runstone.runners.compose import Composer, json_text
from runstone.runners.hooks import Hooks, with_contexts
from runstone.runners.payload import (
    blobs_in,
    bytes_of_data_url,
    chat_messages,
    input_text,
    runner_payload,
    tool_dict,
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody decided.

    Attributes:
        approved: Whether it may be done.
        arguments: What to run: those that were asked about, or those that the person put in their place.
        value: What was answered to a question.
        reason: Why, in the person's words.
        call_id: To be given to `context.tool`, so that the call is the one that was decided.
        decision: The word: approved, denied, answered, expired or withdrawn.
    """

    approved: bool
    arguments: dict[str, Any]
    value: Any = None
    reason: str | None = None
    call_id: str | None = None
    decision: str = "approved"


class AgentFacts:
    """What the request says, as attributes of the context.

    Attributes:
        run_id: The run.
        session_id: The session.
        model: The model that the request asks for, None when it leaves that to the agent.
        model_options: Options for the model's provider.
        model_metadata: What the client says about the model.
        instructions: Instructions of the request; they are the first message too.
        user: The end user, as the client names them.
        metadata: The request's own notes.
        tools: Tools that the client declared and runs itself, in Chat form.
        tool_choice: Which of them to use, as the client said it.
        input_text: Text of the newest user message.
    """

    def __init__(self, request: RunRequest) -> None:
        settings = request.settings
        self.run_id = request.run_id
        self.session_id = request.session_id
        self.model = settings.model
        self.model_options = settings.model_options
        self.model_metadata = settings.model_metadata
        self.instructions = settings.instructions
        self.user = settings.user
        self.metadata = request.metadata
        self.tools = [tool_dict(tool) for tool in settings.tools]
        self.tool_choice = settings.tool_choice
        self.input_text = input_text(request.input)


class AgentContext(AgentFacts):
    """The run, as an async agent sees it."""

    def __init__(self, request: RunRequest, context: RunContext, hooks: Hooks) -> None:
        super().__init__(request)
        self._request = request
        self._context = context
        self._hooks = hooks
        self._payload: dict[str, Any] | None = None
        self.composer = Composer(context)
        self.inbox = Inbox(context, self.composer)

    # -- words

    def text(self, chunk: str) -> None:
        """Say more of the answer, as `yield chunk` does."""
        self.composer.text(chunk)

    def reasoning(self, chunk: str) -> None:
        """Say more of the thinking."""
        self.composer.reasoning(chunk)

    def custom(self, name: str, data: Any) -> None:
        """Say something of your own: JSON data under a name."""
        self._context.emit(Custom(name=name, data=data))

    # -- model calls

    def step(self, *, model: str | None = None, author: str | None = None) -> Step:
        """`async with context.step(model=...) as step`: what is said inside belongs to one model call. One at a time."""
        return Step(self.composer, model, author)

    def usage(
        self,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        total_tokens: int | None = None,
        cached_tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> None:
        """Tokens of the current model call, as its provider counted them. Several add up."""
        self.composer.note(
            usage=Usage(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                total_tokens=total_tokens,
                cached_tokens=cached_tokens,
                reasoning_tokens=reasoning_tokens,
            )
        )

    def finish(self, reason: str) -> None:
        """Why the model stopped: `stop`, `length` (cut off) or `content_filter`."""
        self.composer.note(finish_reason=reason)

    # -- tools

    def tool(self, name: str, arguments: Mapping[str, Any] | str, call_id: str | None = None) -> ToolRun:
        """`async with context.tool(name, arguments) as call`: a call that runs in here, and its one result.

        An exception inside makes the result a failure and goes on.
        """
        return ToolRun(self.composer, name, arguments, call_id)

    def call_tool_of_client(self, name: str, arguments: Mapping[str, Any] | str, call_id: str | None = None) -> str:
        """Ask the client to run one of its tools, and the call's id; return soon after.

        The run is completed when the agent returns; the results come as messages of the next turn.
        """
        return self.composer.tool_call(name, arguments, call_id, executor="client")

    # -- people

    async def approve(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        prompt: str | None = None,
        call_id: str | None = None,
    ) -> Answer:
        """Ask whether `name` may run with `arguments`; the run waits until somebody decides."""
        call_id = call_id or self._context.call_id()
        text = json_text(arguments or {}, of=f"the arguments of {name!r}")
        approval_id = self.composer.approval("confirm", call_id=call_id, name=name, arguments=text, prompt=prompt)
        return _answer(await self._context.decision(approval_id), call_id, text)

    async def ask(self, prompt: str, *, choices: list[str] | None = None, schema: dict[str, Any] | None = None) -> Any:
        """Ask a question; what was answered, None when the question was declined or ran out of time."""
        approval_id = self.composer.approval("input", prompt=prompt, choices=choices, schema=schema)
        decision = await self._context.decision(approval_id)
        return decision.value if decision.decision in ("answered", "approved") else None

    # -- input

    async def payload(self) -> dict[str, Any]:
        """The turn under the payload names (`input_content`, `attachments`, `attachment_results` ...)."""
        if self._payload is None:
            fields = await self._context.payload() or runner_payload(self._request)
            self._payload = await with_contexts(fields, self._hooks)
        return self._payload

    async def read(self, part: Mapping[str, Any] | str | ImagePart | FilePart) -> bytes:
        """The bytes of an attached file: of a block of a message, or of an entry of `attachments`.

        Raises:
            RunnerError: it is an address elsewhere (never fetched), or has no bytes.
            NotFound: nobody stored such bytes.
        """
        if isinstance(part, ImagePart | FilePart):
            reference = part.blob or part.url or part.file_id
        else:
            reference = part if isinstance(part, str) else _reference(part)
        if not reference:
            raise RunnerError("this part has no bytes; expected an image or a file")
        if reference.startswith("data:"):
            content = bytes_of_data_url(reference)
            if content is None:
                raise RunnerError("this part's data URL is damaged")
            return content
        if "://" in reference:
            raise RunnerError(f"{reference[:200]!r} is an address elsewhere; it is not fetched")
        return await self._context.blob(reference)


async def stored_bytes(items: Iterable[Item], context: RunContext) -> dict[str, bytes]:
    """The bytes that `items` show, by their reference; a file that was deleted since stays a reference."""
    found: dict[str, bytes] = {}
    for reference in blobs_in(items):
        with contextlib.suppress(NotFound):
            found[reference] = await context.blob(reference)
    return found


def _reference(block: Mapping[str, Any]) -> str | None:
    """Where the bytes of a block are: Chat's, Responses' and the payload's forms."""
    inner = block.get("image_url") or block.get("file") or block
    if isinstance(inner, str):
        return inner
    for key in ("url", "file_data", "file_id", "file_uri", "file_url"):
        if isinstance(inner, Mapping) and isinstance(inner.get(key), str):
            return str(inner[key])
    return None


def _answer(decision: Decision, call_id: str, asked: str) -> Answer:
    text = decision.arguments if decision.arguments is not None else asked
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise RunnerError("the arguments that were decided are not a JSON object")
    return Answer(
        approved=decision.decision == "approved",
        arguments=arguments,
        value=decision.value,
        reason=decision.reason,
        call_id=call_id,
        decision=decision.decision,
    )


class Inbox:
    """New messages of the user for a run that is going on. Reading it is what makes them delivered."""

    def __init__(self, context: RunContext, composer: Composer) -> None:
        self._context = context
        self._composer = composer

    async def take(self) -> list[dict[str, Any]]:
        """What came since the last call, as messages; empty when nothing did."""
        if not self._context.has_input:
            return []
        self._composer.break_off()
        items = self._context.take_input()
        return chat_messages(items, await stored_bytes(items, self._context))

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """The messages that are there; ends when there are no more."""
        while messages := await self.take():
            for message in messages:
                yield message


class Step:
    """One model call of an agent that knows its own."""

    def __init__(self, composer: Composer, model: str | None, author: str | None) -> None:
        self._composer = composer
        self._model = model
        self._author = author
        self._id: str | None = None

    def usage(
        self,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        total_tokens: int | None = None,
        cached_tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> None:
        """Tokens of this call, as its provider counted them. Several add up."""
        if self._id == self._composer.step:
            self._composer.note(
                usage=Usage(
                    input_tokens=input_tokens,
                    output_tokens=output_tokens,
                    total_tokens=total_tokens,
                    cached_tokens=cached_tokens,
                    reasoning_tokens=reasoning_tokens,
                )
            )

    def finish(self, reason: str) -> None:
        """Why the model stopped: `stop`, `length` (cut off) or `content_filter`."""
        if self._id == self._composer.step:
            self._composer.note(finish_reason=reason)

    def begin(self) -> None:
        """Open it."""
        self._id = self._composer.begin_step(self._author)
        self._composer.note(model=self._model)

    def end(self) -> None:
        """Close it, unless another step has taken its place."""
        if self._id is not None and self._id == self._composer.step:
            self._composer.end_step()

    async def __aenter__(self) -> Step:
        self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an exception it stays open: the run's end marks what was cut short.
        if error is None:
            self.end()


class ToolRun:
    """A tool that runs inside the agent."""

    def __init__(self, composer: Composer, name: str, arguments: Mapping[str, Any] | str, call_id: str | None) -> None:
        self._composer = composer
        self._is_answered = False
        self.name = name
        self.arguments = arguments
        self.call_id = call_id or ""

    def progress(self, data: Any) -> None:
        """Something to show while the tool runs; JSON data."""
        self._composer.tool_progress(self.call_id, data)

    def result(self, value: Any) -> None:
        """What the tool gave: text, or a value that JSON can carry. Once."""
        self._answer(json_text(value, of=f"the result of {self.name!r}"), is_error=False)

    def fail(self, reason: str) -> None:
        """The tool failed, and what the model and the user may read about it. Once."""
        self._answer(reason, is_error=True)

    def _answer(self, text: str, *, is_error: bool) -> None:
        if self._is_answered:
            raise RunnerError(f"the tool {self.name!r} has its result already")
        self._composer.tool_result(self.call_id, text, is_error)
        self._is_answered = True

    def begin(self) -> None:
        """Say the call and that it runs."""
        self.call_id = self._composer.tool_call(self.name, self.arguments, self.call_id or None)
        self._composer.tool_started(self.call_id)

    def end(self, error: BaseException | None) -> None:
        """Give the result that was not given."""
        if self._is_answered:
            return
        if error is None:
            self._answer("", is_error=False)
        elif isinstance(error, RunnerError):
            self.fail(error.message)
        elif isinstance(error, Exception):
            self.fail(f"The tool failed ({type(error).__name__}).")

    async def __aenter__(self) -> ToolRun:
        self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(error)
