from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runstone.core.content import TextPart
from runstone.core.items import ApprovalItem, FileItem, Item, Reasoning, ToolCall, ToolResult, user_message
from runstone.protocols.responses.ids import (
    approval_response_id,
    item_id_of,
    legs_from_response_id,
    refs_from_item_id,
    response_id,
)

RUN_IDS = st.from_regex(r"[A-Za-z0-9_.:-]{1,40}", fullmatch=True)


@given(RUN_IDS, st.integers(0, 300))
def test_response_id_leads_back(run_id: str, leg: int) -> None:
    """A response id can be read as the leg that it was made of, whatever the client called the run."""
    assert (run_id, leg) in legs_from_response_id(response_id(run_id, leg))


def test_whole_run_id_is_tried_first() -> None:
    """An id that may be a later leg or a run that is called so is tried as the run first."""
    assert legs_from_response_id("resp_job_2") == [("job_2", 0), ("job", 2)]
    assert legs_from_response_id("resp_run_01k0") == [("run_01k0", 0)]
    assert legs_from_response_id("resp_job_02") == [("job_02", 0)]


@pytest.mark.parametrize("id", ["", "resp_", "run_1", "chatcmpl-1"])
def test_no_response_id(id: str) -> None:
    """What is no response id stands for nothing."""
    assert legs_from_response_id(id) == []


@given(RUN_IDS, st.text(min_size=1, max_size=20))
def test_item_id_leads_back(run_id: str, own: str) -> None:
    """An item's id leads back to its run and its own id, also with underscores, tildes and slashes in them."""
    id = item_id_of(run_id, user_message(own, "hi"))
    assert refs_from_item_id(id)[-1] == (run_id, own)
    assert "/" not in id.removeprefix(f"msg_{run_id}")


ITEMS: list[tuple[Item, str]] = [
    (user_message("i1", "x"), "msg_r_i1"),
    (FileItem(item_id="i1", parts=[]), "msg_r_i1"),
    (Reasoning(item_id="i1", text=""), "rs_r_i1"),
    (ToolCall(item_id="i1", call_id="c", name="n", arguments=""), "fc_r_i1"),
    (ToolResult(item_id="i1", call_id="c", output=[TextPart(text="")]), "mcp_r_i1"),
    (ToolResult(item_id="i1", call_id="c", output=[], executor="client"), "fco_r_i1"),
    (ApprovalItem(item_id="mcpr_1", approval_id="mcpr_1", approval_kind="confirm"), "mcpr_1"),
]


@pytest.mark.parametrize(("item", "id"), ITEMS, ids=[id for _, id in ITEMS])
def test_prefix_says_the_kind(item: Item, id: str) -> None:
    """Each kind of item has its prefix; an approval keeps its own id, since clients send it back."""
    assert item_id_of("r", item) == id


def test_item_of_a_client_keeps_its_id() -> None:
    """An item that no run made has its own id and nothing else."""
    assert item_id_of(None, user_message("msg_abc", "x")) == "msg_abc"
    assert refs_from_item_id("msg_abc") == [(None, "msg_abc")]


def test_decision_leads_to_its_approval() -> None:
    """The id of a decision's item stands for the approval."""
    assert refs_from_item_id(approval_response_id("mcpr_1"))[0] == (None, "mcpr_1")
