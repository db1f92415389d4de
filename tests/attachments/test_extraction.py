"""Each kind of file, read by a real worker."""

from __future__ import annotations

import asyncio
import io

import pypdf
import pytest

from runstone.attachments import Extraction, Extractor, Limits, reference
from runstone.errors import ConfigError
from tests.attachments import files


def extract(
    content: bytes, name: str = "file", media_type: str | None = None, limits: Limits | None = None
) -> Extraction:
    """One extraction in an event loop of its own."""
    return asyncio.run(Extractor(limits).extract(content=content, name=name, media_type=media_type))


def test_text() -> None:
    """Text comes out as it went in, with its size, its encoding and an excerpt."""
    found = extract(b"  hello\nworld\n", "a.txt", "text/plain", Limits(excerpt_chars=7))
    assert found == Extraction(
        name="a.txt",
        media_type="text/plain",
        kind="text",
        status="ok",
        text="  hello\nworld\n",
        excerpt="  hello",
        size_bytes=14,
        details={"encoding": "utf-8"},
    )


def test_markdown() -> None:
    """Markdown is kept as written."""
    found = extract(b"# Title\n\n* one\n", "a.md")
    assert (found.kind, found.status, found.text) == ("markdown", "ok", "# Title\n\n* one\n")


def test_json() -> None:
    """JSON is kept as written and checked."""
    found = extract(b'{"a": [1, 2]}', "a.json")
    assert (found.kind, found.text, found.details["valid"]) == ("json", '{"a": [1, 2]}', True)


def test_invalid_json_is_kept_and_told() -> None:
    """What is not valid JSON is still text, with a warning; endless nesting is not valid."""
    for content in (b"{oops", b"[" * 100_000):
        found = extract(content, "a.json")
        assert (found.kind, found.status, found.details["valid"]) == ("json", "ok", False)
        assert found.warnings == ["The file is not valid JSON."]


def test_csv() -> None:
    """CSV is kept as written; rows and columns are counted with quotes understood."""
    found = extract(b'a;b;c\n"1;\n2";3;4\n\n', "a.csv")
    assert (found.kind, found.details["rows"], found.details["columns"]) == ("csv", 2, 3)
    assert found.text == 'a;b;c\n"1;\n2";3;4\n\n'


def test_html() -> None:
    """HTML gives the visible words, a line per block, and no scripts."""
    page = b"""<!doctype html><html><head><title>T</title><style>p {}</style><script>x("<p>no</p>")</script></head>
    <body><h1>Head</h1><p>One &amp; <b>two</b>
    three</p><table><tr><td>1</td><td>2</td></tr></table><img src="http://localhost:1/x.png"></body></html>"""
    found = extract(page, "a.html")
    assert (found.kind, found.status) == ("html", "ok")
    assert found.text.split("\n\n") == ["T", "Head", "One & two three", "1\t2"]


def test_html_declared_encoding() -> None:
    """A page in an older encoding that it declares is read in that encoding."""
    page = '<html><head><meta charset="windows-1251"></head><body>Привет</body></html>'.encode("cp1251")
    found = extract(page, "a.html")
    assert (found.text, found.details["encoding"]) == ("Привет", "cp1251")


def test_pdf() -> None:
    """The text of each page, in order, and the number of pages."""
    found = extract(files.pdf_bytes("first page", "second page"), "a.pdf", "application/pdf")
    assert (found.kind, found.status, found.pages, found.warnings) == ("pdf", "ok", 2, [])
    assert found.text == "first page\n\nsecond page"


def test_pdf_without_text() -> None:
    """A PDF without a text layer is read, and the user learns why there is no text."""
    found = extract(files.pdf_bytes(""), "a.pdf")
    assert (found.status, found.text) == ("ok", "")
    assert found.warnings == ["No text was found; the pages may be scanned images."]


def test_pdf_with_password() -> None:
    """A PDF that needs a password fails, in words; one that opens with an empty password is read."""
    for password, status, text in (("secret", "failed", ""), ("", "ok", "hidden")):
        writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(files.pdf_bytes("hidden"))))
        writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
        out = io.BytesIO()
        writer.write(out)
        found = extract(out.getvalue(), "a.pdf")
        assert (found.status, found.text) == (status, text)
        assert found.warnings == (["The file is protected by a password."] if password else [])


def test_docx() -> None:
    """Paragraphs and tables in reading order; a merged cell is read once."""
    found = extract(files.docx_bytes("Hello", "你好"), "a.docx")
    assert (found.kind, found.status, found.warnings) == ("docx", "ok", [])
    lines = [line.rstrip() for line in found.text.splitlines()]
    assert lines[:3] == ["Hello", "你好", "merged"]
    assert [cell.strip() for cell in lines[3].split("\t")] == ["left", "right"]


def test_pptx() -> None:
    """Slides in order with their tables and notes."""
    found = extract(files.pptx_bytes(2), "a.pptx")
    assert (found.kind, found.status, found.pages) == ("pptx", "ok", 2)
    assert found.text == "Slide 1\nTitle 1\none\ttwo\nNotes: remember\n\nSlide 2\nTitle 2"


def test_xlsx() -> None:
    """Stored values, sheet by sheet; a formula without a stored value is an empty cell, never computed."""
    found = extract(files.xlsx_bytes(), "a.xlsx")
    assert (found.kind, found.status, found.details) == ("xlsx", "ok", {"sheets": 2})
    assert found.text == "Sheet: Prices\nitem\tprice\ntea\t3.5\nsum\n\nSheet: Empty"


def test_zip_is_listed() -> None:
    """A ZIP file gives names and counted sizes; an archive inside it is one more entry."""
    inner = files.zip_bytes({"deep.txt": b"never seen"})
    found = extract(files.zip_bytes({"a.txt": b"12345", "报告\n.txt": b"", "inner.zip": inner}), "a.zip")
    assert (found.kind, found.status) == ("zip", "ok")
    assert found.text == f"a.txt\t5 bytes\n报告\ufffd.txt\t0 bytes\ninner.zip\t{len(inner)} bytes"
    assert found.details == {"entries": 3, "inflated_bytes": 5 + len(inner)}


def test_empty_zip() -> None:
    """A ZIP file without entries is read."""
    found = extract(files.zip_bytes({}), "a.zip")
    assert (found.kind, found.status, found.details["entries"]) == ("zip", "ok", 0)


@pytest.mark.parametrize("image_format", ["png", "jpeg", "gif", "webp", "bmp", "tiff"])
def test_image(image_format: str) -> None:
    """An image gives its format and dimensions and no text."""
    found = extract(files.image_bytes(image_format), "picture", "application/octet-stream")
    assert (found.kind, found.status, found.text) == ("image", "ok", "")
    assert found.details == {"format": image_format, "width": 30, "height": 20}


def test_image_of_unmeasured_format() -> None:
    """An image of a format that cannot be measured is still an image."""
    found = extract(b"\x00\x00\x00\x20ftypheic" + bytes(100), "a.heic")
    assert (found.kind, found.status, found.details) == ("image", "ok", {"format": "heic"})
    assert found.warnings == ["The dimensions of the image could not be told."]


def test_empty_file() -> None:
    """An empty file is read, and said to be empty."""
    found = extract(b"", "a.pdf")
    assert (found.status, found.text, found.size_bytes) == ("ok", "", 0)
    assert "The file is empty." in found.warnings


@pytest.mark.parametrize(
    ("content", "text", "encoding"),
    [
        (b"\xef\xbb\xbfhi \xe4\xbd\xa0", "hi 你", "utf-8"),
        ("hi 你".encode("utf-16"), "hi 你", "utf-16-le"),
        (b"\xfe\xff" + "hi 你".encode("utf-16-be"), "hi 你", "utf-16-be"),
        (b"\xff\xfe\x00\x00" + "hi".encode("utf-32-le"), "hi", "utf-32-le"),
        ("这是一个中文文件、没有标记。".encode("gb18030"), "这是一个中文文件、没有标记。", "gb18030"),
        ("Größe: 20 €, café à la crème".encode("cp1252"), "Größe: 20 €, café à la crème", "windows-1252"),
        ("你好、世界。这是一个测试".encode()[:-1], "你好、世界。这是一个测\ufffd", "utf-8"),
    ],
)
def test_encodings(content: bytes, text: str, encoding: str) -> None:
    """Marks are obeyed; without one UTF-8, then GB 18030, then Windows-1252 is tried."""
    found = extract(content, "a.txt")
    assert (found.text, found.details["encoding"]) == (text, encoding)


@pytest.mark.parametrize(
    "content",
    [
        b"a" * 100 + b"\x00" + b"b" * 100,
        b"\xff\xfe" + "a\x00b".encode("utf-16-le") + b"\x00\xd8c\x00",
        b"<html>&#0;&#xD800;\x00 </html>" + b" " * 200,
    ],
)
def test_no_nul_and_no_lone_surrogate(content: bytes) -> None:
    """NULs and lone surrogates never come out, neither in the text nor in the name."""
    found = extract(content, "a\x00\ud800.txt", "text/plain\x00")
    for text in (found.text, found.name, found.media_type or ""):
        assert "\x00" not in text
        text.encode()
    assert found.name == "a\ufffd\ufffd.txt"
    assert found.status == "ok"


def test_lying_extension_is_read_by_content() -> None:
    """A .doc that is really a DOCX is read as one, with a warning."""
    found = extract(files.docx_bytes("Hello"), "a.doc", "application/msword")
    assert (found.kind, found.status) == ("docx", "ok")
    assert found.text.startswith("Hello")
    assert found.warnings[0] == (
        "The file name says that this is an old Office file, but the content is a Word document."
    )


def test_old_office_file_is_unsupported() -> None:
    """An old binary Office file is not read, and the user learns what to do."""
    found = extract(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "a.doc")
    assert (found.kind, found.status) == ("unknown", "unsupported")
    assert found.warnings == ["Old or password-protected Office files are not read; save it as DOCX or PDF."]


def test_binary_is_unsupported() -> None:
    """A file of no known kind is not read."""
    found = extract(bytes(range(256)) * 4, "a.bin")
    assert (found.kind, found.status, found.text) == ("unknown", "unsupported", "")


@pytest.mark.parametrize(
    ("content", "name", "kind"),
    [
        (b"%PDF-1.7\nnothing of the kind", "a.pdf", "pdf"),
        (b"PK\x03\x04 and then nothing", "a.docx", "docx"),
        (files.zip_bytes({"[Content_Types].xml": b"<x/>", "word/a": b""}), "a.docx", "docx"),
        (files.docx_bytes("x")[:-300], "a.docx", "docx"),
        (b"\x89PNG\r\n\x1a\n", "a.png", "image"),
    ],
)
def test_damaged_file_fails_in_our_words(content: bytes, name: str, kind: str) -> None:
    """A damaged file fails with a sentence of ours, not with a library's."""
    found = extract(content, name)
    assert (found.kind, found.status) == (kind, "failed")
    assert found.warnings == ["The file is damaged and could not be read."]


def test_long_text_is_cut() -> None:
    """Text beyond the limit is cut and said to be."""
    found = extract(b"x" * 1000, "a.txt", limits=Limits(max_text_chars=100))
    assert (found.status, found.text) == ("truncated", "x" * 100)
    assert found.warnings == ["Only the first 100 characters were kept."]


@pytest.mark.parametrize(
    ("content", "name", "word"),
    [(files.pdf_bytes("1", "2", "3"), "a.pdf", "pages"), (files.pptx_bytes(3), "a.pptx", "slides")],
)
def test_many_pages_are_cut(content: bytes, name: str, word: str) -> None:
    """Pages beyond the limit are not read, and all of them are counted."""
    found = extract(content, name, limits=Limits(max_pages=2))
    assert (found.status, found.pages) == ("truncated", 3)
    assert "3" not in found.text
    assert found.warnings == [f"Only the first 2 of 3 {word} were read."]


def test_reference_reads_nothing() -> None:
    """A file known by address only is a reference with the kind that it claims, and says so."""
    assert reference(name="a.pdf", media_type=None) == Extraction(
        name="a.pdf",
        media_type=None,
        kind="pdf",
        status="reference",
        size_bytes=0,
        warnings=["The file is known by its address only; it was not fetched."],
    )


def test_limits_are_positive() -> None:
    """A limit of zero or less, or an endless one, stops the start and names its setting."""
    for limits in ({"max_bytes": 0}, {"max_parallel": -1}):
        with pytest.raises(ConfigError, match="expected a number above 0"):
            Limits(**limits)
    with pytest.raises(ConfigError) as raised:
        Limits(timeout=float("inf"))
    assert raised.value.option == "attachments.timeout"
