"""The names under which user code reads the input."""

from __future__ import annotations

import msgspec
import pytest

from runstone.core.content import DataPart, FilePart, ImagePart, RefusalPart, TextPart
from runstone.core.items import FileItem, Item, Message, Reasoning, ToolCall, ToolResult, user_message
from runstone.core.runs import Settings
from runstone.errors import ConfigError, RunnerError
from runstone.runners.hooks import Hooks, hooks_in, prepared_state, with_contexts
from runstone.runners.payload import (
    attached_parts,
    bytes_of_data_url,
    chat_messages,
    chat_rows,
    data_url,
    runner_payload,
)
from runstone.testing import run_request


class Extracted(msgspec.Struct, kw_only=True):
    """What the extraction of an attachment looks like."""

    kind: str = "text"
    status: str = "ok"
    text: str = ""
    excerpt: str = ""
    size_bytes: int = 0
    warnings: list[str] = []
    details: dict[str, object] = {}


NOTE = FilePart(name="n.txt", blob="b1", media_type="text/plain")
PHOTO = ImagePart(url="https://example.org/p.png", detail="low")
ASKED = Message(item_id="in1", role="user", parts=[TextPart(text="look"), NOTE, PHOTO])


def test_the_turn_in_all_its_forms() -> None:
    """Blocks, older parts and messages say the same; settings come along; what is unknown is absent."""
    system = Message(item_id="in0", role="system", parts=[TextPart(text="kind")])
    payload = runner_payload(
        run_request(input=[system, ASKED], settings=Settings(model="m", model_options={"a": 1}), metadata={"k": "v"}),
        blobs={"b1": b"hi"},
    )
    blocks = [
        {"type": "input_text", "text": "look"},
        {"type": "input_file", "filename": "n.txt", "file_data": "data:text/plain;base64,aGk="},
        {"type": "input_image", "image_url": "https://example.org/p.png", "detail": "low"},
    ]
    assert payload == {
        "session_id": "session_1",
        "invocation_id": "run_1",
        "input": "look",
        "input_content": blocks,
        "input_messages": [
            {"role": "system", "content": [{"type": "input_text", "text": "kind"}]},
            {"role": "user", "content": blocks},
        ],
        "input_parts": [
            {"text": "look"},
            {"inlineData": {"data": "aGk=", "displayName": "n.txt", "mimeType": "text/plain"}},
            {"fileData": {"fileUri": "https://example.org/p.png"}},
        ],
        "history": [],
        "current_attachments": payload["attachments"],
        "current_attachment_results": [],
        "has_current_files": True,
        "attachments": [
            {"display_name": "n.txt", "mime_type": "text/plain", "transport": "inline", "file_uri": "b1"},
            {"display_name": "image", "transport": "reference", "file_uri": "https://example.org/p.png"},
        ],
        "attachment_results": [],
        "model": "m",
        "model_options": {"a": 1},
        "model_metadata": {},
        "request_metadata": {"k": "v"},
    }


@pytest.mark.parametrize(
    ("extracted", "fields"),
    [
        (
            Extracted(text="hi", excerpt="h", size_bytes=2),
            {"kind": "text", "status": "ok", "extraction_method": "text_decode", "text": "hi", "text_excerpt": "h"},
        ),
        (
            Extracted(
                kind="pdf", status="truncated", text="x" * 200_000, excerpt="x", warnings=["long"], details={"pages": 3}
            ),
            {
                "kind": "document",
                "status": "partial",
                "extraction_method": "pdf_native",
                "text": "x" * 200_000,
                "text_excerpt": "x",
                "warnings": ["long"],
                "details": {"pages": 3},
                "text_truncated": True,
            },
        ),
        (Extracted(kind="unknown", status="unsupported"), {"kind": "binary", "status": "failed"}),
    ],
)
def test_results_of_attachments(extracted: Extracted, fields: dict[str, object]) -> None:
    """One result per file that was looked at, in the other system's words; how much text there is, is the extraction's matter."""
    payload = runner_payload(run_request(input=[ASKED]), extractions={"b1": extracted})
    (result,) = payload["current_attachment_results"]
    assert result["display_name"] == "n.txt"
    assert {key: result[key] for key in fields} == fields
    assert payload["attachment_results"] == [result]


def test_attachments_fall_back_to_the_newest_turn_that_had_any() -> None:
    """A turn without files has none of its own, and the effective ones of before."""
    older = Message(item_id="a", role="user", parts=[FilePart(name="old", blob="b0")])
    answer = Message(item_id="b", role="assistant", parts=[TextPart(text="ok")])
    history: list[Item] = [older, answer, ASKED, answer, user_message("c", "and?"), answer]
    request = run_request("more", history=history)
    payload = runner_payload(request, extractions={"b1": Extracted(text="hi")})
    assert attached_parts(request) == [NOTE, PHOTO]
    assert payload["current_attachments"] == []
    assert payload["current_attachment_results"] == []
    assert payload["has_current_files"] is False
    assert [one["display_name"] for one in payload["attachments"]] == ["n.txt", "image"]
    assert [one["text"] for one in payload["attachment_results"]] == ["hi"]


def test_chat_messages_are_what_any_model_takes() -> None:
    """Results follow their call wherever they came; what has no place in Chat is left out."""
    items: list[Item] = [
        ToolCall(item_id="a", call_id="1", name="f", arguments="{}", step="s1"),
        Message(item_id="b", role="assistant", parts=[TextPart(text="meanwhile")], step="s2"),
        ToolResult(item_id="c", call_id="1", output=[DataPart(data={"x": 1})]),
        ToolCall(item_id="d", call_id="2", name="open", arguments="{}", step="s2"),
        ToolResult(item_id="e", call_id="9", output=[TextPart(text="of nobody")]),
        Reasoning(item_id="f", text="hm"),
        FileItem(item_id="g", parts=[]),
        Message(item_id="h", role="assistant", parts=[RefusalPart(text="no")], step="s3"),
    ]
    assert chat_messages(items) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": '{"x": 1}'}]},
        {"role": "assistant", "content": "meanwhile"},
        {"role": "assistant", "content": "no"},
    ]


def test_rows_of_user_code_become_chat_blocks() -> None:
    """Responses' blocks are turned, everything else is left as it is."""
    rows = [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "u", "detail": "low"},
                {"type": "input_file", "filename": "f", "file_data": "d"},
                {"type": "other"},
            ],
        },
        {"role": "user", "content": "text"},
        "not a dict",
    ]
    assert chat_rows(rows) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
                {"type": "file", "file": {"filename": "f", "file_data": "d"}},
                {"type": "other"},
            ],
        },
        {"role": "user", "content": "text"},
        "not a dict",
    ]


@pytest.mark.parametrize(
    ("url", "content"),
    [(data_url(b"\x00x", None), b"\x00x"), ("data:,a%20b", b"a b"), ("data:;base64,%%", None), ("http://x/,", None)],
)
def test_data_urls(url: str, content: bytes | None) -> None:
    """Both encodings are read; what is none, or damaged, gives nothing."""
    assert bytes_of_data_url(url) == content


# -- hooks


async def context_hook(payload: dict[str, object]) -> object:
    """Knows something."""
    return payload["input"]


async def silent_hook(payload: dict[str, object]) -> object:
    """Knows nothing."""
    return None


def test_hooks_are_found_by_name() -> None:
    """The other system's prefix wins; something that cannot be called is refused."""
    found = hooks_in({"kb_context": silent_hook, "ksadk_kb_context": context_hook, "other": 1})
    assert found == Hooks(kb_context=context_hook)
    with pytest.raises(ConfigError, match="'prepare_state' is a 'int', expected a function"):
        hooks_in({"prepare_state": 7})


async def test_contexts_are_there_when_a_hook_knows_something() -> None:
    """A hook that gives None leaves its name out."""
    hooks = Hooks(kb_context=context_hook, memory_context=silent_hook)
    assert await with_contexts({"input": "x"}, hooks) == {"input": "x", "kb_context": "x"}


async def test_a_state_must_be_a_dict() -> None:
    """The error names what it was."""
    with pytest.raises(RunnerError, match="prepare_state gave a 'list', expected a dict"):
        await prepared_state(lambda payload: [], {"session_id": "s", "history": []})
