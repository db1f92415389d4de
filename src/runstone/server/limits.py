"""What a request may weigh, and JSON that may be decoded.

Rule: everything is counted while it comes in; a Content-Length is believed only when it is too large.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from itertools import accumulate
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from runstone.errors import BODY_LIMIT, InvalidRequest, LimitExceeded
from runstone.server.errors import HttpError

_JSON_TYPE: Final = re.compile(r"application/(?:[a-z0-9.!#$&^_-]+\+)?json", re.IGNORECASE)
#: Brackets in one document; decoding as many small values as a 64 MB body can hold would take gigabytes.
_MAX_BRACKETS: Final = 200_000
#: Seconds that a body may be silent.
_LONGEST_SILENCE: Final = 60.0
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


class Gone(Exception):
    """The client left before its request was read; nobody waits for an answer."""


def too_large(max_bytes: int) -> LimitExceeded:
    """The refusal of a body."""
    return LimitExceeded(
        f"The request's body is larger than {max_bytes} bytes.",
        limit=BODY_LIMIT,
        value=max_bytes,
        code="request_too_large",
    )


def check_length(request: Request, max_bytes: int) -> None:
    """Refuse by the declared length, before anything is read.

    Raises:
        LimitExceeded: the request says itself that it is too large.
        HttpError: it is compressed.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise HttpError(415, f"The content-encoding {encoding[:40]!r} is not supported.", code="unsupported_encoding")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > max_bytes:
        raise too_large(max_bytes)


async def body_bytes(request: Request, max_bytes: int, *, silence: float = _LONGEST_SILENCE) -> bytes:
    """The body.

    Raises:
        LimitExceeded: it is larger than `max_bytes`.
        HttpError: it stopped coming, for `silence` seconds.
        Gone: the client left.
    """
    check_length(request, max_bytes)
    pieces: list[bytes] = []
    size = 0
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(silence) as limit:
            async for piece in request.stream():
                size += len(piece)
                if size > max_bytes:
                    raise too_large(max_bytes)
                pieces.append(piece)
                limit.reschedule(now() + silence)
    except ClientDisconnect as e:
        raise Gone from e
    except TimeoutError as e:
        raise HttpError(
            408, "The rest of the body did not come.", code="request_timeout", headers={"connection": "close"}
        ) from e
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def counted(receive: Receive, max_bytes: int) -> Receive:
    """`receive`, but more than `max_bytes` of body raise `LimitExceeded`."""
    size = 0

    async def receive_counted() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.request" and "body" in message:
            size += len(message["body"])
            if size > max_bytes:
                raise too_large(max_bytes)
        return message

    return receive_counted


def check_json_type(request: Request) -> None:
    """See that the body is declared as JSON. A browser can send other types to any server without asking first.

    Raises:
        HttpError: it is not.
    """
    declared = request.headers.get("content-type", "")
    if _JSON_TYPE.fullmatch(declared.partition(";")[0].strip()) is None:
        raise HttpError(
            415,
            f"The content-type is {declared[:80]!r}; expected application/json.",
            code="unsupported_media_type",
        )


def object_from_json(text: bytes, *, max_depth: int) -> dict[str, Any]:
    """The JSON object in `text`. The last of equal keys counts.

    Raises:
        InvalidRequest: it is not JSON, not UTF-8, not an object, or nested too deeply.
    """
    check_depth(text, max_depth)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as e:
        raise InvalidRequest("The body is not valid JSON in UTF-8.", code="invalid_json") from e
    if not isinstance(value, dict):
        raise InvalidRequest(f"The body is a JSON {_kind(value)}; expected an object.", code="invalid_type")
    return value


def check_depth(text: bytes, max_depth: int) -> None:
    """Look at the brackets alone, in time linear to the text.

    Raises:
        InvalidRequest: they are nested deeper than `max_depth`, or far too many.
    """
    opened = text.count(b"[") + text.count(b"{")
    if opened <= max_depth:
        return
    if opened > _MAX_BRACKETS:
        raise InvalidRequest("The body has too many arrays and objects.", code="json_too_large")
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    outside = b"".join(bare.split(b'"')[::2])
    steps = array("b", outside.translate(_STEPS, _NO_BRACKETS))
    if max(accumulate(steps), default=0) > max_depth:
        raise InvalidRequest(f"The body is nested deeper than {max_depth} levels.", code="json_too_deep")


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case list():
            return "array"
        case str():
            return "string"
        case _:
            return "number"
