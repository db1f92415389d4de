"""Names of the native surface, and the shape of its events."""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, TypedDict

NAME: Final = "native"
#: What a session's stream may look like: `native`, or each run as the stream of another protocol.
Format = Literal["native", "hermes", "chat", "adk", "ksadk"]


class NativeEvent(TypedDict):
    """An event of the log. `type` is the body's, and the body's own fields (docs/protocols/native.md) stand beside these."""

    run_id: str
    seq: int
    position: int
    at: float
    attempt: int
    type: str


class SocketMessage(TypedDict):
    """A frame as one WebSocket text message."""

    id: NotRequired[str]
    event: NotRequired[str]
    data: Any
