"""What Responses and Chat share."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runstone.core.content import DataPart, FilePart, ImagePart, Part, RefusalPart, TextPart
from runstone.core.items import FileItem, Item, Message, Reasoning, ToolResult
from runstone.core.runs import Usage
from runstone.errors import (
    BODY_LIMIT,
    AlreadyDecided,
    BackendTimeout,
    Conflict,
    CursorExpired,
    CursorUnknown,
    IdempotencyConflict,
    InvalidRequest,
    LimitExceeded,
    LocalProtocolError,
    NotAllowed,
    NotFound,
    RunActive,
    RunnerError,
    RunstoneError,
    StorageUnavailable,
    Unsupported,
)
from runstone.protocols.openai import chat_usage, error_body, known_usage, responses_usage, usage_from_wire
from runstone.protocols.parts import (
    blobs_of,
    bytes_of_base64,
    data_url,
    part_from_wire,
    part_to_chat,
    part_to_responses,
    parts_from_wire,
)

# -- parts


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "a"}, TextPart(text="a")),
        ({"type": "input_text", "text": "a"}, TextPart(text="a")),
        (
            {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}], "logprobs": []},
            TextPart(text="a", annotations=[{"type": "url_citation"}]),
        ),
        ({"type": "refusal", "refusal": "No."}, RefusalPart(text="No.")),
        ({"type": "image_url", "image_url": {"url": "HTTPS://x.example/a"}}, ImagePart(url="HTTPS://x.example/a")),
        ({"type": "image_url", "image_url": "http://x.example"}, ImagePart(url="http://x.example")),
        ({"type": "input_image", "file_id": "file-1", "detail": "high"}, ImagePart(file_id="file-1", detail="high")),
        (
            {"type": "input_image", "image_url": "data:image/png;base64,cG5n", "file_id": None},
            ImagePart(content=b"png", media_type="image/png"),
        ),
        ({"type": "input_file", "file_id": "file-1"}, FilePart(file_id="file-1")),
        ({"type": "input_file", "file_url": "https://x.example/a.pdf"}, FilePart(url="https://x.example/a.pdf")),
        (
            {"type": "input_file", "filename": "notes.txt", "file_data": "data:text/plain;charset=utf-8;base64,aGk="},
            FilePart(content=b"hi", media_type="text/plain;charset=utf-8", name="notes.txt", is_data_url=True),
        ),
        ({"type": "input_file", "file_data": "aGk="}, FilePart(content=b"hi")),
        ({"type": "file", "file": {"file_data": "", "filename": "e"}}, FilePart(content=b"", name="e")),
        ({"type": "file", "file": {"file_id": "file-1"}}, FilePart(file_id="file-1")),
        ({"text": "legacy"}, TextPart(text="legacy")),
        ({"inlineData": {"mimeType": "image/png", "data": "cG5n"}}, ImagePart(content=b"png", media_type="image/png")),
        (
            {"inlineData": {"mimeType": "text/plain", "data": "aGk=", "displayName": "a.txt"}},
            FilePart(content=b"hi", media_type="text/plain", name="a.txt"),
        ),
        ({"fileData": {"fileUri": "https://x.example/a"}}, FilePart(url="https://x.example/a")),
        (
            {"fileData": {"fileUri": "file-1", "mimeType": "image/png"}},
            ImagePart(file_id="file-1", media_type="image/png"),
        ),
    ],
)
def test_blocks_of_both_protocols_are_read(block: dict[str, Any], part: Part) -> None:
    """Each block of Chat and Responses, and each legacy shape, becomes its part."""
    assert part_from_wire(block, "content[0]") == part


@pytest.mark.parametrize(
    ("block", "param"),
    [
        ("text", "c[0]"),
        ({}, "c[0].type"),
        ({"type": 3}, "c[0].type"),
        ({"type": "video"}, "c[0].type"),
        ({"type": "input_audio", "input_audio": {"data": ""}}, "c[0].type"),
        ({"type": "text"}, "c[0].text"),
        ({"type": "text", "text": 1}, "c[0].text"),
        ({"type": "image_url"}, "c[0]"),
        ({"type": "image_url", "image_url": {}}, "c[0].image_url.url"),
        ({"type": "image_url", "image_url": 7}, "c[0].image_url"),
        ({"type": "input_image", "image_url": "https://x.example", "file_id": "f"}, "c[0]"),
        ({"type": "input_image", "image_url": "file:///etc/passwd"}, "c[0].image_url"),
        ({"type": "input_image", "image_url": "ftp://x.example/a"}, "c[0].image_url"),
        ({"type": "input_image", "image_url": "cG5n"}, "c[0].image_url"),
        ({"type": "input_image", "image_url": "https://x.example/a\nb"}, "c[0].image_url"),
        ({"type": "input_image", "image_url": "data:image/png;base64"}, "c[0].image_url"),
        ({"type": "input_image", "image_url": "data:image/png;base64,@@"}, "c[0].image_url"),
        ({"type": "input_file"}, "c[0]"),
        ({"type": "input_file", "file_id": "f", "file_data": "aGk="}, "c[0]"),
        ({"type": "input_file", "file_data": "not base64!"}, "c[0].file_data"),
        ({"type": "input_file", "file_data": "a"}, "c[0].file_data"),
        ({"type": "input_file", "file_url": "javascript:alert(1)"}, "c[0].file_url"),
        ({"type": "file", "file": {"file_data": "data:;base64,é"}}, "c[0].file.file_data"),
        ({"inlineData": {"mimeType": "image/png"}}, "c[0].inlineData.data"),
        ({"fileData": {"fileUri": "gs://bucket/a"}}, "c[0].fileData.fileUri"),
    ],
)
def test_a_bad_block_is_named(block: Any, param: str) -> None:
    """What is wrong with a block is refused with its path; a scheme other than http, https and data never gets in."""
    with pytest.raises(InvalidRequest) as caught:
        parts_from_wire([block], "c")
    assert caught.value.param == param


def test_a_long_wrong_value_is_shown_short() -> None:
    """The refusal of a huge value does not repeat it."""
    with pytest.raises(InvalidRequest) as caught:
        part_from_wire({"type": "input_image", "image_url": "x" * 10_000_000}, "c")
    assert len(caught.value.message) < 300


@given(st.binary(max_size=60))
def test_every_way_to_send_bytes_gives_the_same(content: bytes) -> None:
    """A base64 data URL, a percent-encoded one, raw base64, and both with line breaks or without padding are the same bytes."""
    text = base64.b64encode(content).decode()
    ways = [
        f"data:application/pdf;base64,{text}",
        f"DATA:application/pdf;BASE64,{quote(text, safe='')}",
        f"data:application/pdf,{quote(content, safe='')}",
        text,
        "\n".join(text[n : n + 4] for n in range(0, len(text), 4)),
        text.rstrip("="),
    ]
    for way in ways:
        part = part_from_wire({"type": "input_file", "file_data": way}, "c")
        assert isinstance(part, FilePart)
        assert part.content == content


@given(st.binary(max_size=60), st.sampled_from(["raw", "url"]))
def test_a_stored_file_is_given_back_as_it_was_sent(content: bytes, way: str) -> None:
    """A file comes back as the data URL or the base64 text that was sent, in both protocols."""
    text = base64.b64encode(content).decode()
    sent = text if way == "raw" else f"data:text/plain;charset=utf-8;base64,{text}"
    part = part_from_wire({"type": "input_file", "file_data": sent, "filename": "a"}, "c")
    assert isinstance(part, FilePart)
    stored = FilePart(blob="b", media_type=part.media_type, name=part.name, is_data_url=part.is_data_url)
    assert part_to_responses(stored, {"b": content}) == {"type": "input_file", "file_data": sent, "filename": "a"}
    assert part_to_chat(stored, {"b": content}) == {"type": "file", "file": {"file_data": sent, "filename": "a"}}


@pytest.mark.parametrize(
    ("part", "chat", "responses"),
    [
        (
            TextPart(text="a"),
            {"type": "text", "text": "a"},
            {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
        ),
        (RefusalPart(text="N"), {"type": "refusal", "refusal": "N"}, {"type": "refusal", "refusal": "N"}),
        (
            ImagePart(url="https://x.example"),
            {"type": "image_url", "image_url": {"url": "https://x.example"}},
            {"type": "input_image", "image_url": "https://x.example", "detail": "auto"},
        ),
        (
            ImagePart(file_id="file-1", detail="low"),
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "input_image", "file_id": "file-1", "detail": "low"},
        ),
        (
            FilePart(url="https://x.example", name="n"),
            {"type": "file", "file": {"file_url": "https://x.example", "filename": "n"}},
            {"type": "input_file", "file_url": "https://x.example", "filename": "n"},
        ),
        (
            DataPart(data={"a": 1}),
            {"type": "text", "text": '{"a":1}'},
            {"type": "output_text", "text": '{"a":1}', "annotations": [], "logprobs": []},
        ),
    ],
)
def test_parts_go_out_in_both_spellings(part: Part, chat: dict[str, Any], responses: dict[str, Any]) -> None:
    """Each part has one block in Chat and one in Responses."""
    assert part_to_chat(part, {}) == chat
    assert part_to_responses(part, {}, output=True) == responses


def test_texts_of_the_user_are_input() -> None:
    """A text outside an output message is input_text."""
    assert part_to_responses(TextPart(text="a"), {}) == {"type": "input_text", "text": "a"}


def test_content_is_a_string_or_blocks() -> None:
    """A string is one text, null is nothing, anything else is refused."""
    assert parts_from_wire("a", "c") == [TextPart(text="a")]
    assert parts_from_wire(None, "c") == []
    with pytest.raises(InvalidRequest):
        parts_from_wire({"text": "a"}, "c")


def test_the_blobs_that_are_needed_are_listed() -> None:
    """References in messages, files and results are found, each once."""
    items: list[Item] = [
        Message(item_id="1", role="user", parts=[TextPart(text="a"), ImagePart(blob="b1"), FilePart(url="https://x")]),
        FileItem(item_id="2", parts=[FilePart(blob="b2")]),
        ToolResult(item_id="3", call_id="c", output=[ImagePart(blob="b1"), FilePart(blob="b3")]),
        Reasoning(item_id="4", text="b4"),
    ]
    assert blobs_of(items) == {"b1", "b2", "b3"}


def test_base64_of_another_alphabet_is_refused() -> None:
    """Characters outside base64's alphabet are never skipped."""
    for text in ("aGk-", "aG k_", "aGk=aGk=", "====", "a"):
        with pytest.raises(InvalidRequest):
            bytes_of_base64(text, "p")
    assert data_url(None, b"hi") == "data:;base64,aGk="


# -- usage


def test_usage_in_both_spellings() -> None:
    """Counts have each protocol's names; Responses has its details always, Chat where somebody counted."""
    usage = Usage(input_tokens=3, output_tokens=4, total_tokens=7, cached_tokens=1, reasoning_tokens=2)
    chat = {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    responses = {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 7,
    }
    assert (chat_usage(usage), responses_usage(usage)) == (chat, responses)
    assert usage_from_wire(chat) == usage_from_wire(responses) == usage


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (Usage(input_tokens=3, output_tokens=4), (3, 4, 7)),
        (Usage(input_tokens=3, total_tokens=7), (3, 4, 7)),
        (Usage(output_tokens=4, total_tokens=7), (3, 4, 7)),
        (Usage(total_tokens=7), None),
        (Usage(input_tokens=3), None),
        (Usage(), None),
        (None, None),
    ],
)
def test_usage_is_computed_but_never_invented(usage: Usage | None, counts: tuple[int, int, int] | None) -> None:
    """A count that follows from the others is filled in; with less than that there is no usage."""
    wire = chat_usage(usage)
    told = None if wire is None else (wire["prompt_tokens"], wire["completion_tokens"], wire["total_tokens"])
    assert told == counts
    assert (responses_usage(usage) is None) is (counts is None)


def test_history_shows_what_is_known() -> None:
    """A total alone is shown alone."""
    assert known_usage(Usage(total_tokens=30)) == {"total_tokens": 30}
    assert known_usage(Usage(input_tokens=1, output_tokens=2))["total_tokens"] == 3


@pytest.mark.parametrize("value", [None, 3, [], {}, {"prompt_tokens": "3"}, {"prompt_tokens": True}])
def test_foreign_usage_without_numbers_is_none(value: Any) -> None:
    """What is no whole number is unknown."""
    assert usage_from_wire(value) is None


# -- errors


@pytest.mark.parametrize(
    ("error", "status", "type", "param", "code"),
    [
        (InvalidRequest("x", param="messages"), 400, "invalid_request_error", "messages", None),
        (InvalidRequest("x", param="n", code="invalid_type"), 400, "invalid_request_error", "n", "invalid_type"),
        (NotAllowed("x"), 401, "authentication_error", None, "invalid_api_key"),
        (NotAllowed("x", code="forbidden"), 403, "permission_error", None, "forbidden"),
        (NotFound("model", "m", param="model"), 404, "invalid_request_error", "model", "model_not_found"),
        (
            NotFound("response", "r", param="previous_response_id", code="previous_response_not_found"),
            400,
            "invalid_request_error",
            "previous_response_id",
            "previous_response_not_found",
        ),
        (RunActive("x", run_id="r"), 400, "invalid_request_error", "conversation", "conversation_locked"),
        (IdempotencyConflict("x"), 400, "invalid_request_error", None, "idempotency_conflict"),
        (AlreadyDecided("x"), 400, "invalid_request_error", None, "already_decided"),
        (Conflict("x", code="history_mismatch"), 400, "invalid_request_error", None, "history_mismatch"),
        (CursorUnknown("abc", expected="a number"), 400, "invalid_request_error", None, "cursor_unknown"),
        (CursorExpired("3", oldest=None), 400, "invalid_request_error", None, "cursor_expired"),
        (LimitExceeded("x", limit=BODY_LIMIT, value=1), 413, "invalid_request_error", None, "limit_exceeded"),
        (LimitExceeded("x", limit="file_bytes", value=1), 400, "invalid_request_error", None, "limit_exceeded"),
        (Unsupported("x", capability="n", param="n"), 400, "invalid_request_error", "n", "unsupported_parameter"),
        (StorageUnavailable("disk path"), 503, "server_error", None, "storage_unavailable"),
        (RunnerError("The agent failed."), 500, "server_error", None, "agent_error"),
        (BackendTimeout("host"), 500, "server_error", None, "internal_error"),
        (LocalProtocolError("bug"), 500, "server_error", None, "internal_error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, RunstoneError) else "",
)
def test_each_error_has_its_answer(
    error: RunstoneError, status: int, type: str, param: str | None, code: str | None
) -> None:
    """Status, type, param and code of each error of the tree; never a status that the official clients send again."""
    answer = error_body(error)
    body = answer.body["error"]
    assert (answer.status, body["type"], body["param"], body["code"]) == (status, type, param, code)
    assert set(body) >= {"message", "type", "param", "code"}
    if status == 500:
        assert answer.headers["x-should-retry"] == "false"
    if status == 503:
        assert int(answer.headers["retry-after"]) > 0


def test_our_own_troubles_are_not_described() -> None:
    """The message of a storage, backend or internal error stays inside; that of an agent's error is shown."""
    for error in (StorageUnavailable("secret"), BackendTimeout("secret"), LocalProtocolError("secret")):
        assert "secret" not in error_body(error).body["error"]["message"]
    assert error_body(RunnerError("No key.")).body["error"]["message"] == "No key."


def test_a_conflict_names_the_run_in_the_way() -> None:
    """The active run's id is beside the message."""
    assert error_body(RunActive("x", run_id="run_1")).body["error"]["run_id"] == "run_1"
    assert "run_id" not in error_body(Conflict("x")).body["error"]


@pytest.mark.parametrize("text", ["data:image/png;base64,...", "..."])
def test_the_placeholder_of_the_examples_is_empty_content(text: str) -> None:
    """Where the contract's examples write `...` for bytes, they are taken as they stand; anything near it is refused."""
    file = part_from_wire({"type": "input_file", "filename": "notes.txt", "file_data": text}, "input[0]")
    assert isinstance(file, FilePart)
    assert file.content == b""
    with pytest.raises(InvalidRequest):
        part_from_wire({"type": "input_file", "filename": "notes.txt", "file_data": text + "."}, "input[0]")
