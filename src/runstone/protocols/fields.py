"""Typed readers of foreign JSON: what OpenAI's protocols share, for a request's fields.

`at` is the path of the object that holds the field, as an error's `param` shows it; null counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from runstone.core.runs import BusyPolicy, DisconnectPolicy
from runstone.errors import (
    InvalidRequest,
)

Json = dict[str, Any]
_T = TypeVar("_T")


def path(at: str, key: str) -> str:
    """`key` under `at`, as `param` spells it."""
    return f"{at}.{key}" if at else key


def wrong_type(value: object, param: str, expected: str) -> InvalidRequest:
    """The error for a value of another JSON type than `expected`."""
    shown = repr(value)
    if len(shown) > 80:
        shown = f"{shown[:80]}..."
    return InvalidRequest(f"{param!r} is {shown}; expected {expected}.", param=param, code="invalid_type")


def need_object(value: object, param: str) -> Json:
    """`value`, which has to be a JSON object."""
    if not isinstance(value, dict):
        raise wrong_type(value, param or "body", "an object")
    return value


def need_list(value: object, param: str) -> list[Any]:
    """`value`, which has to be a JSON array."""
    if not isinstance(value, list):
        raise wrong_type(value, param, "an array")
    return value


def need_str(body: Json, key: str, *, at: str = "") -> str:
    """The text at `key`.

    Raises:
        InvalidRequest: it is missing or no text; `param` names it.
    """
    text = opt_str(body, key, at=at)
    if text is None:
        param = path(at, key)
        raise InvalidRequest(
            f"{param!r} is missing; expected a string.", param=param, code="missing_required_parameter"
        )
    return text


def opt_str(body: Json, key: str, *, at: str = "") -> str | None:
    """The text at `key`, None when it is absent or null."""
    value = body.get(key)
    if value is None or isinstance(value, str):
        return value
    raise wrong_type(value, path(at, key), "a string")


def opt_bool(body: Json, key: str, *, at: str = "") -> bool | None:
    """The boolean at `key`, None when absent or null. Texts and numbers (`"false"`, 0) are refused, not guessed."""
    value = body.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise wrong_type(value, path(at, key), "true or false")


def opt_int(body: Json, key: str, *, at: str = "") -> int | None:
    """The whole number at `key`, None when it is absent or null."""
    value = body.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise wrong_type(value, path(at, key), "a whole number")


def opt_object(body: Json, key: str, *, at: str = "") -> Json | None:
    """The object at `key`, None when it is absent or null."""
    value = body.get(key)
    return None if value is None else need_object(value, path(at, key))


def opt_list(body: Json, key: str, *, at: str = "") -> list[Any] | None:
    """The array at `key`, None when it is absent or null."""
    value = body.get(key)
    return None if value is None else need_list(value, path(at, key))


#: Our words first; then LangGraph's, where they mean the same.
BUSY: Final[dict[str, BusyPolicy]] = {
    "reject": "reject",
    "queue": "queue",
    "steer": "steer",
    "stop": "stop",
    "enqueue": "queue",
    "interrupt": "stop",
}
DISCONNECT: Final[dict[str, DisconnectPolicy]] = {"continue": "continue", "stop": "stop", "cancel": "stop"}


def opt_busy(body: Json, key: str = "busy") -> BusyPolicy | None:
    """The busy policy that the extension field names, None when absent; an unknown one is refused."""
    word = opt_str(body, key)
    return None if word is None else _word_of(BUSY, word, key)


def opt_disconnect(body: Json, key: str = "disconnect") -> DisconnectPolicy | None:
    """The disconnect policy that the extension field names, None when absent; an unknown one is refused."""
    word = opt_str(body, key)
    return None if word is None else _word_of(DISCONNECT, word, key)


def _word_of(table: Mapping[str, _T], word: str, param: str) -> _T:
    if word not in table:
        raise InvalidRequest(f"{param!r} is {word[:80]!r}; expected one of {', '.join(table)}.", param=param)
    return table[word]
