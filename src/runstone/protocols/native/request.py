"""Queries of the native streams as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

import msgspec

from runstone.errors import InvalidRequest
from runstone.protocols.base import Cursor, cursor_from_text
from runstone.protocols.native.types import Format


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader of a session wants: how frames look, and what it has; `cursor` counts positions.

    `cursor` is None for a reader that says nothing: it gets what happens from now on.
    """

    format: Format = "native"
    cursor: Cursor | None = None


def subscription_from_query(query_params: Mapping[str, str], last_event_id: str | None = None) -> Subscription:
    """The query of `/api/sessions/{id}/events`: `format` and `after`; the header `Last-Event-ID` wins over `after`.

    Raises:
        InvalidRequest: there is no such format.
        CursorUnknown: the cursor is none.
    """
    text = last_event_id or query_params.get("after") or None
    return Subscription(
        format=format_from_text(query_params.get("format") or "native"),
        cursor=None if text is None else cursor_from_text(text),
    )


def format_from_text(text: str) -> Format:
    """`text` when it names a format.

    Raises:
        InvalidRequest: it does not.
    """
    words = get_args(Format)
    if text not in words:
        raise InvalidRequest(f"'format' is {text[:80]!r}; expected one of {', '.join(words)}.", param="format")
    return cast(Format, text)
