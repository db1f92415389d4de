from __future__ import annotations

import itertools
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItemList
from openai.types.conversations.conversation_item import ConversationItem
from openai.types.responses import ResponseItemList
from openai.types.responses.response_item import ResponseItem

from runstone.core.content import FilePart, TextPart
from runstone.core.events import ApprovalDecided, ApprovalRequested, RunContinued, RunCreated, RunPaused, RunStarted
from runstone.core.items import ApprovalItem, FileItem, Item, Message, Reasoning, ToolCall, ToolResult, user_message
from runstone.core.runs import Session
from runstone.core.transcript import HistoryRow, fold
from runstone.errors import InvalidRequest, LimitExceeded, NotFound
from runstone.protocols.responses.encode import response_body
from runstone.protocols.responses.history import (
    PageQuery,
    calls_missing,
    conversation_from_wire,
    conversation_object,
    deleted_conversation,
    deleted_response,
    input_items,
    item_list,
    items_from_body,
    items_from_rows,
    items_page,
    metadata_from_wire,
    page_of,
    page_query,
)
from runstone.protocols.responses.types import Style
from tests.protocols.responses.support import RUN_ID, by_type, header_of
from tests.protocols.strategies import PLAIN, Shape, numbered, runs

CONVERSATION_ITEMS = by_type(ConversationItem)
RESPONSE_ITEM: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseItem)
CALL = ToolCall(item_id="i1", call_id="c1", name="weather", arguments="{}")
RESULT = ToolResult(item_id="i2", call_id="c1", output=[TextPart(text="20")])


def rows_of(*items: Item, run_id: str | None = RUN_ID) -> list[HistoryRow]:
    """Rows of a run, or of a client."""
    return [HistoryRow(position=n, ordinal=0, at=0.0, item=item, run_id=run_id) for n, item in enumerate(items, 1)]


def ids() -> Any:
    """Words that count up."""
    counter = itertools.count(1)
    return lambda: f"n{next(counter)}"


@given(runs(Shape(rewrites=False, attempts=False, open_end=False, approvals=False, parallel=False)))
def test_conversation_equals_the_output(events: list[Any]) -> None:
    """The items of a run in a conversation are, in every field, those of its response."""
    rows = fold(RUN_ID, events).rows
    made = [row for row in rows if not row.is_input]
    shown = items_from_rows(made)
    output = response_body(header_of(), events)["output"]
    assert {item["id"]: item for item in shown} == {item["id"]: item for item in output}


@given(runs(PLAIN))
def test_items_of_a_conversation_are_official(events: list[Any]) -> None:
    """The official client's models take every item of any history strictly."""
    for item in items_from_rows(fold(RUN_ID, events).rows):
        CONVERSATION_ITEMS[item["type"]].model_validate(item, strict=True)


def test_server_call_is_one_item() -> None:
    """A call that the server ran and its result are one `mcp_call`, or a pair for readers of the second dialect."""
    (item,) = items_from_rows(rows_of(CALL, RESULT))
    assert (item["type"], item["id"]) == ("mcp_call", f"mcp_{RUN_ID}_i2")
    pair = items_from_rows(rows_of(CALL, RESULT), style=Style(dialect="ksadk"))
    assert [item["type"] for item in pair] == ["function_call", "function_call_output"]
    assert items_from_rows(rows_of(CALL, RESULT), style=Style(tools_as="hidden")) == []


def test_result_whose_call_is_on_an_earlier_page() -> None:
    """The run of a result without its call is named, and with the call known the item is whole."""
    rows = rows_of(RESULT)
    assert calls_missing(rows) == {RUN_ID}
    assert calls_missing(rows_of(CALL, RESULT)) == set()
    (item,) = items_from_rows(rows, known=[CALL])
    assert item["type"] == "mcp_call"
    assert (item["name"], item["arguments"]) == ("weather", "{}")


def test_decided_approval_is_two_items() -> None:
    """A decided approval is its request and the decision; the call that ran names it, with the arguments that ran."""
    asked = ApprovalItem(
        item_id="a", approval_id="a", approval_kind="confirm", call_id="c1", arguments='{"x":1}', decision="approved"
    )
    request, answer, call = items_from_rows(rows_of(CALL, asked, RESULT))
    assert (request["type"], answer["type"]) == ("mcp_approval_request", "mcp_approval_response")
    assert call["type"] == "mcp_call"
    assert (call["approval_request_id"], call["arguments"]) == ("a", '{"x":1}')


@pytest.mark.parametrize("decision", [None, "expired", "withdrawn"])
def test_approval_that_nobody_decided(decision: str | None) -> None:
    """A request that nobody answered has no answer in history."""
    asked = ApprovalItem(item_id="a", approval_id="a", approval_kind="input", prompt="Where?", decision=decision)
    (item,) = items_from_rows(rows_of(asked))
    assert item["type"] == "mcp_approval_request"


def test_file_of_the_agent_is_named() -> None:
    """A file that the agent made is named in a message, by its id when it has one."""
    parts = [FilePart(name="a.csv", file_id="file-1"), FilePart(blob="b1")]
    (item,) = items_from_rows(rows_of(FileItem(item_id="i1", parts=[*parts])))
    assert item["type"] == "message"
    assert [part["text"] for part in item["content"]] == ["[a.csv]", "[file]"]
    assert item["content"][0]["annotations"] == [{"type": "file_path", "file_id": "file-1", "index": 0}]


@given(runs(PLAIN), st.integers(1, 4), st.sampled_from(["asc", "desc"]))
def test_pages_show_every_item_once(events: list[Any], limit: int, order: Any) -> None:
    """Pages after each other, each from the row after the last one's, show every item of the history once, in order."""
    rows = fold(RUN_ID, events).rows
    whole = items_from_rows(rows)
    seen: list[Any] = []
    query = PageQuery(limit=limit, order=order)
    known = [row.item for row in rows]
    place = {item["id"]: n for n, row in enumerate(rows) for item in items_from_rows([row], known=known)}
    ordered = list(range(len(rows))) if order == "asc" else list(range(len(rows)))[::-1]
    count = query.rows
    while True:
        chosen = ordered[:count]
        there = [rows[n] for n in sorted(chosen)]
        page = items_page(there, query, has_more_rows=len(ordered) > len(chosen), known=known)
        seen += page["data"]
        if not page["has_more"]:
            break
        if not page["data"]:
            count *= 4
            continue
        count = query.rows
        last = place[str(page["last_id"])]
        ordered = ordered[ordered.index(last) + 1 :]
    assert seen == (whole if order == "asc" else whole[::-1])


def test_page_of_a_whole_list() -> None:
    """Newest first by default, `after` goes on from an item, and `has_more` says whether there is more."""
    items = items_from_rows(rows_of(*[user_message(f"in{n}", str(n)) for n in range(3)]))
    assert page_of(items, PageQuery())["data"] == items[::-1]
    first = page_of(items, PageQuery(limit=2, order="asc"))
    assert (first["data"], first["has_more"]) == (items[:2], True)
    second = page_of(items, PageQuery(limit=2, order="asc", after=first["last_id"]))
    assert (second["data"], second["has_more"]) == (items[2:], False)
    with pytest.raises(NotFound):
        page_of(items, PageQuery(after="msg_none"))


def test_lists_are_official() -> None:
    """The official client's models take the lists strictly, the empty one too."""
    items = items_from_rows(rows_of(user_message("in1", "a"), Reasoning(item_id="i1", text="b"), CALL, RESULT))
    for data in (items, []):
        shown = item_list(data)
        ConversationItemList.model_validate({**shown, "data": []}, strict=True)
        ResponseItemList.model_validate({**shown, "data": []}, strict=True)
    for item in items:
        RESPONSE_ITEM.validate_python(item, strict=True)


@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "101"}, {"limit": "x"}, {"limit": "٣"}, {"order": "up"}])
def test_bad_page_is_refused(params: dict[str, str]) -> None:
    """A limit outside 1 to 100 and an unknown order are refused."""
    with pytest.raises(InvalidRequest) as caught:
        page_query(params)
    assert caught.value.param in params


def test_page_of_a_query() -> None:
    """Twenty items, newest first, unless the query says otherwise."""
    assert page_query({}) == PageQuery(limit=20, order="desc", after=None)
    assert page_query({"limit": "5", "order": "asc", "after": "x"}) == PageQuery(limit=5, order="asc", after="x")


def test_input_items_of_the_first_leg() -> None:
    """The input of a run has ids, and its content is parts."""
    events = numbered([RunCreated(agent="a", input=[user_message("in1", "hi"), user_message("in2", "du")])])
    items = input_items(header_of(), events)
    assert [item["id"] for item in items] == [f"msg_{RUN_ID}_in1", f"msg_{RUN_ID}_in2"]
    assert items[0]["type"] == "message"
    assert items[0]["content"] == [{"type": "input_text", "text": "hi"}]
    for item in items:
        RESPONSE_ITEM.validate_python(item, strict=True)


def test_input_items_of_a_later_leg() -> None:
    """The input of a leg after a pause is what was decided: responses, and outputs of calls."""
    events = numbered(
        [
            RunCreated(agent="a", input=[user_message("in1", "hi")]),
            RunStarted(),
            ApprovalRequested(approval_id="a1", kind="confirm"),
            ApprovalRequested(approval_id="a2", kind="tool_output", call_id="c2"),
            RunPaused(approvals=["a1", "a2"]),
            ApprovalDecided(approval_id="a1", decision="denied", reason="no"),
            ApprovalDecided(approval_id="a2", decision="answered", value={"temp": 20}),
            RunContinued(),
        ]
    )
    denied, answered = input_items(header_of(1, 6), events)
    assert denied["type"] == "mcp_approval_response"
    assert (denied["approve"], denied["reason"], denied["approval_request_id"]) == (False, "no", "a1")
    assert answered["type"] == "function_call_output"
    assert (answered["call_id"], answered["output"]) == ("c2", '{"temp":20}')
    for item in (denied, answered):
        RESPONSE_ITEM.validate_python(item, strict=True)


def test_objects_are_official() -> None:
    """Conversations and what is left of deleted things are what the official client expects."""
    session = Session(id="c", owner="local", agent="a", created_at=5.7, updated_at=6.0, metadata={"k": "v"})
    Conversation.model_validate(conversation_object(session), strict=True)
    assert conversation_object(session) == {
        "id": "c",
        "object": "conversation",
        "created_at": 5,
        "metadata": {"k": "v"},
    }
    ConversationDeletedResource.model_validate(deleted_conversation("c"), strict=True)
    assert deleted_response("r") == {"id": "r", "object": "response", "deleted": True}


def test_new_conversation() -> None:
    """A conversation may begin with metadata and items, each item with a new id of its kind."""
    body = {
        "metadata": {"topic": "x"},
        "items": [
            {"role": "user", "content": "a"},
            {"type": "mcp_call", "name": "w", "arguments": "{}", "output": "1"},
        ],
    }
    made = conversation_from_wire(body, ids())
    assert made.metadata == {"topic": "x"}
    assert [item.item_id for item in made.items] == ["msg_n1", "fc_n2", "mcp_n3"]
    assert conversation_from_wire({}, ids()).items == []


def test_items_of_a_client_read_back() -> None:
    """What a client put into a conversation is shown as it was sent, under the ids that it was told."""
    made = items_from_body(
        {
            "items": [
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "two"}]},
            ]
        },
        ids(),
    )
    shown = items_from_rows(rows_of(*made, run_id=None))
    assert [item["id"] for item in shown] == ["msg_n1", "msg_n2"]
    assert [item["content"][0]["text"] for item in shown if item["type"] == "message"] == ["one", "two"]
    assert isinstance(made[0], Message)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "items"),
        ({"items": 1}, "items"),
        ({"items": [{"type": "nope"}]}, "items[0].type"),
        ({"items": [{"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}]}, "items"),
        ({"items": [{"type": "item_reference", "id": "x"}]}, "items"),
    ],
)
def test_wrong_items_of_a_client(body: object, param: str) -> None:
    """Items that are malformed, or no items of a conversation, are refused by their place."""
    with pytest.raises(InvalidRequest) as caught:
        items_from_body(body, ids())
    assert caught.value.param == param


def test_too_many_items() -> None:
    """At most 20 items are taken at once."""
    with pytest.raises(LimitExceeded):
        items_from_body({"items": [{"role": "user", "content": "a"}] * 21}, ids())


def test_metadata_of_an_update() -> None:
    """An update needs metadata, which have to be an object."""
    assert metadata_from_wire({"metadata": {"a": "b"}}) == {"a": "b"}
    for body in ({}, {"metadata": 1}):
        with pytest.raises(InvalidRequest):
            metadata_from_wire(body)
