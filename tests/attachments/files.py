"""Small real files, made when asked for."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable

import docx
import openpyxl
import pptx
from PIL import Image
from pptx.util import Inches

GIB = 1024 * 1024 * 1024
MIB = 1024 * 1024


def docx_bytes(*paragraphs: str) -> bytes:
    """A Word document with the paragraphs and a table of two by two, its first row merged."""
    document = docx.Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    table = document.add_table(rows=2, cols=2)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "merged"
    table.cell(1, 0).text = "left"
    table.cell(1, 1).text = "right"
    return _saved(document.save)


def pptx_bytes(slides: int) -> bytes:
    """A presentation; slide N says `Title N`, the first has a table and notes too."""
    presentation = pptx.Presentation()
    for number in range(1, slides + 1):
        slide = presentation.slides.add_slide(presentation.slide_layouts[5])
        assert slide.shapes.title is not None
        slide.shapes.title.text_frame.text = f"Title {number}"
        if number == 1:
            table = slide.shapes.add_table(1, 2, Inches(1), Inches(2), Inches(4), Inches(1)).table
            table.cell(0, 0).text = "one"
            table.cell(0, 1).text = "two"
            assert slide.notes_slide.notes_text_frame is not None
            slide.notes_slide.notes_text_frame.text = "remember"
    return _saved(presentation.save)


def xlsx_bytes() -> bytes:
    """A workbook with numbers, text, an empty row and a formula without a stored value."""
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    assert sheet is not None
    sheet.title = "Prices"
    for row in (["item", "price"], ["tea", 3.5], [], ["sum", "=SUM(B2:B2)"]):
        sheet.append(row)
    workbook.create_sheet("Empty")
    return _saved(workbook.save)


def pdf_bytes(*pages: str) -> bytes:
    """A PDF with one line of text on each page, written by hand."""
    font = 3
    kids = [font + 1 + 2 * index for index in range(len(pages))]
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for kid, text in zip(kids, pages, strict=True):
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {kid + 1} 0 R "
            f"/Resources << /Font << /F1 {font} 0 R >> >> >>".encode()
        )
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
        bodies.append(f"<< /Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream")
    return pdf_from_objects(bodies)


def pdf_from_objects(bodies: list[bytes]) -> bytes:
    """A PDF of numbered objects with a table of their places; object 1 is the root."""
    out = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(bodies, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    table = len(out)
    out += f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010d} 00000 n \n".encode() for place in places)
    out += f"trailer\n<< /Size {len(bodies) + 1} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n".encode()
    return bytes(out)


def image_bytes(image_format: str, *, width: int = 30, height: int = 20) -> bytes:
    """An image of one colour."""
    out = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(out, image_format)
    return out.getvalue()


def zip_bytes(entries: dict[str, bytes]) -> bytes:
    """A ZIP file with the entries, deflated."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()


def with_part(package: bytes, name: str, content: bytes) -> bytes:
    """The Office file with one part replaced."""
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    return zip_bytes({**entries, name: content})


def bomb_bytes(*, inflated_bytes: int, names: list[str], declared_bytes: int = 1000, shared: bool = False) -> bytes:
    """A ZIP file whose every entry inflates to `inflated_bytes` zeros while its headers declare `declared_bytes`.

    With `shared`, all entries of the table of contents point to the same bytes.
    """
    packed = _deflated_zeros(inflated_bytes)
    out = bytearray()
    table = bytearray()
    place = 0
    for index, name in enumerate(names):
        common = struct.pack("<HHHHHLLLHH", 20, 0, 8, 0, 33, 0, len(packed), declared_bytes, len(name), 0)
        if index == 0 or not shared:
            place = len(out)
            out += b"PK\x03\x04" + common + name.encode() + packed
        table += b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHLL", 0, 0, 0, 0, place)
        table += name.encode()
    end = struct.pack("<HHHHLLH", 0, 0, len(names), len(names), len(table), len(out), 0)
    return bytes(out) + bytes(table) + b"PK\x05\x06" + end


def _deflated_zeros(count: int) -> bytes:
    """`count` zeros, a whole number of MiB; after a full flush a block may be repeated as it is."""
    engine = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = engine.compress(bytes(MIB)) + engine.flush(zlib.Z_FULL_FLUSH)
    return block * (count // MIB) + engine.flush()


def _saved(save: Callable[[io.BytesIO], None]) -> bytes:
    out = io.BytesIO()
    save(out)
    return out.getvalue()
