"""Node: the openai package and Vercel's AI SDK, each in its newest major version and the one before it.

A program runs all of its scenarios and prints what they gave; the tests below look at that.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.interop import serving
from tests.interop.agents import REASONING

#: The first test may have to install the packages.
pytestmark = pytest.mark.timeout(300)
VERSIONS = {"newest": "", "previous": "-previous"}
KINDS = ["responses", "chat", "compatible"]


@cache
def results_of(program: str, *arguments: str) -> dict[str, Any]:
    """What a program gave, once for all tests."""
    return serving.node_results(program, *arguments)


@pytest.fixture(params=VERSIONS)
def openai(request: pytest.FixtureRequest, server: str, node: None) -> dict[str, Any]:
    """What the openai package makes of our agents."""
    return results_of("openai.mjs", f"openai{VERSIONS[request.param]}", f"{server}/v1")


@pytest.fixture(params=VERSIONS)
def vercel(request: pytest.FixtureRequest, server: str, node: None) -> dict[str, Any]:
    """What the AI SDK makes of our agents."""
    return results_of("vercel.mjs", VERSIONS[request.param], f"{server}/v1")


def test_openai_call_and_stream(openai: dict[str, Any]) -> None:
    """A call gives text and usage; a stream is typed and numbered."""
    created, stream = openai["create"], openai["stream"]
    assert (created["output_text"], created["status"], created["hasRequestId"]) == (
        "You said: Hello",
        "completed",
        True,
    )
    assert created["usage"]["total_tokens"] == 4
    assert (stream["types"][0], stream["types"][-1]) == ("response.created", "response.completed")
    assert (stream["numbers"], stream["text"]) == (list(range(len(stream["types"]))), "You said: Hello")


@pytest.mark.parametrize(
    ("scenario", "items", "text", "status"),
    [
        ("helper", ["message"], "You said: Go.", "completed"),
        ("helperThinks", ["reasoning", "message"], "The answer is 4.", "completed"),
        ("helperTools", ["message", "mcp_call", "message"], "Let me look. It is 20 degrees.", "completed"),
        ("helperToolFails", ["mcp_call", "message"], "I do not know.", "completed"),
        ("helperApproves", ["mcp_approval_request"], "", "completed"),
        ("helperClientTool", ["function_call"], "", "completed"),
        ("helperSilent", ["message"], "At last, an answer.", "completed"),
        ("helperCutOff", ["message"], "This sentence has no", "incomplete"),
        ("helperFails", ["message"], "So far ", "failed"),
    ],
)
def test_openai_helper(openai: dict[str, Any], scenario: str, items: list[str], text: str, status: str) -> None:
    """The accumulating helper, which throws at any event that it does not know, follows each kind of answer."""
    found = openai[scenario]
    assert (found.get("items"), found.get("text"), found.get("status")) == (items, text, status), found
    assert found["reasoning"] == (REASONING if scenario == "helperThinks" else "")


def test_openai_tool_of_the_client(openai: dict[str, Any]) -> None:
    """A declared tool is called, run and answered, over both protocols."""
    assert openai["clientTool"] == {
        "call": ["function_call", "get_weather", {"location": "San Francisco"}],
        "text": "The tool says: sunny",
    }
    assert openai["chatRunTools"] == {"asked": [{"location": "San Francisco"}], "text": "The tool says: sunny"}


@pytest.mark.parametrize(("scenario", "text"), [("approve", "It is deleted."), ("deny", "Not deleted: keep it.")])
def test_openai_approval(openai: dict[str, Any], scenario: str, text: str) -> None:
    """A question is an item, and its answer goes on with the run."""
    assert openai[scenario] == {
        "status": "completed",
        "asked": ["delete_file", {"path": "notes.txt"}],
        "text": text,
    }


def test_openai_resume_and_cancel(openai: dict[str, Any]) -> None:
    """A stream is read again from any place; a response is cancelled."""
    resumed = openai["resume"]
    assert (resumed["isSame"], resumed["text"], resumed["seen"][0]) == (True, "You said: One two", 4)
    assert openai["cancel"][1:] == ["cancelled", "cancelled"]


def test_openai_resources(openai: dict[str, Any]) -> None:
    """Conversations, files and models."""
    assert openai["conversation"] == {
        "text": "Your name is Alice.",
        "roles": ["user", "user", "assistant"],
        "deleted": True,
    }
    assert openai["files"] == {
        "name": "notes é.txt",
        "content": "é\n",
        "text": "You said with file: See",
        "deleted": True,
    }
    assert {"assistant", "tools"} <= set(openai["models"])
    assert openai["unknownModel"]["status"] == 404


@pytest.mark.parametrize(
    ("scenario", "status", "message"),
    [
        ("fails", "failed", "the oven is cold"),
        ("failsAtOnce", "failed", "The agent failed."),
        ("chatFails", 500, "the oven is cold"),
    ],
)
def test_openai_failure_runs_once(openai: dict[str, Any], scenario: str, status: object, message: str) -> None:
    """A failure says why, and is not tried again by the client."""
    found = openai[scenario]
    assert (found["status"], found["message"]) == (status, message)
    assert found["runs"] == "1"


def test_openai_chat(openai: dict[str, Any]) -> None:
    """Chat: calls, the accumulating helper, silence, a failure in the middle of a stream."""
    usage = {
        "prompt_tokens": 1,
        "completion_tokens": 3,
        "total_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    expected = {"message": "You said: Hello", "finish": "stop", "usage": usage}
    assert (openai["chatCreate"], openai["chatHelper"]) == (expected, expected)
    assert openai["chatSilent"] == "At last, an answer."
    assert openai["chatStreamFails"]["message"] == "the oven is cold"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("scenario", "text", "finish"),
    [
        ("text", "You said: Go.", "stop"),
        ("stream", "You said: Go.", "stop"),
        ("silent", "At last, an answer.", "stop"),
        ("thinks", "The answer is 4.", "stop"),
        ("streamThinks", "The answer is 4.", "stop"),
        ("cutOff", "This sentence has no", "length"),
        ("streamCutOff", "This sentence has no", "length"),
        ("clientTool", "The tool says: sunny in San Francisco", "stop"),
        ("streamClientTool", "The tool says: sunny in San Francisco", "stop"),
        ("memory", "Your name is Alice.", "stop"),
    ],
)
def test_vercel(vercel: dict[str, Any], kind: str, scenario: str, text: str, finish: str) -> None:
    """Each provider gives the text and why it ended, in calls and streams, without an error on the way."""
    found = vercel[f"{kind}.{scenario}"]
    assert (found.get("text"), found.get("finish"), found.get("errors", [])) == (text, finish, []), found


@pytest.mark.parametrize("kind", ["responses", "compatible"])
@pytest.mark.parametrize("scenario", ["thinks", "streamThinks"])
def test_vercel_reasoning(vercel: dict[str, Any], kind: str, scenario: str) -> None:
    """The providers that know of reasoning show it apart from the text."""
    assert vercel[f"{kind}.{scenario}"]["reasoning"] == REASONING


@pytest.mark.parametrize("scenario", ["tools", "streamTools"])
def test_vercel_tool_of_the_server(vercel: dict[str, Any], scenario: str) -> None:
    """A tool that the agent ran itself is a call with its result, and the answer ends as usual."""
    found = vercel[f"responses.{scenario}"]
    assert (found["text"], found["finish"]) == ("Let me look. It is 20 degrees.", "stop")
    assert {"tool-call", "tool-result"} <= set(found["content"])
    for kind in ("chat", "compatible"):
        assert vercel[f"{kind}.{scenario}"]["text"] == "Let me look. \n\nIt is 20 degrees."
        assert "tool-call" not in vercel[f"{kind}.{scenario}"]["content"]


@pytest.mark.parametrize(("scenario", "text"), [("approve", "It is deleted."), ("deny", "Not deleted: no reason.")])
def test_vercel_approval(vercel: dict[str, Any], scenario: str, text: str) -> None:
    """A question is answered in the next request, which repeats everything; so does the one after it."""
    assert vercel[scenario] == {"asked": "mcp.delete_file", "text": text, "later": "You said: Thanks"}
    assert "tool-approval-request" in vercel["streamApproves"]["content"]


def test_vercel_structured_output(vercel: dict[str, Any]) -> None:
    """A schema reaches the agent, and the answer is parsed by it."""
    assert vercel["output"] == {"city": "Rome", "asked_for": "place"}


@pytest.mark.parametrize("kind", KINDS)
def test_vercel_failure(vercel: dict[str, Any], kind: str) -> None:
    """A failure says why, after one run; over Chat that needs `maxRetries: 0`."""
    found, stream = vercel[f"{kind}.fails"], vercel[f"{kind}.streamFails"]
    assert found == {"message": "the oven is cold", "runs": "1"}
    assert (stream["finish"], stream["errors"]) == ("error", ["the oven is cold"])
