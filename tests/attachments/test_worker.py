"""The readers without the process around them: the same report, and where a debugger can follow."""

from __future__ import annotations

import asyncio

import pytest

from runstone.attachments import Extractor, Limits
from runstone.attachments.wire import Job
from runstone.attachments.worker import report
from tests.attachments import files

FILES = {
    "a.txt": "größe".encode("cp1252"),
    "gb.txt": "这是一个中文文件、没有标记。".encode("gb18030"),
    "cut.txt": "你好、世界。这是一个测试".encode()[:-1],
    "bom.txt": "hi".encode("utf-16"),
    "long.txt": b"x" * 50,
    "a.json": b'{"a": 1}',
    "bad.json": b"{",
    "a.csv": b"a,b\n1,2\n",
    "wide.csv": b'"' + b"x" * 200_000,
    "a.html": b"<html><svg><p>no</svg><p>yes<br/>&amp; more<td>1</td>",
    "old.html": '<html><meta charset="windows-1251">Привет'.encode("cp1251"),
    "odd.html": '<html><meta charset="no-such">Привет'.encode("cp1251"),
    "a.pdf": files.pdf_bytes("one", "two", "three"),
    "scan.pdf": files.pdf_bytes(""),
    "bad.pdf": b"%PDF-1.4",
    "a.docx": files.docx_bytes("one", "two"),
    "a.pptx": files.pptx_bytes(3),
    "a.xlsx": files.xlsx_bytes(),
    "a.zip": files.zip_bytes({"a": b"1", "b/": b""}),
    "cut.zip": files.zip_bytes({"a": b"1" * 100})[:-30],
    "bomb.zip": files.bomb_bytes(inflated_bytes=2 * files.MIB, names=["a"]),
    "shared.docx": files.bomb_bytes(inflated_bytes=files.MIB, names=["a", "b", "c"], shared=True),
    "entity.docx": files.with_part(files.docx_bytes("x"), "word/x.xml", b"<!DOCTYPE a [<!ENTITY b 'c'>]>"),
    "ebcdic.docx": files.with_part(files.docx_bytes("x"), "word/x.xml", "<r/>".encode("cp037")),
    "a.png": files.image_bytes("png"),
    "a.heic": b"\x00\x00\x00\x20ftypheic",
    "a.bin": bytes(64),
    "a.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "empty.pdf": b"",
}


@pytest.mark.parametrize("name", FILES)
def test_process_says_what_the_reader_says(name: str) -> None:
    """The process changes nothing: its report is that of the reader, field by field."""
    limits = Limits(max_pages=2, max_text_chars=40, max_inflated_bytes=1_500_000)
    content = FILES[name]
    alone = report(content, Job(name=name, media_type=None, limits=limits))
    found = asyncio.run(Extractor(limits).extract(content=content, name=name, media_type=None))
    assert (alone.kind, alone.status, alone.text, alone.pages, alone.warnings, alone.details) == (
        found.kind,
        found.status,
        found.text,
        found.pages,
        found.warnings,
        found.details,
    )
