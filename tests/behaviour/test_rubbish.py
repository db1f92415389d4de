"""Requests whose fields hold anything at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runstone.server.contract import OPERATIONS
from tests.behaviour.client import Answer, Client
from tests.behaviour.site import Site

DEEP: Any = 1
for _ in range(60):
    DEEP = [DEEP]
VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**18, -(10**30), 1e308, "", "x", "false", "a\0b", "a\r\nb", "a" * 1_000_000, "../..",
    "\u00e9", "\u20ac", [], [None], [1], ["x"], [[]], [{}], {}, {"id": 1}, {"id": "a\0"}, {"a": 1}, {"type": []}, [{"type": {}}],
    [{"role": "user"}], [{"role": ["user"], "content": "x"}], [{"role": "user", "content": [{"type": "text"}]}],
    [{"type": "function", "function": 1}], [{"type": "function", "function": {"name": 1}}], DEEP, {"a": DEEP},
]  # fmt: skip
TURNS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "agent", "messages": [{"role": "user", "content": "hello"}]},
    "/v1/responses": {"model": "agent", "input": "hello"},
}
FIELDS = [
    (operation.path, field.name)
    for operation in OPERATIONS
    if operation.method == "POST" and operation.path in TURNS
    for field in operation.body
]


def check(answer: Answer, what: object) -> None:
    """See that an answer is one that the documents name."""
    assert answer.status in (200, 400, 404), (what, answer.status, answer.body[:300])
    if answer.status != 200:
        error = answer.json["error"]
        assert error.keys() == {"message", "type", "param", "code"}, what
        assert 0 < len(error["message"]) < 1_100, what


@pytest.mark.parametrize(("path", "field"), FIELDS)
async def test_any_value_in_any_field(memory: Site, path: str, field: str) -> None:
    """o-htp-04: whatever a field of the tables holds is taken or refused in a few words, and the server does not fail."""
    client = memory.client()
    for value in VALUES:
        check(await client.post(path, {**TURNS[path], field: value}), (field, str(value)[:80]))
    assert (await client.respond("still there")).status == 200


@pytest.mark.parametrize("path", TURNS)
async def test_lone_surrogates_in_a_body(memory: Site, path: str) -> None:
    """o-sto-06: half of an escaped pair is no text; a whole one is, and comes back."""
    client = memory.client()
    for text, status in ((r"\ud83d", 400), (r"\ude00\ud83d", 400), (r"\ud83d\ude00", 200)):
        body = json.dumps(TURNS[path]).replace("hello", text).encode()
        answer = await posted(client, path, body)
        assert answer.status == status, text
    assert "\U0001f600" in answer.body.decode()


async def posted(client: Client, path: str, body: bytes) -> Answer:
    """POST of these bytes as JSON."""
    return await client.post(path, body=body, headers={"content-type": "application/json"})
