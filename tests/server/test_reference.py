"""The published contract is the one in use."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from runstone.protocols.chat import request as chat
from runstone.protocols.responses.body import DEFAULTS
from runstone.server.contract import OPERATIONS
from runstone.server.openapi import document
from runstone.server.operations import LABELS, Label
from runstone.server.reference import page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_the_table() -> None:
    """docs/reference/http.md is what the table makes."""
    assert (DOCS / "reference" / "http.md").read_text(encoding="utf-8") == page()


def test_labels_are_four() -> None:
    """Every label has a meaning."""
    assert set(LABELS) == set(get_args(Label))


def test_the_document_is_complete() -> None:
    """Every operation has an id of its own, a label, and names the places in its path."""
    operations = [(path, op) for path, methods in document("1")["paths"].items() for op in methods.values()]
    assert len(operations) == len(OPERATIONS)
    assert len({op["operationId"] for _, op in operations}) == len(operations)
    for path, op in operations:
        named = {p["name"] for p in op.get("parameters", []) if p["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_what_the_readers_take_is_in_the_table() -> None:
    """Each field that is handed to the agent or echoed is documented, for both protocols."""
    fields = {op.path: {field.name for field in op.body} for op in OPERATIONS if op.body and op.method == "POST"}
    assert set(chat.OPTIONS) <= fields["/v1/chat/completions"]
    assert set(DEFAULTS) <= fields["/v1/responses"]
