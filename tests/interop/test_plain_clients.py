"""A client that says nothing of itself: the requests of the second contract as its page shows them, and its shapes in return.

`...` in the page's base64 is a real picture or file here; everything else is word for word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.interop.agents import REASONING
from tests.interop.serving import running

MINIMAL = """
{
  "model": "my-agent",
  "input": "Explain what this agent can do.",
  "stream": false
}
"""
STREAM = """
{
  "model": "my-agent",
  "input": "Stream a short answer.",
  "stream": true
}
"""
CURL = '{"model":"my-agent","input":"count to three","stream":true}'
CONVERSATION = """
{
  "model": "my-agent",
  "conversation": {"id": "local-demo-session"},
  "input": "Continue from the previous answer.",
  "stream": false
}
"""
LEGACY_SESSION = """
{
  "model": "my-agent",
  "session_id": "local-demo-session",
  "input": "Continue from the previous answer."
}
"""
IMAGE = """
{
  "model": "my-agent",
  "input": [
    {
      "role": "user",
      "content": [
        {"type": "input_text", "text": "Describe this image."},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
      ]
    }
  ]
}
"""
FILE = """
{
  "model": "my-agent",
  "input": [
    {
      "role": "user",
      "content": [
        {"type": "input_text", "text": "Summarize this file."},
        {
          "type": "input_file",
          "filename": "notes.txt",
          "file_data": "data:text/plain;base64,bm90ZXM="
        }
      ]
    }
  ]
}
"""
CHAT = """
{
  "model": "my-agent",
  "messages": [
    {"role": "user", "content": "Say hello from KsADK."}
  ],
  "stream": false
}
"""
CHAT_IMAGE = """
{
  "model": "my-agent",
  "messages": [
    {
      "role": "user",
      "content": [
        {"type": "text", "text": "What is in this image?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
      ]
    }
  ]
}
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A plain client of a server with one agent, which is not called my-agent."""
    with running(tmp_path_factory.mktemp("plain"), ["plain"]) as address, client_of(address) as client:
        yield client


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A plain client of a server with agents that think, run tools, ask and fail."""
    names = ["thinks", "tools", "approves", "fails", "cut_off"]
    with running(tmp_path_factory.mktemp("every"), names) as address, client_of(address) as client:
        yield client


def client_of(address: str) -> httpx.Client:
    """A client without any header of its own."""
    return httpx.Client(base_url=f"{address}/v1", timeout=10, trust_env=False)


def post(client: httpx.Client, path: str, text: str) -> Any:
    """The answer to the words of a request."""
    response = client.post(path, content=text, headers={"content-type": "application/json"})
    assert response.status_code == 200, response.text
    return response.json()


def stream(client: httpx.Client, body: str | dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream by name; the end mark is seen to."""
    text = body if isinstance(body, str) else json.dumps({**body, "stream": True})
    response = client.post("/responses", content=text, headers={"content-type": "application/json"})
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, end, _ = response.text.split("\n\n")
    assert end.splitlines()[-1] == "data: [DONE]"
    events = []
    for frame in frames:
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        events.append((fields["event"], json.loads(fields["data"])))
    return events


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (MINIMAL, "You said: Explain what this agent can do."),
        (CONVERSATION, "You said: Continue from the previous answer."),
        (LEGACY_SESSION, "You said: Continue from the previous answer."),
        (IMAGE, "You said with image_url: Describe this image."),
        (FILE, "You said with file: Summarize this file."),
    ],
    ids=["minimal", "conversation", "session", "image", "file"],
)
def test_requests_of_the_page(plain: httpx.Client, text: str, answer: str) -> None:
    """Each request of the page is answered in the shape of the page; its model is only a label."""
    body = post(plain, "/responses", text)
    assert (body["id"].startswith("resp_"), body["object"], body["model"]) == (True, "response", "my-agent")
    (message,) = body["output"]
    assert (message["type"], message["role"]) == ("message", "assistant")
    assert [(part["type"], part["text"]) for part in message["content"]] == [("output_text", answer)]
    assert (body["status"], body["output_text"], body["metadata"]) == ("completed", answer, {})
    assert isinstance(body["created_at"], int)
    assert "usage" in body


@pytest.mark.parametrize("text", [STREAM, CURL], ids=["stream", "curl"])
def test_streams_of_the_page(plain: httpx.Client, text: str) -> None:
    """A stream has the events that the page says a client has to handle, and ends with the whole response."""
    events = stream(plain, text)
    assert [name for name, _ in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    question = json.loads(text)["input"]
    assert events[4][1]["delta"] == events[-1][1]["response"]["output_text"] == f"You said: {question}"


def test_both_names_of_a_session(plain: httpx.Client) -> None:
    """`conversation` and `session_id` name the same session, and are refused together when they differ."""
    first = post(plain, "/responses", CONVERSATION)
    second = post(plain, "/responses", LEGACY_SESSION)
    assert first["session_id"] == second["session_id"] == "local-demo-session"
    both = {"model": "my-agent", "input": "x", "conversation": "a", "session_id": "b"}
    assert plain.post("/responses", json=both).status_code == 400
    both = {
        "model": "my-agent",
        "input": "x",
        "conversation": "local-demo-session",
        "previous_response_id": first["id"],
    }
    assert plain.post("/responses", json=both).status_code == 400


@pytest.mark.parametrize(
    ("text", "answer"),
    [(CHAT, "You said: Say hello from KsADK."), (CHAT_IMAGE, "You said with image_url: What is in this image?")],
    ids=["text", "image"],
)
def test_chat_requests_of_the_page(plain: httpx.Client, text: str, answer: str) -> None:
    """So is each request of Chat Completions."""
    body = post(plain, "/chat/completions", text)
    assert (body["object"], body["model"]) == ("chat.completion", "my-agent")
    (choice,) = body["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (answer, "stop")


def test_a_remote_file_is_a_reference(plain: httpx.Client) -> None:
    """A `file_url` is kept as it is, and nobody fetches it."""
    part = {"type": "input_file", "file_url": "http://127.0.0.1:9/nothing.pdf"}
    body = {"model": "my-agent", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}, part]}]}
    answer = plain.post("/responses", json=body).json()
    assert answer["output_text"] == "You said with file: x"
    (listed,) = plain.get(f"/responses/{answer['id']}/input_items").json()["data"]
    assert listed["content"][1] == part


def test_reasoning(every: httpx.Client) -> None:
    """Reasoning is `response.reasoning.delta`."""
    events = stream(every, {"model": "thinks", "input": "go"})
    assert "".join(data["delta"] for name, data in events if name == "response.reasoning.delta") == REASONING
    assert not [name for name, _ in events if "summary" in name]


def test_a_tool_of_the_server(every: httpx.Client) -> None:
    """A tool that the agent ran is a function call with its arguments, and its result an event of its own."""
    events = stream(every, {"model": "tools", "input": "go"})
    names = [name for name, _ in events]
    assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= set(names)
    (result,) = [data for name, data in events if name == "response.ksadk.tool_result"]
    assert (result["name"], json.loads(result["output"]), result["is_error"]) == ("weather", {"temp": 20}, False)
    kinds = [item["type"] for item in events[-1][1]["response"]["output"]]
    assert kinds == ["message", "function_call", "function_call_output", "message"]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            """
{
  "type": "mcp_approval_response",
  "approval_request_id": "approval_123",
  "approve": true,
  "reason": "Approved by local user"
}
""",
            "It is deleted.",
        ),
        (
            """
{
  "type": "function_call_output",
  "call_id": "call_123",
  "output": "approved result"
}
""",
            "Not deleted: no reason.",
        ),
    ],
    ids=["approval", "output"],
)
def test_a_run_that_waits(every: httpx.Client, streamed: bool, answer: str, text: str) -> None:
    """A run that waits is incomplete, and both resume payloads of the page go on with it.

    An output is handed to the agent as it came; this one wants an approval.
    """
    asking = {"model": "approves", "input": "go"}
    if streamed:
        name, data = stream(every, asking)[-1]
        assert name == "response.incomplete"
        waiting = data["response"]
    else:
        waiting = every.post("/responses", json=asking).json()
    assert (waiting["status"], waiting["incomplete_details"]) == ("incomplete", {"reason": "approval_required"})
    (asked,) = waiting["output"]
    payload = json.loads(answer.replace("approval_123", asked["id"]).replace("call_123", asked["call_id"]))
    body = {"model": "approves", "previous_response_id": waiting["id"], "input": [payload]}
    done = every.post("/responses", json=body).json()
    assert (done["status"], done["run_id"], done["output_text"]) == ("completed", waiting["run_id"], text)


def test_an_answer_that_nobody_waits_for(every: httpx.Client) -> None:
    """A resume payload for a run that does not wait is refused."""
    done = every.post("/responses", json={"model": "tools", "input": "go"}).json()
    payload = {"type": "function_call_output", "call_id": "call_123", "output": "approved result"}
    body = {"model": "tools", "previous_response_id": done["id"], "input": [payload]}
    assert every.post("/responses", json=body).json()["error"]["code"] == "call_not_found"


@pytest.mark.parametrize(
    ("model", "event", "status"),
    [("fails", "response.failed", "failed"), ("cut-off", "response.incomplete", "incomplete")],
)
def test_other_ends(every: httpx.Client, model: str, event: str, status: str) -> None:
    """A failure is `response.failed`; an answer that was cut off is `response.incomplete`."""
    name, data = stream(every, {"model": model, "input": "go"})[-1]
    assert (name, data["response"]["status"]) == (event, status)
