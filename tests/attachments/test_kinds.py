"""What a file is, and when its name lies."""

from __future__ import annotations

import pytest

from runstone.attachments.kinds import claimed_kind, kind_of, lies

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.mark.parametrize(
    ("content", "name", "media_type", "kind"),
    [
        (b"%PDF-1.7\n", "a.docx", DOCX, "pdf"),
        (b"\n%PDF-1.7\n", "a", None, "pdf"),
        (b"\x89PNG\r\n\x1a\n", "a.txt", "text/plain", "image"),
        (b"\xff\xd8\xff\xe0", "a", None, "image"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "a", None, "image"),
        (b"\x00\x00\x00\x20ftypheic", "a", None, "image"),
        (b"plain words", "a.pdf", "application/pdf", "text"),
        (b"plain words", "a.md", "text/plain", "markdown"),
        (b"plain words", "a.md", None, "markdown"),
        (b"plain words", "a.txt", "text/markdown; charset=utf-8", "markdown"),
        (b"a,b", "a.csv", "application/vnd.ms-excel", "csv"),
        (b"a,b", "a.csv", "application/octet-stream", "csv"),
        (b'{"a": 1}', "a", None, "json"),
        (b"{not json", "a", None, "text"),
        (b"{not json", "a.json", None, "json"),
        (b"\xef\xbb\xbf <!DOCTYPE HTML>", "a.txt", "text/plain", "html"),
        (b"BM is a word", "a.txt", None, "text"),
        (b"\x7fELF\x02\x01\x01\x00\x00\x00\x00", "a.txt", "text/plain", "unknown"),
        (b"", "a.csv", None, "csv"),
        (b"\xff\xfea\x00", "a.txt", None, "text"),
        (b"words", ".gitignore", None, "text"),
    ],
)
def test_content_then_media_type_then_name(content: bytes, name: str, media_type: str | None, kind: str) -> None:
    """Content decides first, then the declared media type, then the name."""
    assert kind_of(content, name=name, media_type=media_type) == kind


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        (["[Content_Types].xml", "word/document.xml"], "docx"),
        (["[Content_Types].xml", "ppt/presentation.xml"], "pptx"),
        (["[Content_Types].xml", "xl/workbook.xml"], "xlsx"),
        (["[Content_Types].xml"], "zip"),
        (["word/document.xml"], "zip"),
    ],
)
def test_entries_tell_office_files_from_zip(entries: list[str], kind: str) -> None:
    """The names inside a ZIP file tell which Office format it is, whatever its own name says."""
    assert kind_of(b"PK\x03\x04", name="a.zip", media_type=None, entries=entries) == kind


def test_damaged_zip_is_what_it_claims() -> None:
    """A ZIP file whose entries are not known is of the kind that it claims, if that kind is a ZIP underneath."""
    assert kind_of(b"PK\x03\x04", name="a.docx", media_type=None) == "docx"
    assert kind_of(b"PK\x03\x04", name="a.pdf", media_type=None) == "zip"


def test_lies_name_the_claim_and_the_content() -> None:
    """A name or media type that disagrees with the content is told in one sentence each."""
    assert lies("pdf", name="a.docx", media_type=DOCX) == [
        "The file name says that this is a Word document, but the content is a PDF file.",
        "The declared media type says that this is a Word document, but the content is a PDF file.",
    ]
    assert lies("docx", name="a.doc", media_type=None) == [
        "The file name says that this is an old Office file, but the content is a Word document."
    ]


def test_no_lie_within_a_family() -> None:
    """Plain kinds go as each other, and an Office file goes as ZIP."""
    assert lies("markdown", name="a.txt", media_type="text/html") == []
    assert lies("docx", name="a.zip", media_type="application/octet-stream") == []
    assert lies("unknown", name="a.doc", media_type="application/msword") == []


def test_claimed_kind() -> None:
    """Without content the media type is believed before the name, and silence is unknown."""
    assert claimed_kind("a.pdf", "image/png") == "image"
    assert claimed_kind("a.pdf", None) == "pdf"
    assert claimed_kind("a.doc", None) == "unknown"
    assert claimed_kind("a", "application/octet-stream") == "unknown"
