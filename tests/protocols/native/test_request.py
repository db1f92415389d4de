"""Queries of a session's stream."""

from __future__ import annotations

import pytest

from runstone.errors import CursorUnknown, InvalidRequest
from runstone.protocols.base import Cursor
from runstone.protocols.native.request import Subscription, subscription_from_query


def test_a_query_says_format_and_place() -> None:
    """Native from now on is the default; the header wins over `after`."""
    assert subscription_from_query({}) == Subscription(format="native", cursor=None)
    assert subscription_from_query({"format": "chat", "after": "3"}) == Subscription(format="chat", cursor=Cursor(3))
    assert subscription_from_query({"after": "3"}, "7.1").cursor == Cursor(7, 1)
    assert subscription_from_query({"after": "0"}).cursor == Cursor(0)


def test_unknown_formats_and_cursors_are_refused() -> None:
    """A format that does not exist names those that do; a cursor that is none is an error, not silence."""
    with pytest.raises(InvalidRequest, match="hermes") as e:
        subscription_from_query({"format": "smoke"})
    assert e.value.param == "format"
    with pytest.raises(CursorUnknown):
        subscription_from_query({}, "e3")
