"""Our frames beside those of a real server, for the same run; every difference is a row in a table here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from runstone.core.content import TextPart
from runstone.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Body,
    InputReceived,
    InputSettled,
    ItemEnded,
    ItemStarted,
    RunContinued,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    TextDelta,
)
from runstone.core.items import Message, ToolCall, ToolResult, user_message
from runstone.core.runs import Outcome, RunFailure, Usage
from runstone.protocols.hermes.types import Vocabulary
from tests.protocols.hermes.support import stream
from tests.protocols.strategies import numbered

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.sse"))
Frames = list[tuple[str, dict[str, Any]]]

#: Events of the real server that we never send, and why.
NOT_OURS = {
    "reasoning.available": "it is the answer again, cut at 500 characters, not reasoning",
    "message.interim": "it is the answer again",
    "assistant.commentary": "it is the answer again",
    "tool.progress": "under the name `_thinking` it is the answer again",
}
#: Events that the real server does not send here, and why we do.
OURS = {
    "session": {
        "approval.responded": "who watches learns of a decision",
        "error": "some clients know no other bad end",
    },
    "runs": {"input.delivered": "steering says what became of it"},
}
#: Fields that the real server has and we leave out: we know no provider, and tokens written to a cache are not told to us.
MISSING = {"*": {"runtime"}}
#: Fields that we have beside those of the real server.
ADDED = {
    "tool.started": {"tool_call_id", "args"},
    "tool.completed": {"tool_call_id", "duration", "result"},
    "approval.request": {"approval_id", "kind", "tool_call_id", "tool_name", "arguments", "prompt"},
    "approval.responded": {"approval_id", "decision", "request_id"},
    "run.steered": {"input_id", "text"},
    "run.failed": {"error", "error_code"},
    "run.cancelled": {"output"},
}
#: Fields whose values differ by their nature: numbers of frames, times, ids, and what only Hermes' shell tool knows.
VARIES = {"seq", "ts", "timestamp", "duration", "message_id", "session_id", "run_id", "pattern_key", "pattern_keys"}
VARIES |= {"allow_session", "allow_permanent", "usage", "messages", "message"}


def read(path: Path) -> Frames:
    """The frames of a recording: name and data."""
    frames = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            data = json.loads(fields["data"])
            frames.append((fields.get("event") or data.pop("event"), data))
    return frames


class _Retold:
    """A recording as the run that would have made it here."""

    def __init__(self, frames: Frames) -> None:
        self.bodies: list[Body] = [RunCreated(agent="echo", input=[user_message("in1", "?")]), RunStarted()]
        self._frames = frames
        self._text = ""
        self._count = 0
        self._call: ToolCall | None = None
        self._approval: str | None = None
        self._inputs: list[str] = []
        self._results = [row for _, data in frames for row in data.get("messages", []) if row["role"] == "tool"]
        for n, (name, data) in enumerate(frames):
            if name not in NOT_OURS:
                self._read(name, data, frames[n + 1][0] if n + 1 < len(frames) else "")

    def _read(self, name: str, data: dict[str, Any], following: str) -> None:
        match name:
            case "run.started":
                self.bodies[0] = RunCreated(agent="echo", input=[user_message("in1", data["user_message"]["content"])])
            case "assistant.delta" | "message.delta":
                self._delta(data["delta"])
            case "tool.started":
                self._tool(data, waits=following == "approval.request")
            case "approval.request":
                self._ask(data)
            case "approval.responded":
                self._decide("denied" if data["choice"] == "deny" else "approved")
            case "run.steered":
                self._inputs.append(f"in_{len(self._inputs)}")
                self.bodies.append(InputReceived(input_id=self._inputs[-1], content=[user_message("u", "more")]))
            case "tool.completed" | "tool.failed":
                self._result(data)
            case _ if name.startswith("run."):
                self._end(name.removeprefix("run."), data)

    def _delta(self, text: str) -> None:
        if not self._text:
            self._count += 1
            self.bodies.append(ItemStarted(item_id=f"i{self._count}", kind="message"))
            text = text.removeprefix("\n\n")
        self._text += text
        self.bodies.append(TextDelta(item_id=f"i{self._count}", text=text))

    def _close(self) -> None:
        if self._text:
            message = Message(item_id=f"i{self._count}", role="assistant", parts=[TextPart(text=self._text)])
            self.bodies.append(ItemEnded(item=message))
        self._text = ""

    def _tool(self, data: dict[str, Any], *, waits: bool) -> None:
        self._close()
        name = data.get("tool") or data["tool_name"]
        arguments = json.dumps(data.get("args") or {"command": data["preview"]})
        self._call = ToolCall(item_id="c1", call_id="call_1", name=name, arguments=arguments)
        self.bodies += [
            ItemStarted(item_id="c1", kind="tool_call", call_id="call_1", name=name),
            ItemEnded(item=self._call),
        ]
        if not waits:
            self._run()

    def _run(self) -> None:
        self.bodies.append(ItemStarted(item_id="r1", kind="tool_result", call_id="call_1"))

    def _ask(self, data: dict[str, Any]) -> None:
        assert self._call is not None
        self._approval = data["request_id"]
        asked = ApprovalRequested(
            approval_id=data["request_id"],
            kind="confirm",
            call_id="call_1",
            name=self._call.name,
            arguments=self._call.arguments,
            prompt=data["description"],
            choices=data["choices"],
        )
        self.bodies += [asked, RunPaused(approvals=[data["request_id"]])]

    def _decide(self, decision: Any) -> None:
        if self._approval is not None:
            self.bodies += [ApprovalDecided(approval_id=self._approval, decision=decision), RunContinued()]
            self._run()
        self._approval = None

    def _result(self, data: dict[str, Any]) -> None:
        self._decide("approved")
        text = data["preview"] or self._results.pop(0)["content"]
        failed = bool(data.get("error"))
        result = ToolResult(item_id="r1", call_id="call_1", output=[TextPart(text=text)], is_error=failed)
        self.bodies.append(ItemEnded(item=result))
        self.bodies += [InputSettled(input_id=id, outcome="delivered") for id in self._inputs]
        self._inputs = []

    def _end(self, outcome: str, data: dict[str, Any]) -> None:
        if outcome not in get_args(Outcome):
            return
        self._close()
        usage = data.get("usage", {})
        error = (
            RunFailure(code="agent_error", message=data.get("error") or "it failed") if outcome == "failed" else None
        )
        self.bodies.append(
            RunEnded(
                outcome=outcome,  # type: ignore[arg-type]
                reason=data.get("turn_exit_reason"),
                error=error,
                usage=Usage(input_tokens=usage.get("input_tokens"), output_tokens=usage.get("output_tokens")),
            )
        )


def comparable(frames: Frames, left_out: dict[str, str]) -> Frames:
    """The frames that both servers send."""
    return [(name, data) for name, data in frames if name not in left_out]


@pytest.mark.parametrize("file", RECORDED, ids=[file.stem for file in RECORDED])
def test_frames_equal_those_of_a_real_server(file: Path) -> None:
    """For the same run we send the same events in the same order with the same fields, but for the listed differences."""
    vocabulary: Vocabulary = "session" if file.stem.startswith("session") else "runs"
    recorded = read(file)
    frames, is_over = stream(numbered(_Retold(recorded).bodies), vocabulary)
    assert is_over
    own: Frames = []
    for frame in frames:
        data = json.loads(frame.data)
        own.append((frame.event or data.pop("event"), data))
    theirs, ours = comparable(recorded, NOT_OURS), comparable(own, OURS[vocabulary])
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    for (name, mine), (_, real) in zip(ours, theirs, strict=True):
        # On the session stream the real server repeats name and time inside an approval.
        real = {key: value for key, value in real.items() if key not in ("event", "timestamp") or vocabulary == "runs"}
        assert real.keys() - mine.keys() <= MISSING["*"], name
        assert mine.keys() - real.keys() <= ADDED.get(name, set()), name
        for key in (mine.keys() & real.keys()) - VARIES:
            check_value(name, key, mine[key], real[key])


def check_value(name: str, key: str, mine: Any, real: Any) -> None:
    """Equal, but for the spaces that Hermes strips, and for what a real `tool.completed` leaves null."""
    if real is None or (name == "assistant.completed" and "API key" in str(real)):
        return
    if isinstance(real, str) and key in ("content", "output"):
        mine = mine.strip()
    if key == "error" and isinstance(mine, dict):
        mine = mine["message"]
    assert mine == real, (name, key)


def test_the_recordings_have_every_end_but_interrupted() -> None:
    """Both vocabularies are compared, over completed, failed and cancelled runs, tools, approvals and steering."""
    names = {(file.stem.split("_")[0], name) for file in RECORDED for name, _ in read(file)}
    wanted = {("session", "run.completed"), ("session", "run.failed"), ("session", "approval.request")}
    wanted |= {("runs", f"run.{word}") for word in ("completed", "failed", "cancelled", "steered")}
    assert wanted | {("runs", "approval.responded"), ("runs", "tool.completed")} <= names
