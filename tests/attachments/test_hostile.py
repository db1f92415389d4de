"""Files made to hurt: none of them costs more than its limits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from runstone.attachments import Extractor, Limits
from runstone.attachments.process import _BOOT, worker_command
from runstone.attachments.wire import Job, Report, report_from_bytes, request_bytes
from tests.attachments import files
from tests.attachments.test_extraction import extract

OFFICE_NAMES = ["[Content_Types].xml", "word/document.xml"]
TOO_LARGE = "The file inflates to more than 209715200 bytes."

# The peak is the worker's own: it starts at zero with its program, while the figure that the system reports for a child
# includes the size of the process that started it.
PEAK = """
import atexit, re
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr))
"""


def run_worker(content: bytes, name: str) -> tuple[Report, float, int]:
    """A worker's report on one file, its seconds and its peak resident memory in MiB."""
    command = worker_command(_BOOT.replace("root, *more", PEAK + "root, *more", 1))
    request = request_bytes(Job(name=name, media_type=None, limits=Limits())) + content
    started = time.perf_counter()
    done = subprocess.run(command, input=request, capture_output=True, timeout=15, check=True)
    seconds = time.perf_counter() - started
    report = report_from_bytes(done.stdout)
    assert report is not None
    return report, seconds, int(done.stderr.split()[-1]) // 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (files.bomb_bytes(inflated_bytes=files.GIB, names=OFFICE_NAMES), TOO_LARGE),
        (files.bomb_bytes(inflated_bytes=100 * files.MIB, names=[*OFFICE_NAMES, "word/b", "word/c"]), TOO_LARGE),
        (
            files.bomb_bytes(
                inflated_bytes=90 * files.MIB, names=[*OFFICE_NAMES, *(f"word/{n}" for n in range(10))], shared=True
            ),
            "The entries of the file overlap.",
        ),
    ],
    ids=["one-gib", "many-entries", "shared-bytes"],
)
def test_bomb_is_rejected_by_counted_bytes(content: bytes, sentence: str) -> None:
    """o-sec-09: a document that declares a kilobyte and inflates to a gigabyte is rejected in under 2 s and 200 MB."""
    report, seconds, peak_mib = run_worker(content, "bomb.docx")
    assert report.status == ("too_large" if sentence == TOO_LARGE else "failed")
    assert report.warnings == [sentence]
    assert (report.kind, report.text) == ("docx", "")
    assert seconds < 2
    assert peak_mib < 200


@pytest.mark.parametrize("name", ["a.zip", "a.docx", "a.xlsx", "a.pptx"])
def test_bomb_of_any_package_kind(name: str) -> None:
    """Every kind that is a ZIP underneath is counted, a mere listing too."""
    folder = {"a.docx": "word/document.xml", "a.xlsx": "xl/workbook.xml", "a.pptx": "ppt/presentation.xml"}
    names = ["[Content_Types].xml", folder[name]] if name in folder else ["x"]
    found = extract(files.bomb_bytes(inflated_bytes=300 * files.MIB, names=names), name)
    assert (found.kind, found.status, found.warnings) == (name[2:], "too_large", [TOO_LARGE])


def test_inflated_limit_counts_all_entries() -> None:
    """The limit holds for the sum of the entries."""
    content = files.zip_bytes({"a": bytes(600), "b": bytes(600)})
    assert extract(content, "a.zip", limits=Limits(max_inflated_bytes=1200)).status == "ok"
    assert extract(content, "a.zip", limits=Limits(max_inflated_bytes=1199)).status == "too_large"


def test_many_entries() -> None:
    """A file with more entries than the limit is refused."""
    found = extract(files.zip_bytes({str(n): b"" for n in range(11)}), "a.zip", limits=Limits(max_entries=10))
    assert (found.status, found.warnings) == ("too_large", ["The file has more than 10 entries."])


def test_very_many_entries_are_refused_before_they_are_parsed() -> None:
    """A table of contents of hundreds of thousands of rows is never built."""
    found = extract(b"PK\x03\x04" + b"PK\x01\x02" * 300_000, "a.zip")
    assert (found.status, found.warnings) == ("too_large", ["The file has more than 2000 entries."])


BILLION = b"<!ENTITY a0 'ha'>" + b"".join(
    b"<!ENTITY a%d '%s'>" % (level, b"&a%d;" % (level - 1) * 10) for level in range(1, 10)
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize(
    ("package", "part", "name"),
    [
        (files.docx_bytes("x"), "word/document.xml", "a.docx"),
        (files.pptx_bytes(1), "ppt/presentation.xml", "a.pptx"),
        (files.xlsx_bytes(), "xl/sharedStrings.xml", "a.xlsx"),
        (files.docx_bytes("x"), "word/odd.bin", "a.docx"),
    ],
)
def test_entity_bomb(package: bytes, part: str, name: str, encoding: str) -> None:
    """XML that declares entities is refused in each Office kind, in either encoding, under any name."""
    xml = (b"<?xml version='1.0'?><!DOCTYPE r [" + BILLION + b"]><r>&a9;</r>").decode().encode(encoding)
    found = extract(files.with_part(package, part, xml), name)
    assert (found.status, found.text) == ("failed", "")
    assert found.warnings == ["The file declares XML entities, which Office files never do."]


@pytest.mark.parametrize("xml", [b"<?xml version='1.0' encoding='utf-7'?><r/>", "<r/>".encode("cp037")])
def test_foreign_xml_encoding(xml: bytes) -> None:
    """XML in an encoding that could hide a declaration is refused."""
    found = extract(files.with_part(files.docx_bytes("x"), "word/document.xml", xml), "a.docx")
    assert (found.status, found.warnings) == ("failed", ["The file is damaged and could not be read."])


def test_entity_across_pieces() -> None:
    """A declaration that is cut by the piecewise reading is still seen."""
    for shift in range(12):
        xml = b"<r>" + b" " * (64 * 1024 - 3 - shift) + b"<!ENTITY a 'b'>"
        found = extract(files.with_part(files.docx_bytes("x"), "word/odd.xml", xml), "a.docx")
        assert found.status == "failed"


def test_external_entity_in_plain_xml_is_only_text(tmp_path: Path) -> None:
    """XML as a text file is never parsed: what it points to is not read."""
    secret = tmp_path / "secret"
    secret.write_text("top secret")
    found = extract(f'<!DOCTYPE r [<!ENTITY x SYSTEM "file://{secret}">]><r>&x;</r>'.encode(), "a.xml")
    assert (found.kind, found.status) == ("text", "ok")
    assert "top secret" not in found.text


def test_huge_cell_span_and_row_number() -> None:
    """Numbers in a document that ask for a billion cells are not obeyed."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    xml = (
        f'<w:document xmlns:w="{word}"><w:body><w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="2000000000"/></w:tcPr>'
        "<w:p><w:r><w:t>wide</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:body></w:document>"
    )
    found = extract(files.with_part(files.docx_bytes("x"), "word/document.xml", xml.encode()), "a.docx")
    assert (found.status, found.text) == ("ok", "wide")
    sheet = (
        '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><dimension ref="A1:XFD9999999"/>'
        '<sheetData><row r="900000000"><c r="A900000000"><v>1</v></c></row></sheetData></worksheet>'
    )
    found = extract(files.with_part(files.xlsx_bytes(), "xl/worksheets/sheet1.xml", sheet.encode()), "a.xlsx")
    assert found.status in ("ok", "failed")


def test_pdf_stream_bomb() -> None:
    """A page whose content inflates beyond measure is left out or ends the reading; it is never built."""
    packed = zlib.compress(bytes(100 * files.MIB), 9)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
        b"<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(packed) + packed + b"\nendstream",
    ]
    found = extract(files.pdf_from_objects(objects), "a.pdf", limits=Limits(timeout=10))
    assert (found.kind, found.text) == ("pdf", "")
    assert found.status in ("ok", "failed", "too_large")
    assert found.warnings


def test_memory_limit() -> None:
    """A reader that asks for more memory than the worker may have ends there, and the file is too large."""
    greedy = (
        "import runstone.attachments.readers.plain as plain\n"
        "plain.read_text = lambda content, limits: bytearray(2 * limits.memory_bytes)\n"
    )
    command = worker_command(_BOOT.replace("from runstone", greedy + "from runstone", 1))
    found = asyncio.run(Extractor(command=command).extract(content=b"x", name="a.txt", media_type=None))
    assert (found.status, found.text) == ("too_large", "")
    assert found.warnings == ["Reading the file needs too much memory."]


def test_large_file_is_refused_unread() -> None:
    """A file beyond the size limit is refused without a worker."""
    found = extract(b"%PDF-" + bytes(100), "a.pdf", limits=Limits(max_bytes=104))
    assert (found.kind, found.status, found.size_bytes) == ("pdf", "too_large", 105)
    assert found.warnings == ["The file has 105 bytes; at most 104 are read."]


def test_image_that_is_huge_when_decoded() -> None:
    """An image of billions of pixels is measured, never decoded."""
    header = b"IHDR" + (100_000).to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"
    png = b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\x0d" + header + zlib.crc32(header).to_bytes(4, "big")
    found = extract(png + b"\x00\x00\x00\x00IDAT" + zlib.crc32(b"IDAT").to_bytes(4, "big"), "a.png")
    assert (found.status, found.details["width"], found.details["height"]) == ("ok", 100_000, 100_000)


def test_name_is_never_a_path(tmp_path: Path) -> None:
    """A name that looks like a path is kept as a name; nothing is opened or written there."""
    target = tmp_path / "a.txt"
    found = extract(b"hello", f"../../{target}")
    assert (found.status, found.name) == ("ok", f"../../{target}")
    assert not target.exists()
