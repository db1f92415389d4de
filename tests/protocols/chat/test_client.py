"""What the official client makes of our bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import openai
import pytest

from runstone.core.events import Body
from runstone.protocols.chat.encode import Answer, Encoder
from runstone.protocols.sse import PING, to_bytes
from tests.protocols.chat.test_encode import header
from tests.protocols.strategies import numbered

CASES = Path(__file__).parent / "cases"


def client(name: str, *, stream: bool = True) -> openai.OpenAI:
    """The official client before a server that answers with the case, a heartbeat before every frame."""
    case = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    events = numbered(msgspec.convert(case["bodies"], list[Body]))
    encoder, answer = Encoder(header(), **case.get("options", {})), Answer(header())
    frames = [frame for event in events if not encoder.is_over for frame in encoder.encode(event)]
    for event in events:
        if not answer.is_over:
            answer.feed(event)
    content = b"".join(PING + to_bytes(frame) for frame in [*frames, *encoder.end()])
    reply = httpx2.Response(200, content=content, headers={"content-type": "text/event-stream"})
    whole = httpx2.Response(200, json=answer.body())
    transport = httpx2.MockTransport(lambda _: reply if stream else whole)
    return openai.OpenAI(api_key="k", base_url="http://test/v1", http_client=httpx2.Client(transport=transport))


ASKED: Any = {"model": "my-agent", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("name", "content", "finish"),
    [
        ("text", "Hello", "stop"),
        ("server_tool", "我查一下\n\n北京 20 度", "stop"),
        ("line_ends", "a\r\n\r\nevent: run.completed\ndata: {}\n\n\u2028b\u2029\u0085", "stop"),
        ("waiting", "", "stop"),
        ("client_tools", "One moment.", "tool_calls"),
    ],
)
def test_the_official_helper_puts_the_answer_together(name: str, content: str, finish: str) -> None:
    """The client's accumulator gives the completion that the call without `stream` gives, o-htp-05."""
    with client(name) as sdk, sdk.chat.completions.stream(**ASKED) as stream:
        streamed = stream.get_final_completion()
    with client(name, stream=False) as sdk:
        whole = sdk.chat.completions.create(**ASKED)
    for completion in (streamed, whole):
        [choice] = completion.choices
        assert ((choice.message.content or ""), choice.finish_reason) == (content, finish)
    asked = [call.model_dump(include={"id", "type"}) for call in whole.choices[0].message.tool_calls or []]
    assert [call.model_dump(include={"id", "type"}) for call in streamed.choices[0].message.tool_calls or []] == asked


@pytest.mark.parametrize("name", ["failed", "cancelled", "interrupted", "restarted"])
def test_the_official_client_raises_on_a_bad_end(name: str) -> None:
    """A run that did not complete is an APIError with the run's words, not a quiet end."""
    case = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    with client(name) as sdk, pytest.raises(openai.APIError) as caught:
        for _ in sdk.chat.completions.create(**ASKED, stream=True):
            pass
    assert caught.value.message == case["frames"][-1][1]["error"]["message"]
