"""A session as one stream of all its runs, over SSE or a WebSocket.

Rule: what is sent is what `Feed` gives; both transports only carry it. The stream ends when the session is deleted or the
server ends, never with a run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runstone.core.events import Event
from runstone.engine.engine import Engine
from runstone.engine.sessions import SessionReader
from runstone.errors import CursorExpired, CursorUnknown, LocalProtocolError, NotFound, StorageError
from runstone.protocols.base import Cursor, Frame
from runstone.protocols.native.encode import MakeEncoder, SessionEncoder, after_cursor, socket_text
from runstone.protocols.sse import HEADERS, MEDIA_TYPE, PING, json_line, to_bytes
from runstone.server.runs import header_of
from runstone.server.streaming import RawHeaders, listening
from runstone.storage.base import SessionEvent

_log = logging.getLogger("runstone.server")
#: Events that are encoded before others get their turn.
_SLICE: Final = 256
_GOING_AWAY: Final = 1001
_ONE_WAY: Final = 1003
_BROKEN: Final = 1011
_NORMAL: Final = 1000
SUBPROTOCOL: Final = "runstone"


class Feed:
    """What happens in a session, as frames; close it."""

    def __init__(
        self, engine: Engine, owner: str, reader: SessionReader, make: MakeEncoder, cursor: Cursor | None
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._reader = reader
        self._encoder = SessionEncoder(make)
        self._cursor = cursor if cursor is not None and cursor.k is not None else None
        self._read: list[SessionEvent] = []
        self._left: list[Frame] = []

    async def check_cursor(self) -> None:
        """See that a cursor inside an event is one that the stream gave.

        Raises:
            CursorUnknown: it is not.
        """
        cursor = self._cursor
        if cursor is None or cursor.k is None:
            return
        found = await self._reader.read() or []
        self._read = found[1:]
        frames = await self._frames(found[0]) if found and found[0].event.position == cursor.seq else []
        if cursor.k >= len(frames) - 1:
            raise CursorUnknown(f"{cursor.seq}.{cursor.k}", expected="the id of a frame")
        self._left = after_cursor(frames, found[0].event, cursor)

    async def frames(self) -> list[Frame] | None:
        """The next frames; empty when nothing comes any more, None when `wake` was called.

        Raises:
            CursorExpired: the events that follow are no longer kept.
            StorageError: the log cannot be read.
        """
        frames, self._left = self._left, []
        while not frames:
            if not self._read:
                found = await self._reader.read()
                if not found:
                    return None if found is None else []
                self._read = found
            events, self._read = self._read[:_SLICE], self._read[_SLICE:]
            for event in events:
                frames += await self._frames(event)
            if self._read:
                await asyncio.sleep(0)
        return frames

    async def _frames(self, found: SessionEvent) -> list[Frame]:
        run_id, event = found.run_id, found.event
        try:
            if not self._encoder.knows(run_id) and not await self._begin(run_id, event):
                return []
            return self._encoder.encode(run_id, event)
        except LocalProtocolError as e:
            # The run was compacted a moment ago.
            raise CursorExpired(str(event.position - 1), oldest=None) from e

    async def _begin(self, run_id: str, event: Event) -> bool:
        """Make the encoder ready for an event in the middle of a run; False when the run is deleted."""
        try:
            run = await self._engine.run(self._owner, run_id)
        except NotFound:
            return False
        if run.compacted or not run.legs:
            raise CursorExpired(str(event.position - 1), oldest=None)
        earlier: list[Event] = []
        seq = 0
        while seq < event.seq - 1:
            page = await self._engine.store.events(
                self._owner, run_id, after=seq, limit=self._engine.config.page_events
            )
            if not page:
                raise CursorExpired(str(event.position - 1), oldest=None)
            earlier += [known for known in page if known.seq < event.seq]
            seq = page[-1].seq
            await asyncio.sleep(0)
        self._encoder.begin(header_of(run, 0), earlier)
        return True

    @property
    def is_deleted(self) -> bool:
        """Whether the session is gone."""
        return self._reader.is_deleted

    def wake(self) -> None:
        """Let `frames` return None instead of waiting."""
        self._reader.wake()

    def close(self) -> None:
        """Stop following."""
        self._reader.close()


class _Following(Response):
    """Sends a feed. `raw_headers` are those of its head."""

    def __init__(self, feed: Feed, *, headers: Mapping[str, str]) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers: RawHeaders = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._feed = feed
        self._is_gone = False

    def _leave(self) -> None:
        self._is_gone = True
        self._feed.wake()


class SessionStream(_Following):
    """A feed as an event stream."""

    media_type = MEDIA_TYPE

    def __init__(self, feed: Feed, *, headers: Mapping[str, str], ping_after: float) -> None:
        super().__init__(feed, headers={"content-type": MEDIA_TYPE, **HEADERS, **headers})
        self._ping_after = ping_after
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            self._timer = asyncio.get_running_loop().call_later(self._ping_after, self._tick)
            async with listening(receive, self._leave):
                await self._pump(send)
        except StorageError as e:
            _log.error("a session's stream was cut: %s", e)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._feed.close()

    def _tick(self) -> None:
        """Have a keep-alive sent when nothing was for a while. One timer that looks, not one for every frame."""
        loop = asyncio.get_running_loop()
        left = self._sent_at + self._ping_after - loop.time()
        if left <= 0:
            self._feed.wake()
        self._timer = loop.call_later(left if left > 0 else self._ping_after, self._tick)

    async def _pump(self, send: Send) -> None:
        loop, part = asyncio.get_running_loop(), PING
        while not self._is_gone:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            self._sent_at = loop.time()
            try:
                frames = await self._feed.frames()
            except CursorExpired as e:
                part = to_bytes(_error(e))
                break
            if frames == []:
                part = b""
                break
            part = PING if frames is None else b"".join(map(to_bytes, frames))
        if not self._is_gone:
            await send({"type": "http.response.body", "body": part, "more_body": False})


class SessionSocket(_Following):
    """A feed as a WebSocket; each frame is one text message. The client says nothing: what it says closes the socket."""

    def __init__(self, feed: Feed, *, headers: Mapping[str, str], subprotocol: str | None) -> None:
        super().__init__(feed, headers=headers)
        self._subprotocol = subprotocol
        self._has_spoken = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept the socket and follow."""
        try:
            await receive()
            await send({"type": "websocket.accept", "headers": self.raw_headers, "subprotocol": self._subprotocol})
            listener = asyncio.create_task(self._listen(receive), name="listen")
            try:
                code = await self._pump(send)
            finally:
                listener.cancel()
            if not self._is_gone:
                await send({"type": "websocket.close", "code": code})
        except OSError:
            # The client left while something was sent to it.
            self._is_gone = True
        finally:
            self._feed.close()

    async def _listen(self, receive: Receive) -> None:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            self._leave()
        else:
            self._has_spoken = True
            self._feed.wake()

    async def _pump(self, send: Send) -> int:
        """Send what happens; the code to close with."""
        while not self._is_gone:
            if self._has_spoken:
                return _ONE_WAY
            try:
                frames = await self._feed.frames()
            except CursorExpired as e:
                await send({"type": "websocket.send", "text": socket_text(_error(e)).decode()})
                return _BROKEN
            except StorageError as e:
                _log.error("a session's socket was cut: %s", e)
                return _BROKEN
            if frames == []:
                return _NORMAL if self._feed.is_deleted else _GOING_AWAY
            for frame in frames or []:
                await send({"type": "websocket.send", "text": socket_text(frame).decode()})
        return _NORMAL


def _error(error: CursorExpired) -> Frame:
    return Frame(json_line({"code": error.code, "message": error.message}), "error")
