"""Errors as HTTP answers.

Rule: nothing but the message of a Runstone error reaches a caller; the text of any other exception stays in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from runstone.protocols.base import ErrorBody
from runstone.protocols.openai import error_object

_encode = msgspec.json.Encoder().encode
JSON: Final = "application/json"


class HttpError(Exception):
    """A request that is refused before any protocol looks at it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        type: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.answer = ErrorBody(
            status=status, body={"error": error_object(message, type=type, code=code)}, headers=headers or {}
        )


class JsonResponse(Response):
    """A JSON body that browsers do not guess at."""

    media_type = JSON

    def __init__(self, content: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:  # noqa: ANN401
        super().__init__(_encode(content), status_code=status, headers=dict(headers or {}), media_type=JSON)
        self.raw_headers.append((b"x-content-type-options", b"nosniff"))


def response_of(answer: ErrorBody) -> JsonResponse:
    """The error as a response."""
    return JsonResponse(answer.body, status=answer.status, headers=answer.headers)


def failed() -> HttpError:
    """What a caller hears of a mistake of ours; official clients are told not to try again."""
    return HttpError(
        500,
        "The server had an error while processing the request.",
        code="internal_error",
        type="server_error",
        headers={"x-should-retry": "false"},
    )
