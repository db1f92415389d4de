"""An answer that is lost on its way: the official client asks again by itself, and gets the answer of the first run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam


class LossyProxy(ThreadingHTTPServer):
    """Passes requests on to `target`, and drops the first answer."""

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.target = target
        self.asked = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


class Passing(BaseHTTPRequestHandler):
    """One request."""

    server: LossyProxy

    def do_POST(self) -> None:
        """Pass it on; the first time hang up when the answer is there."""
        self.server.asked += 1
        is_first = self.server.asked == 1
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        answer = httpx.post(self.server.target + self.path, content=body, headers=headers, trust_env=False, timeout=10)
        self.close_connection = True
        if is_first:
            return
        self.send_response(answer.status_code)
        self.send_header("content-type", answer.headers["content-type"])
        self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *args: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def proxy(server: str) -> Iterator[LossyProxy]:
    """A proxy before the server."""
    with LossyProxy(server) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join(timeout=5)


@pytest.fixture
def lossy_client(proxy: LossyProxy) -> Iterator[OpenAI]:
    """The official client behind that proxy."""
    with OpenAI(base_url=f"{proxy.address}/v1", api_key="none") as client:
        yield client


@pytest.mark.parametrize("stream", [True, False])
def test_a_response(lossy_client: OpenAI, proxy: LossyProxy, stream: bool) -> None:
    """A response, whole or as a stream, is that of the first run."""
    question = f"lost response {stream} {proxy.address}"
    if stream:
        events = list(lossy_client.responses.create(model="again", input=question, stream=True))
        assert events[-1].type == "response.completed"
        text = events[-1].response.output_text
    else:
        text = lossy_client.responses.create(model="again", input=question).output_text
    assert (text, proxy.asked) == ("1", 2)


def test_a_completion(lossy_client: OpenAI, proxy: LossyProxy) -> None:
    """A completion likewise, though nobody named a session."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": f"lost completion {proxy.address}"}]
    answer = lossy_client.chat.completions.create(model="again", messages=messages)
    assert (answer.choices[0].message.content, proxy.asked) == ("1", 2)


def test_a_stream_of_chunks(lossy_client: OpenAI, proxy: LossyProxy) -> None:
    """So is a stream of chunks."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": f"lost stream {proxy.address}"}]
    chunks = lossy_client.chat.completions.create(model="again", messages=messages, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert (text, proxy.asked) == ("1", 2)
