"""Depth of JSON by its brackets alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from runstone.errors import InvalidRequest
from runstone.server.errors import HttpError
from runstone.server.limits import body_bytes, check_depth, object_from_json

values = st.recursive(
    st.none() | st.text(alphabet='ab[]{}"\\,: é') | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='k"\\[{'), inner, max_size=4),
    max_leaves=40,
)


def depth_of(value: Any) -> int:
    """The nesting of a value, counted in the slow and certain way."""
    match value:
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case _:
            return 0


@given(values, st.integers(0, 6), st.booleans())
def test_depth_is_that_of_the_value(value: Any, limit: int, ascii_only: bool) -> None:
    """Exactly what is nested deeper than the limit is refused, whatever stands in its strings and keys."""
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    if depth_of(value) <= limit:
        check_depth(text, limit)
    else:
        with pytest.raises(InvalidRequest, match="nested deeper"):
            check_depth(text, limit)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(text: bytes) -> None:
    """Whatever the bytes are: a dict comes back or the caller is told, nothing else is raised."""
    try:
        assert isinstance(object_from_json(text, max_depth=5), dict)
    except InvalidRequest as e:
        assert e.code in ("invalid_json", "invalid_type", "json_too_deep")


def test_a_flood_of_small_values() -> None:
    """More arrays than anybody needs are refused before they take gigabytes."""
    with pytest.raises(InvalidRequest, match="too many"):
        check_depth(b"[" + b"[]," * 1_000_001, 100)


async def test_a_body_that_stops_coming() -> None:
    """A client that sends half a body and then nothing is told so, and does not hold the request for ever."""
    pieces: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Message:
        return pieces.pop() if pieces else await asyncio.Future()

    with pytest.raises(HttpError) as refused:
        await body_bytes(Request({"type": "http", "headers": []}, receive), 100, silence=0.01)
    assert refused.value.answer.status == 408
