"""Values made storable: a lone surrogate, which no UTF-8 text can carry, becomes U+FFFD.

What JSON cannot carry at all (a live object, a NaN key, endless nesting) is refused here, before it gets a number.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from runstone.core.events import Body, ItemStarted, StepEnded, StepStarted
from runstone.core.serde import to_json
from runstone.errors import InvalidRequest, LocalProtocolError

Value = TypeVar("Value")
_decoded = msgspec.json.Decoder(Body).decode
#: Bodies that hold nothing but words and numbers.
_PLAIN: Final = frozenset({ItemStarted, StepStarted, StepEnded})


def scrubbed_text(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_delta(body: Body) -> Body:
    """A delta with its text scrubbed; the same object when there was nothing to do."""
    text: str = body.text  # type: ignore[union-attr]
    clean = scrubbed_text(text)
    return body if clean is text else type(body)(item_id=body.item_id, text=clean)  # type: ignore[call-arg, union-attr]


def scrubbed(body: Body) -> tuple[Body, int]:
    """`body` fit for the log, and its size there in bytes.

    What comes back is what a reader of the log will get: later changes to a list or mapping that the agent put into it do not
    show, and live readers see the same as those who come later.

    Raises:
        LocalProtocolError: it has something that JSON cannot carry.
    """
    try:
        text = to_json(body)
        return (body if type(body) in _PLAIN else _decoded(text)), len(text)
    except UnicodeEncodeError:
        pass
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as e:
        raise LocalProtocolError(f"{type(body).__name__} has a value that JSON cannot carry") from e
    text = to_json(_scrubbed_value(msgspec.to_builtins(body)))
    return _decoded(text), len(text)


def storable(value: Value) -> Value:
    """A record's value fit for the store; the same object when there was nothing to do.

    Raises:
        InvalidRequest: it has something that JSON cannot carry.
    """
    try:
        to_json(value)
    except UnicodeEncodeError:
        return msgspec.convert(_scrubbed_value(msgspec.to_builtins(value)), type(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as e:
        raise InvalidRequest("A value of the request cannot be stored.") from e
    return value


def _scrubbed_value(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return scrubbed_text(value)
    if isinstance(value, dict):
        return {_scrubbed_value(k): _scrubbed_value(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_scrubbed_value(v) for v in value]
    return value
