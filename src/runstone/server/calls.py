"""One request on its way through a handler, and what all handlers share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_args

import msgspec
from starlette.requests import Request

from runstone.config import Config
from runstone.core.commands import Start
from runstone.core.ids import checked_run_id
from runstone.core.runs import RecoveryPolicy
from runstone.engine.engine import Engine
from runstone.errors import InvalidRequest
from runstone.protocols.fields import BUSY, DISCONNECT
from runstone.server.limits import body_bytes, check_json_type, object_from_json
from runstone.server.retries import Retries

_T = TypeVar("_T")
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_RECOVERY: Final[dict[str, RecoveryPolicy]] = {word: word for word in get_args(RecoveryPolicy)}
RUN_ID: Final = "runstone-run-id"
DIALECT: Final = "runstone-dialect"


class Shared:
    """What every request of a server has to do with."""

    def __init__(self, engine: Engine, config: Config) -> None:
        self.engine = engine
        self.config = config
        self.retries = Retries()


class Call:
    """A request: who, what, and where in the path."""

    def __init__(
        self, shared: Shared, request: Request, *, owner: str, request_id: str, params: dict[str, str]
    ) -> None:
        self.engine = shared.engine
        self.config = shared.config
        self.retries = shared.retries
        self.request = request
        self.owner = owner
        self.request_id = request_id
        self.params = params

    async def json(self) -> dict[str, Any]:
        """The JSON object of the body.

        Raises:
            HttpError: the body is not declared as JSON.
            LimitExceeded: it is too large.
            InvalidRequest: it is not a JSON object.
        """
        check_json_type(self.request)
        limits = self.config.server
        return object_from_json(await body_bytes(self.request, limits.max_body_bytes), max_depth=limits.max_json_depth)

    async def optional_json(self) -> dict[str, Any]:
        """The JSON object of the body, an empty one when there is no body."""
        headers = self.request.headers
        has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        if not has_body and "content-type" not in headers:
            return {}
        return await self.json()

    def number(self, name: str, *, default: int, least: int = 1, most: int) -> int:
        """A whole number of the query.

        Raises:
            InvalidRequest: it is none, or not from `least` to `most`.
        """
        text = self.request.query_params.get(name)
        if text is None:
            return default
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else least - 1
        if not least <= value <= most:
            raise InvalidRequest(f"{name!r} is {text[:80]!r}; expected {least} to {most}.", param=name)
        return value

    def flag(self, name: str) -> bool:
        """A yes or no of the query; absent is no.

        Raises:
            InvalidRequest: it is neither `true` nor `false`.
        """
        text = self.request.query_params.get(name, "false")
        if text not in ("true", "false"):
            raise InvalidRequest(f"{name!r} is {text[:80]!r}; expected true or false.", param=name)
        return text == "true"

    def started(self, start: Start) -> Start:
        """`start` with what the headers say.

        Raises:
            InvalidRequest: a header has a word that is none of ours, or contradicts the body.
        """
        headers = self.request.headers
        run_id = headers.get(RUN_ID)
        key = headers.get("idempotency-key")
        if key is not None and _KEY.fullmatch(key) is None:
            raise InvalidRequest(
                "Idempotency-Key must have 1 to 255 visible ASCII characters.", param="idempotency-key"
            )
        said = {
            "run_id": None if run_id is None else checked_run_id(run_id, param=RUN_ID),
            "idempotency_key": key,
            "busy": _word(BUSY, headers.get("runstone-busy"), "runstone-busy"),
            "disconnect": _word(DISCONNECT, headers.get("runstone-disconnect"), "runstone-disconnect"),
            "recovery": _word(_RECOVERY, headers.get("runstone-recovery"), "runstone-recovery"),
        }
        for name, value in said.items():
            in_body = getattr(start, name)
            if value is not None and in_body not in (None, value):
                raise InvalidRequest(f"The header says {value!r} and the body {in_body!r}.", param=name)
        given = {name: value for name, value in said.items() if value is not None}
        return msgspec.structs.replace(start, **given) if given else start


def _word(table: Mapping[str, _T], word: str | None, header: str) -> _T | None:
    if word is None:
        return None
    if word not in table:
        raise InvalidRequest(f"{header} is {word[:80]!r}; expected one of {', '.join(table)}.", param=header)
    return table[word]
