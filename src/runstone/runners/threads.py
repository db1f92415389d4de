"""Blocking agents: a thread per call, whose words reach the loop in order.

Rules: the thread never touches the run. What it says is queued, at most `ROOM` ahead of the loop; what it asks for blocks it
until the loop has answered. A thread cannot be killed: once the run is stopped, its next word raises in it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from runstone.core.content import FilePart, ImagePart
from runstone.core.runs import RunRequest
from runstone.errors import RunnerError
from runstone.runners.agent_context import AgentContext, AgentFacts, Answer, Step, ToolRun

ROOM: Final = 256
T = TypeVar("T")


class AgentStopped(BaseException):
    """The run was stopped. Not an `Exception`, so that an agent that goes on after any error does not go on after this."""


class Threads:
    """A limit of threads that run agents, and how many do. A thread that was left alone counts until it ends."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.busy = 0
        self._free: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a free place and take it."""
        while self.busy >= self.limit:
            waiter = asyncio.get_running_loop().create_future()
            self._free.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
        self.busy += 1

    def give_back(self) -> None:
        """One thread has ended."""
        self.busy -= 1
        self._wake()

    def _wake(self) -> None:
        while self._free:
            waiter = self._free.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class _Ask(Generic[T]):
    """Something that the thread wants done on the loop, and where its answer goes."""

    __slots__ = ("answer", "do")

    def __init__(self, do: Callable[[], T]) -> None:
        self.do = do
        self.answer: Future[Any] = Future()

    async def settle(self) -> None:
        try:
            value: Any = self.do()
            if asyncio.iscoroutine(value):
                value = await value
        except Exception as error:
            self.answer.set_exception(error)
        except BaseException:
            self.answer.cancel()
            raise
        else:
            self.answer.set_result(value)


class _End:
    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


_Entry = str | Callable[[], None] | _Ask[Any] | _End


class Bridge:
    """From one thread to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[_Entry] = deque()
        self._ready = asyncio.Event()
        self._is_signalled = False
        self._room = threading.Event()
        self._is_closed = False

    # -- the thread's side

    def say(self, said: str | Callable[[], None]) -> None:
        """Queue text, or something to do that gives no answer; blocks while the loop is far behind."""
        if self._is_closed:
            raise AgentStopped
        if len(self._queue) >= ROOM:
            self._room.clear()
            # Looked at again: the loop may have made room between the two lines.
            if len(self._queue) >= ROOM and not self._is_closed:
                self._room.wait()
        self._put(said)

    def ask(self, do: Callable[[], Any]) -> Any:
        """Have `do` done on the loop, after all that was said, and what it gives (awaited when it is a coroutine)."""
        if self._is_closed:
            raise AgentStopped
        entry = _Ask(do)
        self._put(entry)
        try:
            return entry.answer.result()
        except CancelledError:
            raise AgentStopped from None

    def _put(self, entry: _Entry) -> None:
        self._queue.append(entry)
        if self._is_closed and isinstance(entry, _Ask):
            entry.answer.cancel()
        elif not self._is_signalled:
            self._is_signalled = True
            self._loop.call_soon_threadsafe(self._ready.set)

    def run(self, call: Callable[[], None], ended: Callable[[], None]) -> None:
        """The thread's whole life."""
        error: BaseException | None = None
        try:
            call()
        except BaseException as raised:  # Whatever it is, it ends this thread only.
            error = raised
        try:
            self._put(_End(error))
            self._loop.call_soon_threadsafe(ended)
        except RuntimeError:
            # The loop is closed: the server has ended and nobody counts any more.
            return

    # -- the loop's side

    async def pump(self, text: Callable[[str], None], pause: Callable[[], Any]) -> None:
        """Do what the thread says until it ends; raises what the agent raised."""
        queue = self._queue
        while True:
            await self._ready.wait()
            self._ready.clear()
            self._is_signalled = False
            while queue:
                entry = queue.popleft()
                if isinstance(entry, str):
                    text(entry)
                elif isinstance(entry, _Ask):
                    self._room.set()
                    await entry.settle()
                elif isinstance(entry, _End):
                    _raise(entry.error)
                    return
                else:
                    entry()
                if (waiting := pause()) is not None:
                    self._room.set()
                    await waiting
            self._room.set()

    def close(self) -> None:
        """Nobody listens any more: the thread's next word raises `AgentStopped` in it."""
        self._is_closed = True
        while self._queue:
            entry = self._queue.popleft()
            if isinstance(entry, _Ask):
                entry.answer.cancel()
        self._room.set()


def _raise(error: BaseException | None) -> None:
    if isinstance(error, Exception):
        raise error
    if error is not None:
        raise RunnerError(f"the agent raised {type(error).__name__!r}") from error


def start_thread(bridge: Bridge, call: Callable[[], None], ended: Callable[[], None], name: str) -> None:
    """Run `call` in a thread that does not keep the process alive."""
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(bridge.run, call, ended), name=name, daemon=True)
    thread.start()


class SyncAgentContext(AgentFacts):
    """The run, as a blocking agent sees it: as `AgentContext`, with `with` for `async with` and without `await`."""

    def __init__(self, request: RunRequest, inner: AgentContext, bridge: Bridge) -> None:
        super().__init__(request)
        self._inner = inner
        self._bridge = bridge
        self.inbox = SyncInbox(inner, bridge)

    def text(self, chunk: str) -> None:
        """Say more of the answer, as `yield chunk` does."""
        self._bridge.say(chunk)

    def reasoning(self, chunk: str) -> None:
        """Say more of the thinking."""
        self._bridge.say(lambda: self._inner.reasoning(chunk))

    def custom(self, name: str, data: Any) -> None:
        """Say something of your own: JSON data under a name."""
        self._bridge.ask(lambda: self._inner.custom(name, data))

    def step(self, *, model: str | None = None, author: str | None = None) -> SyncStep:
        """`with context.step(model=...) as step`: what is said inside belongs to one model call. One at a time."""
        return SyncStep(self._inner.step(model=model, author=author), self._bridge)

    def usage(self, **tokens: int | None) -> None:
        """Tokens of the current model call: `input_tokens`, `output_tokens`, `total_tokens` and so on."""
        self._bridge.ask(lambda: self._inner.usage(**tokens))

    def finish(self, reason: str) -> None:
        """Why the model stopped: `stop`, `length` (cut off) or `content_filter`."""
        self._bridge.ask(lambda: self._inner.finish(reason))

    def tool(self, name: str, arguments: Mapping[str, Any] | str, call_id: str | None = None) -> SyncToolRun:
        """`with context.tool(name, arguments) as call`: a call that runs in here, and its one result."""
        return SyncToolRun(self._inner.tool(name, arguments, call_id), self._bridge)

    def call_tool_of_client(self, name: str, arguments: Mapping[str, Any] | str, call_id: str | None = None) -> str:
        """Ask the client to run one of its tools, and the call's id; return soon after."""
        return str(self._bridge.ask(lambda: self._inner.call_tool_of_client(name, arguments, call_id)))

    def approve(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        prompt: str | None = None,
        call_id: str | None = None,
    ) -> Answer:
        """Ask whether `name` may run with `arguments`; blocks until somebody decides."""
        answer: Answer = self._bridge.ask(lambda: self._inner.approve(name, arguments, prompt=prompt, call_id=call_id))
        return answer

    def ask(self, prompt: str, *, choices: list[str] | None = None, schema: dict[str, Any] | None = None) -> Any:
        """Ask a question; what was answered, None when the question was declined or ran out of time."""
        return self._bridge.ask(lambda: self._inner.ask(prompt, choices=choices, schema=schema))

    def payload(self) -> dict[str, Any]:
        """The turn under the payload names (`input_content`, `attachments`, `attachment_results` ...)."""
        fields: dict[str, Any] = self._bridge.ask(self._inner.payload)
        return fields

    def read(self, part: Mapping[str, Any] | str | ImagePart | FilePart) -> bytes:
        """The bytes of an attached file: of a block of a message, or of an entry of `attachments`."""
        content: bytes = self._bridge.ask(lambda: self._inner.read(part))
        return content


class SyncInbox:
    """New messages of the user for a run that is going on. Reading it is what makes them delivered."""

    def __init__(self, inner: AgentContext, bridge: Bridge) -> None:
        self._inner = inner
        self._bridge = bridge

    def take(self) -> list[dict[str, Any]]:
        """What came since the last call, as messages; empty when nothing did."""
        messages: list[dict[str, Any]] = self._bridge.ask(self._inner.inbox.take)
        return messages


class SyncStep:
    """One model call of an agent that knows its own."""

    def __init__(self, inner: Step, bridge: Bridge) -> None:
        self._inner = inner
        self._bridge = bridge

    def usage(self, **tokens: int | None) -> None:
        """Tokens of this call, as its provider counted them."""
        self._bridge.ask(lambda: self._inner.usage(**tokens))

    def finish(self, reason: str) -> None:
        """Why the model stopped."""
        self._bridge.ask(lambda: self._inner.finish(reason))

    def __enter__(self) -> SyncStep:
        self._bridge.ask(self._inner.begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._bridge.ask(self._inner.end)


class SyncToolRun:
    """A tool that runs inside the agent."""

    def __init__(self, inner: ToolRun, bridge: Bridge) -> None:
        self._inner = inner
        self._bridge = bridge

    @property
    def call_id(self) -> str:
        """The call's id."""
        return self._inner.call_id

    def progress(self, data: Any) -> None:
        """Something to show while the tool runs; JSON data."""
        self._bridge.ask(lambda: self._inner.progress(data))

    def result(self, value: Any) -> None:
        """What the tool gave: text, or a value that JSON can carry. Once."""
        self._bridge.ask(lambda: self._inner.result(value))

    def fail(self, reason: str) -> None:
        """The tool failed, and what the model and the user may read about it. Once."""
        self._bridge.ask(lambda: self._inner.fail(reason))

    def __enter__(self) -> SyncToolRun:
        self._bridge.ask(self._inner.begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            self._bridge.ask(lambda: self._inner.end(error))
