"""History as Hermes' rows and pages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runstone.core.content import DataPart, FilePart, ImagePart, TextPart
from runstone.core.events import Event
from runstone.core.items import FileItem, Item, Message, Reasoning, ToolCall, ToolResult, user_message
from runstone.core.runs import PendingApproval, Run, RunFailure, Session, Usage
from runstone.core.transcript import ActiveRun, HistoryRow, Page, fold
from runstone.protocols.hermes.history import (
    message_id,
    messages_page,
    open_rows,
    place_of,
    rows_of,
    session_state,
)
from runstone.protocols.hermes.sessions import MessagesQuery
from tests.protocols.strategies import runs

AT = 1_760_000_000.5
KEYS = {"id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "token_count"}
KEYS |= {"finish_reason", "reasoning", "reasoning_content"}


def rows(*items: Item, run_id: str | None = "r1", first: int = 1) -> list[HistoryRow]:
    """Rows of the items, one position each; the first of a run is its input."""
    return [
        HistoryRow(position=n, ordinal=0, at=AT + n, item=item, run_id=run_id, seq=n, is_input=n == first)
        for n, item in enumerate(items, first)
    ]


def said(text: str, step: str = "s1", **fields: Any) -> Message:
    """A message of the assistant."""
    return Message(item_id=f"m{text[:3]}", role="assistant", parts=[TextPart(text=text)], step=step, **fields)


def run(id: str = "r1", **fields: Any) -> Run:
    """A run."""
    common = {"id": id, "owner": "local", "session_id": "s-1", "agent": "echo", "turn": id, "created_at": AT}
    return Run(**{**common, "status": "completed", **fields})


SESSION = Session(id="s-1", owner="local", agent="echo", created_at=1.0, updated_at=2.0, title="T")


@given(st.integers(0, 9_000_000_000), st.integers(0, 999_999))
def test_ids_can_be_taken_apart(position: int, ordinal: int) -> None:
    """An id is a whole number that JavaScript can hold, and gives back its place."""
    id = message_id(position, ordinal)
    assert place_of(id) == (position, ordinal)
    assert id < 2**53


@given(runs())
def test_ids_rise_and_keys_are_always_there(events: list[Event]) -> None:
    """Rows of any run have Hermes' twelve keys and the run's id, and their ids rise."""
    wires = rows_of(fold("r1", events).rows, "s-1")
    assert all(wire.keys() >= KEYS | {"run_id", "display_kind"} for wire in wires)
    ids = [wire["id"] for wire in wires]
    assert ids == sorted(set(ids))
    assert {wire["run_id"] for wire in wires} <= {"r1"}


def test_what_a_step_said_is_one_row() -> None:
    """Reasoning, text and calls of a step are one row; the tool's result is the next, joined by the call id."""
    call = ToolCall(item_id="c", call_id="c1", name="weather", arguments='{"city":"北京"}', step="s1")
    result = ToolResult(item_id="t", call_id="c1", name="weather", output=[DataPart(data={"temp": 20})], step="s1")
    thought = Reasoning(item_id="r", text="需要查天气", step="s1")
    wires = rows_of(
        rows(user_message("in1", "北京天气"), thought, said("我查一下"), call, result, said("20 度", "s2")), "s-1"
    )
    assert [wire["role"] for wire in wires] == ["user", "assistant", "tool", "assistant"]
    assistant, tool, last = wires[1:]
    assert (assistant["content"], assistant["reasoning"], assistant["finish_reason"]) == (
        "我查一下",
        "需要查天气",
        "tool_calls",
    )
    assert assistant["tool_calls"] == [
        {
            "id": "c1",
            "call_id": "c1",
            "response_item_id": "c",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city":"北京"}'},
        }
    ]
    assert (tool["tool_call_id"], tool["tool_name"], tool["content"]) == ("c1", "weather", '{"temp":20}')
    assert (last["finish_reason"], last["timestamp"]) == ("stop", AT + 6)


def test_a_second_text_of_a_step_is_a_row_of_its_own() -> None:
    """Two texts of one step, and texts without steps, are not glued together."""
    assert len(rows_of(rows(user_message("in1", "?"), said("a"), said("b")), "s-1")) == 3
    plain = [Message(item_id=f"m{n}", role="assistant", parts=[TextPart(text="x")]) for n in range(2)]
    assert len(rows_of(rows(user_message("in1", "?"), *plain), "s-1")) == 3


def test_a_failed_tool_says_so_twice() -> None:
    """A failed tool's content is an object with the reason, and the row says `is_error`."""
    result = ToolResult(item_id="t", call_id="c1", output=[TextPart(text="no")], is_error=True)
    [wire] = rows_of(rows(result, first=2), "s-1")
    assert (wire["content"], wire["is_error"]) == ('{"error":"no"}', True)


def test_an_unfinished_text_has_no_finish_reason() -> None:
    """The text of a run that ended in the middle has `finish_reason` null, as Hermes' interrupted rows."""
    wires = rows_of(rows(user_message("in1", "?"), said("hal", status="incomplete")), "s-1")
    assert wires[1]["finish_reason"] is None


def test_steering_is_marked() -> None:
    """Input that came while the run was going is a user row of the kind `steer`; the run's first input is not."""
    steer = HistoryRow(
        position=5, ordinal=0, at=AT, item=user_message("in_2", "more"), run_id="r1", seq=5, is_input=True
    )
    wires = rows_of([*rows(user_message("in1", "?")), steer], "s-1")
    assert [wire["display_kind"] for wire in wires] == [None, "steer"]


def test_content_is_text_and_parts_stand_beside_it() -> None:
    """Pictures and files are words in brackets in `content`; `parts` has them as they were sent when the bytes are given."""
    message = Message(
        item_id="in1",
        role="user",
        parts=[
            TextPart(text="see "),
            ImagePart(url="https://x/y"),
            ImagePart(blob="b1", media_type="image/png"),
            FilePart(name="a.pdf", blob="b2", media_type="application/pdf"),
            ImagePart(file_id="f1"),
        ],
    )
    [wire] = rows_of(rows(message), "s-1", blobs={"b1": b"hi"})
    assert wire["content"] == "see [image][image][file: a.pdf][image]"
    assert wire["parts"] == [
        {"type": "text", "text": "see "},
        {"type": "image_url", "image_url": {"url": "https://x/y"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "text", "text": "[file: a.pdf]"},
        {"type": "file", "file": {"file_id": "f1"}},
    ]
    file = FileItem(item_id="f", parts=[FilePart(name="b.txt", file_id="f2")])
    [wire] = rows_of(rows(file, first=2), "s-1")
    assert wire["parts"] == [{"type": "file", "file": {"file_id": "f2", "filename": "b.txt"}}]


# -- pages


def test_a_page_says_what_the_contract_asks_for() -> None:
    """The page has rows, paging, the runs of all rows with outcome and times, the session's status and the active run."""
    done = run(ended_at=AT + 9, usage=Usage(total_tokens=30), model="m")
    live = run("r2", status="running")
    page = Page(
        rows=rows(user_message("in1", "?"), said("a")) + rows(user_message("in1", "!"), run_id="r2", first=3),
        runs=[done, live],
        active=ActiveRun(run_id="r2", status="running", seq=42),
        open_items=[said("hal", status="incomplete")],
    )
    wire = messages_page(page, SESSION, live, MessagesQuery())
    assert (wire["object"], wire["session_id"]) == ("list", "s-1")
    assert wire["pagination"] == {"limit": 500, "offset": 0, "order": "latest", "returned": 4}
    assert wire["runs"] == [
        {
            "id": "r1",
            "status": "completed",
            "created_at": AT,
            "finished_at": AT + 9,
            "model": "m",
            "usage": {"total_tokens": 30},
        },
        {"id": "r2", "status": "running", "created_at": AT, "last_event_id": "42"},
    ]
    assert wire["active_run"] == {"run_id": "r2", "event_id": "42"}
    assert wire["session"] == {"id": "s-1", "status": "running", "title": "T", "metadata": {"backendStatus": "running"}}
    assert (wire["cursor"], wire["has_more"]) == (None, False)
    assert {row["run_id"] for row in wire["data"]} <= {one["id"] for one in wire["runs"]}
    last = wire["data"][-1]
    assert (last["content"], last["finish_reason"], last["timestamp"]) == ("hal", None, None)
    assert last["id"] > wire["data"][-2]["id"]


def test_a_tool_that_runs_has_no_open_row() -> None:
    """Of the open items, those that said something have rows; without an active run there are none."""
    running = ToolResult(item_id="t", call_id="c1", output=[])
    active = ActiveRun(run_id="r1", status="running", seq=3)
    assert open_rows(Page(rows=[], runs=[], active=active, open_items=[running, said("a")]), "s-1")[0]["content"] == "a"
    assert open_rows(Page(rows=[], runs=[]), "s-1") == []


TALK = [user_message("in1", "1"), said("2", "a"), said("3", "b"), said("4", "c"), said("5", "d")]


def page_of(items: list[Item], *, first: int = 1, before: str | None = None) -> Page:
    """A page of these items."""
    return Page(rows=rows(*items, first=first), runs=[], before=before)


@pytest.mark.parametrize(
    ("query", "contents", "has_more"),
    [
        (MessagesQuery(), "12345", False),
        (MessagesQuery(limit=2), "45", True),
        (MessagesQuery(limit=2, offset=1), "34", True),
        (MessagesQuery(limit=2, order="oldest"), "12", False),
        (MessagesQuery(limit=2, offset=1, order="oldest"), "23", True),
        (MessagesQuery(limit=2, offset=9), "", False),
        (MessagesQuery(limit=0), "", False),
    ],
)
def test_limit_offset_and_order_count_rows(query: MessagesQuery, contents: str, has_more: bool) -> None:
    """`latest` counts from the end, `oldest` from the beginning; `has_more` says whether older rows exist."""
    wire = messages_page(page_of(list(TALK)), SESSION, None, query)
    assert "".join(row["content"] for row in wire["data"]) == contents
    assert wire["has_more"] == has_more
    assert wire["pagination"]["returned"] == len(contents)


def test_pages_fit_together() -> None:
    """The cursor of a page is where the next older one ends, also when the page was cut in the middle of a step."""
    call = ToolCall(item_id="c", call_id="c1", name="t", arguments="{}", step="a")
    items: list[Item] = [user_message("in1", "1"), said("2", "a"), call, said("3", "b"), said("4", "c")]
    newest = messages_page(
        Page(rows=rows(*items)[2:], runs=[], before="3.0"), SESSION, None, MessagesQuery(limit=2, before=None)
    )
    assert [row["content"] for row in newest["data"]] == ["3", "4"]
    assert newest["cursor"] == "4.0"
    older = messages_page(Page(rows=rows(*items)[:3], runs=[]), SESSION, None, MessagesQuery(limit=2, before="4.0"))
    assert [(row["content"], row["tool_calls"] is not None) for row in older["data"]] == [("1", False), ("2", True)]
    assert older["cursor"] is None


def test_the_first_rows_leave_out_one_that_may_be_half() -> None:
    """Of the oldest rows, the last is left out when newer items were not read: its step may go on."""
    wire = messages_page(page_of(list(TALK)), SESSION, None, MessagesQuery(order="oldest"), is_cut=True)
    assert "".join(row["content"] for row in wire["data"]) == "1234"


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
def test_session_status_is_one_of_four_words(status: Any, word: str) -> None:
    """The contract's word is in `status`, ours in `metadata.backendStatus`; Hermes' own fields are not shown as metadata."""
    session = Session(
        id="s", owner="l", agent="a", created_at=1, updated_at=1, metadata={"k": "v", "hermes_model": "m"}
    )
    state = session_state(session, run(status=status))
    assert (state["status"], state["metadata"]) == (word, {"k": "v", "backendStatus": status})
    assert session_state(session, None)["status"] == "idle"


def test_a_bad_end_is_beside_the_rows() -> None:
    """A failed run says why, a waiting one what for, in `runs`."""
    failed = run(status="failed", reason="x", error=RunFailure(code="c", message="m"))
    waiting = run("r2", status="waiting", approvals=[PendingApproval(approval_id="a1", kind="confirm")])
    wire = messages_page(Page(rows=[], runs=[failed, waiting]), SESSION, waiting, MessagesQuery())
    assert wire["runs"][0]["error"] == {"code": "c", "message": "m"} and wire["runs"][0]["reason"] == "x"
    assert wire["runs"][1]["status"] == "waiting_for_approval"
    assert wire["runs"][1]["approvals"] == [{"approval_id": "a1", "kind": "confirm"}]
