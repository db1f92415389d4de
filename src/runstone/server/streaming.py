"""A run as an event stream: events to frames to as few writes as there are batches.

Rules: headers leave at once, the first bytes soon after; a keep-alive stands between frames, never after the end; the body
ends with the last frame. A stream that the store cut off has no end mark, so that no client takes it for complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runstone.core.events import Event
from runstone.engine.reader import Reader
from runstone.errors import CursorUnknown, StorageError
from runstone.protocols.base import Cursor, Encoder, Frame
from runstone.protocols.sse import HEADERS, MEDIA_TYPE, PING, to_bytes

_log = logging.getLogger("runstone.server")
#: Events that are encoded before others get their turn: well under 5 ms.
_SLICE: Final = 512
_MAX_WRITE_BYTES: Final = 64 * 1024
#: A stream that has nothing to say yet says that it is there.
_FIRST_PING_AFTER: Final = 0.1
RawHeaders = list[tuple[bytes, bytes]]


class Prepare(Protocol):
    """Makes ready what encoding some events needs (stored bytes)."""

    async def __call__(self, events: list[Event]) -> None:
        """Done before the events are encoded."""
        ...


@contextlib.asynccontextmanager
async def listening(receive: Receive, gone: Callable[[], None]) -> AsyncIterator[None]:
    """While the block runs, call `gone` when the client leaves."""

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone()

    task = asyncio.create_task(listen(), name="listen")
    try:
        yield
    finally:
        task.cancel()


class EventStream(Response):
    """The response. It owns the reader and closes it, whatever happens. `before` and `after` stand around all frames."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        reader: Reader,
        encoder: Encoder,
        *,
        run_id: str,
        ping_after: float,
        headers: Mapping[str, str] | None = None,
        prepare: Prepare | None = None,
        on_gone: Callable[[], None] | None = None,
        before: bytes = b"",
        after: bytes = b"",
    ) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers: RawHeaders = [
            (name.encode(), value.encode())
            for name, value in {"content-type": MEDIA_TYPE, **HEADERS, **(headers or {})}.items()
        ]
        self._reader = reader
        self._encoder = encoder
        self._run_id = run_id
        self._ping_after = ping_after
        self._prepare = prepare
        self._on_gone = on_gone
        self._before = before
        self._after = after
        self._left: list[bytes] = []
        self._is_gone = False
        self._is_due = False
        self._is_silent = True
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # -- before the stream: what the client has already

    async def skip_to(self, cursor: Cursor) -> None:
        """Leave out what a reader at `cursor` has.

        Raises:
            CursorUnknown: the stream never gave such an id.
        """
        seq, k = cursor.seq, cursor.k

        def take(event: Event, frames: list[Frame]) -> bool:
            if event.seq < seq:
                return False
            if k is not None:
                if k >= len(frames) - 1:
                    raise CursorUnknown(f"{seq}.{k}", expected=f"a frame's id; event {seq} has no such frame")
                self._left = [to_bytes(frame) for frame in frames[k + 1 :]]
            return True

        if seq == 0 and k is not None:
            raise CursorUnknown(f"0.{k}", expected="a frame's id; there is no event 0")
        if seq > 0:
            await self._skip(take)

    async def skip_frames(self, count: int) -> None:
        """Leave out the first `count` frames.

        Raises:
            CursorUnknown: there are not that many yet.
        """
        made = 0

        def take(event: Event, frames: list[Frame]) -> bool:
            nonlocal made
            made += len(frames)
            if made < count:
                return False
            self._left = [to_bytes(frame) for frame in frames[len(frames) - (made - count) :]]
            return True

        if count > 0 and not await self._skip(take):
            raise CursorUnknown(str(count - 1), expected=f"a number from 0 to {made - 1}")

    async def _skip(self, take: Callable[[Event, list[Frame]], bool]) -> bool:
        """Encode what there was when the reader was made, until `take` says that it has enough; whether it did."""
        reader, encoder = self._reader, self._encoder
        newest = reader.newest
        while reader.cursor < newest and not encoder.is_over:
            events = await reader.read()
            if not events:
                return False
            if self._prepare is not None:
                await self._prepare(events)
            for n, event in enumerate(events):
                reader.cursor = event.seq
                if take(event, encoder.encode(event)):
                    return True
                if encoder.is_over or event.seq >= newest:
                    return False
                if n % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
        return False

    # -- the stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            loop = asyncio.get_running_loop()
            self._sent_at = loop.time()
            self._timer = loop.call_later(min(_FIRST_PING_AFTER, self._ping_after), self._tick)
            async with listening(receive, self._gone):
                await self._pump(send)
        except StorageError as e:
            _log.error("run %s: a stream was cut: %s", self._run_id, e)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._reader.close()

    def close(self) -> None:
        """Give up a stream that was never sent."""
        self._reader.close()

    async def _pump(self, send: Send) -> None:
        reader, encoder, loop = self._reader, self._encoder, asyncio.get_running_loop()
        parts, self._left = [self._before, *self._left] if self._before else self._left, []
        while not (encoder.is_over or self._is_gone):
            if parts:
                await send({"type": "http.response.body", "body": b"".join(parts), "more_body": True})
                parts = []
                self._sent_at = loop.time()
                self._is_silent = False
            events = await reader.read()
            if self._is_gone:
                return
            if events is None:
                if self._is_due:
                    self._is_due = False
                    parts = [PING]
                continue
            if not events:
                break
            if self._prepare is not None:
                await self._prepare(events)
            if len(events) <= _SLICE:
                parts = self._encoder.wire(events)
                if len(parts) > 256:
                    parts = await self._sent_in_pieces(send, parts)
            else:
                parts = await self._sent_in_slices(send, events)
        if self._is_gone:
            return
        parts += [*(to_bytes(frame) for frame in encoder.end()), self._after]
        await send({"type": "http.response.body", "body": b"".join(parts), "more_body": False})

    async def _sent_in_slices(self, send: Send, events: list[Event]) -> list[bytes]:
        """Encode and send a long stretch bit by bit; the last bit is handed back."""
        parts: list[bytes] = []
        for start in range(0, len(events), _SLICE):
            parts = await self._sent_in_pieces(send, parts + self._encoder.wire(events[start : start + _SLICE]))
            if self._encoder.is_over or self._is_gone:
                break
            await asyncio.sleep(0)
        return parts

    async def _sent_in_pieces(self, send: Send, parts: list[bytes]) -> list[bytes]:
        """Send `parts` but for the last piece, in writes of about the largest size."""
        piece: list[bytes] = []
        size = 0
        for part in parts:
            if size > _MAX_WRITE_BYTES and not self._is_gone:
                await send({"type": "http.response.body", "body": b"".join(piece), "more_body": True})
                piece, size = [], 0
            piece.append(part)
            size += len(part)
        return piece

    # -- keep-alive, and clients that leave

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        silent = loop.time() - self._sent_at
        wait = self._ping_after
        if self._is_silent or silent >= self._ping_after:
            self._is_silent = False
            self._is_due = True
            self._sent_at = loop.time()
            self._reader.wake()
        else:
            wait -= silent
        self._timer = loop.call_later(wait, self._tick)

    def _gone(self) -> None:
        self._is_gone = True
        self._reader.wake()
        if self._on_gone is not None:
            self._on_gone()
