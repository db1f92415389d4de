"""HTTP connections, with limits on what comes before a request is understood.

Whoever can reach the server can send a head that never ends, without any key; the parser would keep all of it. Bodies are
limited where they are read (`limits`). What is no HTTP is answered in JSON like everything else.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from runstone.protocols.openai import error_object

#: Bytes that may come without a head or a piece of a body being complete. A read of the socket more may pass.
MAX_HEAD_BYTES: Final = 64 * 1024


class HttpConnection(HttpToolsProtocol):
    """One connection."""

    #: Seconds from the first byte of a head, or from connecting, to its end.
    head_timeout: ClassVar[float] = 30.0
    _is_in_head = True
    _is_getting_on = False
    _stalled_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: a head is expected."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._expect_no_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, and see that it gets somewhere."""
        if self.transport.is_closing():
            return
        self._is_getting_on = False
        super().data_received(data)
        self._stalled_bytes = 0 if self._is_getting_on else self._stalled_bytes + len(data)
        if self.transport.is_closing():
            return
        if self._stalled_bytes > MAX_HEAD_BYTES:
            self._refuse(
                b"431 Request Header Fields Too Large", "The head of the request is too large.", "head_too_large"
            )
        elif self._is_in_head and self._timer is None:
            self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header of the head."""
        # What follows a body may look like headers, too. Nothing here needs them, and the request has been judged by then.
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_in_head, self._is_getting_on = False, True
        self._expect_no_head()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._is_getting_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole; another may follow."""
        self._is_in_head = self._is_getting_on = True
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """The connection is another protocol's from here on."""
        super().handle_websocket_upgrade()
        self._is_in_head = False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(b"400 Bad Request", msg, "invalid_http")

    def _refuse(self, status: bytes, message: str, code: str) -> None:
        body = msgspec.json.encode({"error": error_object(message, type="invalid_request_error", code=code)})
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
        self.transport.close()

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout, self._out_of_time)

    def _expect_no_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _out_of_time(self) -> None:
        self._timer = None
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if not (is_answering or self.transport.is_closing()):
            self.transport.close()
