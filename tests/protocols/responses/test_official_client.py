"""The official client's accumulating helper reads our streams; no server and no network are involved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import msgspec
import pytest
from openai import OpenAI

from runstone.core.events import Event
from runstone.protocols import sse
from runstone.protocols.responses.encode import response_body
from tests.protocols.responses.support import header_of, stream
from tests.protocols.responses.test_cases import CASES

COMPLETED = [path for path in CASES if "ksadk" not in path.stem and path.stem != "restarted"]


def answers(content: bytes) -> Callable[[httpx2.Request], httpx2.Response]:
    """A server that answers every request with this stream."""
    return lambda request: httpx2.Response(200, headers={"content-type": sse.MEDIA_TYPE}, content=content)


@pytest.mark.parametrize("path", COMPLETED, ids=[path.stem for path in COMPLETED])
def test_helper_follows_the_stream(path: Path) -> None:
    """The helper takes every event, and its final response of a completed leg is the one that was sent."""
    case = json.loads(path.read_text(encoding="utf-8"))
    header = header_of(case["leg"]["index"], case["leg"]["first_seq"])
    events = msgspec.convert(case["events"], list[Event])
    content = b"".join(sse.to_bytes(frame) for frame in stream(header, events, **case["style"]))
    sent = response_body(header, events, **case["style"])
    transport = httpx2.MockTransport(answers(content))
    with (
        httpx2.Client(transport=transport) as http,
        OpenAI(base_url="http://runstone.test/v1", api_key="k", http_client=http) as client,
        client.responses.stream(model="m", input="hi") as followed,
    ):
        kinds = [event.type for event in followed]
        assert kinds[0] == "response.created"
        if kinds[-1] == "response.completed":
            final = followed.get_final_response()
            assert final.output_text == sent["output_text"]
            assert [item.model_dump()["id"] for item in final.output] == [item["id"] for item in sent["output"]]
