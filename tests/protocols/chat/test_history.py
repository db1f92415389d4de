"""History as Chat messages and runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from runstone.core.content import DataPart, FilePart, ImagePart, Part, RefusalPart, TextPart
from runstone.core.events import Event
from runstone.core.items import ApprovalItem, FileItem, Item, Message, Reasoning, ToolCall, ToolResult, user_message
from runstone.core.runs import PendingApproval, Run, RunFailure, Session, Usage
from runstone.core.transcript import ActiveRun, HistoryRow, Page, fold
from runstone.protocols.chat.history import history_page, tool_content
from runstone.protocols.chat.request import start_from_chat
from tests.protocols.strategies import runs

SESSION = Session(
    id="s-1", owner="local", agent="echo", created_at=1.0, updated_at=2.0, title="北京天气", metadata={"a": 1}
)


def run(id: str = "s-1:run:1", **fields: Any) -> Run:
    """A run of the session."""
    given: dict[str, Any] = {"created_at": 1_760_000_001.9, "status": "completed", **fields}
    return Run(id=id, owner="local", session_id="s-1", agent="echo", turn="t1", **given)


def rows(run_id: str | None, *items: Item, at: float = 1_760_000_001.2, inputs: int = 1) -> list[HistoryRow]:
    """The items as rows, one second apart; the first `inputs` are the run's input."""
    return [
        HistoryRow(position=n, ordinal=0, at=at + n, item=item, run_id=run_id, is_input=n < inputs)
        for n, item in enumerate(items)
    ]


def messages(*items: Item, **page: Any) -> list[dict[str, Any]]:
    """The messages of one run, without ids and times."""
    wire = history_page(Page(rows=rows("r1", *items), runs=[], **page), SESSION, None)
    common = {"id", "run_id", "created_at"}
    return [{key: value for key, value in message.items() if key not in common} for message in wire["messages"]]


def assistant(id: str, text: str, step: str | None = None) -> Message:
    """An assistant's message of one text."""
    return Message(item_id=id, role="assistant", parts=[TextPart(text=text)], step=step)


def call(id: str, call_id: str, step: str | None = None) -> ToolCall:
    """A call of the weather tool."""
    return ToolCall(item_id=id, call_id=call_id, name="weather", arguments='{"city":"北京"}', step=step)


def test_the_page_is_the_contracts_example() -> None:
    """The example of the backend contract comes out field by field, with session and active run beside it."""
    first, second = "s-1:run:ab12:1", "s-1:run:ab12:2"
    page = Page(
        rows=[
            HistoryRow(
                position=1,
                ordinal=0,
                at=1_760_000_000.5,
                item=Message(item_id="m0", role="system", parts=[TextPart(text="你是助手")]),
                origin="client",
            ),
            *rows(
                first,
                user_message("in1", "北京天气"),
                Reasoning(item_id="i1", text="需要查天气", step="s1"),
                assistant("i2", "我查一下", "s1"),
                call("i3", "call-1", "s1"),
                ToolResult(item_id="i4", call_id="call-1", output=[DataPart(data={"temp": 20})], step="s1"),
                assistant("i5", "北京 20 度", "s2"),
            ),
            *rows(second, user_message("in1", "上海呢"), at=1_760_000_010.0),
        ],
        runs=[
            run(first, model="model-a", usage=Usage(total_tokens=30), ended_at=1_760_000_005.5),
            run(second, status="running", created_at=1_760_000_010.0),
        ],
        before="before-m0",
        active=ActiveRun(run_id=second, status="running", seq=42),
        open_items=[assistant("i1", "上海", "s1")],
    )
    expected = json.loads((Path(__file__).parent / "pages" / "contract.json").read_text(encoding="utf-8"))
    assert history_page(page, SESSION, page.runs[1]) == expected


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("queued", "running"),
        ("running", "running"),
        ("waiting", "idle"),
        ("completed", "idle"),
        ("cancelled", "idle"),
        ("failed", "error"),
        ("interrupted", "error"),
    ],
)
def test_the_session_has_one_of_four_words(status: Any, word: str) -> None:
    """The session's status is the contract's word, ours stands in backendStatus."""
    session = history_page(Page(rows=[], runs=[]), SESSION, run(status=status))["session"]
    assert (session["status"], session["metadata"]["backendStatus"]) == (word, status)


def test_an_idle_session_says_so() -> None:
    """Without a run the session is idle, active_run is null and there is nothing before the page."""
    page = history_page(Page(rows=[], runs=[]), SESSION, None)
    assert (page["session"]["status"], page["active_run"], page["cursor"], page["has_more"]) == (
        "idle",
        None,
        None,
        False,
    )


def test_a_run_tells_why_it_ended_and_what_it_waits_for() -> None:
    """Reason, error and pending approvals are with the run."""
    failed = run(status="interrupted", reason="worker_lost", error=RunFailure(code="worker_lost", message="Gone."))
    waits = run(
        "r2", status="waiting", approvals=[PendingApproval(approval_id="appr_1", kind="confirm", prompt="Sure?")]
    )
    wire = history_page(Page(rows=[], runs=[failed, waits]), SESSION, waits)["runs"]
    assert (wire[0]["reason"], wire[0]["error"]) == ("worker_lost", {"code": "worker_lost", "message": "Gone."})
    assert wire[1]["approvals"] == [{"approval_id": "appr_1", "kind": "confirm", "prompt": "Sure?"}]


@pytest.mark.parametrize(
    ("output", "is_error", "content"),
    [
        ([TextPart(text="timeout")], True, '{"error":"timeout"}'),
        ([DataPart(data={"code": 1})], True, '{"error":"{\\"code\\":1}"}'),
        ([DataPart(data={"error": "none"})], False, '{"result":{"error":"none"}}'),
        ([TextPart(text=' {"error": null}')], False, '{"result":{"error":null}}'),
        ([TextPart(text='{"\\u0065rror": 1}')], False, '{"result":{"error":1}}'),
        ([TextPart(text='{"error": 1, "b": 2}')], False, '{"error": 1, "b": 2}'),
        ([TextPart(text='"error"')], False, '"error"'),
        ([TextPart(text="20 C")], False, "20 C"),
        ([TextPart(text="a"), TextPart(text="b")], False, "ab"),
        ([], False, ""),
        (
            [TextPart(text="a"), ImagePart(url="https://x.example/i")],
            False,
            '[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://x.example/i"}}]',
        ),
    ],
)
def test_only_a_failure_looks_like_one(output: list[Part], is_error: bool, content: str) -> None:
    """A failed tool's content is exactly an error object; a success that would look so is wrapped."""
    assert tool_content(ToolResult(item_id="i", call_id="c", output=output, is_error=is_error), {}) == content


def test_a_step_without_text_is_one_message() -> None:
    """Calls alone, or reasoning alone, have content null."""
    assert messages(user_message("in1", "x"), call("i1", "c1", "s1"), call("i2", "c2", "s1"))[1]["content"] is None
    assert messages(user_message("in1", "x"), Reasoning(item_id="i1", text="hm", step="s1"))[1] == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
    }


def test_a_result_parts_the_texts_of_a_step_but_not_its_calls() -> None:
    """A text after a tool result is a new message; a call of the step before it still joins its message."""
    result = ToolResult(item_id="i3", call_id="c1", output=[TextPart(text="1")], step="s1")
    told = messages(
        user_message("in1", "x"),
        assistant("i1", "a", "s1"),
        call("i2", "c1", "s1"),
        result,
        call("i4", "c2", "s1"),
        assistant("i5", "b", "s1"),
    )
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "assistant"]
    assert [one["id"] for one in told[1]["tool_calls"]] == ["c1", "c2"]
    assert told[3]["content"] == "b"


def test_without_steps_neighbours_join() -> None:
    """Reasoning, text and calls of a run without steps join while nothing is between them; two texts never do."""
    told = messages(
        user_message("in1", "x"),
        Reasoning(item_id="i1", text="hm"),
        assistant("i2", "a"),
        call("i3", "c1"),
        assistant("i4", "b"),
        user_message("u2", "more"),
        call("i5", "c2"),
    )
    assert [message["role"] for message in told] == ["user", "assistant", "assistant", "user", "assistant"]
    assert told[1]["reasoning_content"] == "hm"
    assert [one["id"] for one in told[1]["tool_calls"]] == ["c1"]


def test_parts_are_shown_as_they_were_sent() -> None:
    """A user's blocks come back as blocks, with stored bytes as the data URL or base64 that was sent."""
    parts: list[Part] = [
        TextPart(text="Look"),
        ImagePart(blob="b1", media_type="image/png", detail="low"),
        FilePart(blob="b2", media_type="text/plain", name="a.txt", is_data_url=True),
        FilePart(blob="b2", name="b.txt"),
        ImagePart(blob="gone", media_type="image/png"),
    ]
    page = Page(rows=rows("r1", Message(item_id="in1", role="user", parts=parts)), runs=[])
    [message] = history_page(page, SESSION, None, blobs={"b1": b"png", "b2": b"txt"})["messages"]
    assert message["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:text/plain;base64,dHh0", "filename": "a.txt"}},
        {"type": "file", "file": {"file_data": "dHh0", "filename": "b.txt"}},
        {"type": "image_url", "image_url": {"url": ""}},
    ]


def test_what_chat_has_no_word_for() -> None:
    """Approvals are left out, files of the agent are content blocks, a refusal has its field, an open tool no message."""
    told = messages(
        user_message("in1", "x"),
        ApprovalItem(item_id="a1", approval_id="a1", approval_kind="confirm"),
        FileItem(item_id="i1", parts=[FilePart(file_id="file-1", name="r.csv")]),
        Message(item_id="i2", role="assistant", parts=[RefusalPart(text="No.")]),
        active=ActiveRun(run_id="r1", status="running", seq=9),
        open_items=[ToolResult(item_id="i9", call_id="c9", output=[], is_error=True, synthetic=True)],
    )
    assert told[1:] == [
        {"role": "assistant", "content": [{"type": "file", "file": {"file_id": "file-1", "filename": "r.csv"}}]},
        {"role": "assistant", "content": None, "refusal": "No."},
    ]


@given(runs())
def test_every_message_of_any_run_can_be_sent_back(events: list[Event]) -> None:
    """The messages of any run are JSON, have ids of their own, and are legal messages of a next request."""
    transcript = fold("r1", events)
    seq = transcript.last_seq
    active = None if transcript.state.ended else ActiveRun(run_id="r1", status="running", seq=seq)
    page = Page(rows=transcript.rows, runs=[], active=active, open_items=transcript.open_items)
    told = json.loads(json.dumps(history_page(page, SESSION, None)["messages"]))
    assert len({message["id"] for message in told}) == len(told)
    assert {message["run_id"] for message in told} == {"r1"}
    sent = start_from_chat({"messages": told}).start.input
    items = [row.item for row in transcript.rows]
    calls = {item.call_id: item.arguments for item in items if isinstance(item, ToolCall)}
    back = {item.call_id: item.arguments for item in sent if isinstance(item, ToolCall)}
    assert calls.items() <= back.items()
    for item in items:
        if isinstance(item, ToolResult):
            [result] = [one for one in sent if isinstance(one, ToolResult) and one.call_id == item.call_id]
            assert result.is_error == item.is_error
