"""What a file is: by its content, then its declared media type, then its name.

Rule: pure and cheap. The bytes are looked at, never parsed; what is inside a ZIP is told by the names of its entries,
which the worker hands in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Kind = Literal["text", "markdown", "json", "csv", "pdf", "docx", "pptx", "xlsx", "html", "zip", "image", "unknown"]
Claim = Kind | Literal["legacy"]

PLAIN: frozenset[Claim] = frozenset({"text", "markdown", "json", "csv", "html"})
PACKAGES: frozenset[Claim] = frozenset({"docx", "pptx", "xlsx", "zip"})

_LABELS: dict[Claim, str] = {
    "text": "a text file",
    "markdown": "a Markdown file",
    "json": "a JSON file",
    "csv": "a CSV file",
    "pdf": "a PDF file",
    "docx": "a Word document",
    "pptx": "a PowerPoint presentation",
    "xlsx": "an Excel workbook",
    "html": "an HTML page",
    "zip": "a ZIP file",
    "image": "an image",
    "unknown": "of an unknown kind",
    "legacy": "an old Office file",
}

_OFFICE = "application/vnd.openxmlformats-officedocument."
_MEDIA_TYPES: dict[str, Claim] = {
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "application/json": "json",
    "text/json": "json",
    "text/csv": "csv",
    "application/csv": "csv",
    "text/tab-separated-values": "csv",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/xml": "text",
    "image/svg+xml": "text",
    "application/pdf": "pdf",
    "application/x-pdf": "pdf",
    f"{_OFFICE}wordprocessingml.document": "docx",
    f"{_OFFICE}presentationml.presentation": "pptx",
    f"{_OFFICE}spreadsheetml.sheet": "xlsx",
    "application/zip": "zip",
    "application/x-zip-compressed": "zip",
    # Not here: application/vnd.ms-excel, which browsers on Windows declare for CSV files.
    "application/msword": "legacy",
    "application/vnd.ms-powerpoint": "legacy",
}

_ENDINGS: dict[str, Claim] = {
    **dict.fromkeys(("txt", "text", "log", "svg", "xml"), "text"),
    **dict.fromkeys(("md", "markdown"), "markdown"),
    **dict.fromkeys(("csv", "tsv"), "csv"),
    **dict.fromkeys(("html", "htm", "xhtml"), "html"),
    **dict.fromkeys(
        ("png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "ico", "avif", "heic", "heif"), "image"
    ),
    **dict.fromkeys(("doc", "xls", "ppt"), "legacy"),
    "json": "json",
    "pdf": "pdf",
    "docx": "docx",
    "pptx": "pptx",
    "xlsx": "xlsx",
    "zip": "zip",
}

_IMAGES: tuple[tuple[bytes, int, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "png"),
    (b"\xff\xd8\xff", 0, "jpeg"),
    (b"GIF87a", 0, "gif"),
    (b"GIF89a", 0, "gif"),
    (b"WEBP", 8, "webp"),
    (b"II*\x00", 0, "tiff"),
    (b"MM\x00*", 0, "tiff"),
    (b"\x00\x00\x01\x00", 0, "ico"),
    (b"ftypavif", 4, "avif"),
    (b"ftypheic", 4, "heic"),
    (b"ftypheix", 4, "heic"),
    (b"ftypmif1", 4, "heic"),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\x08\x1b")
HEAD_BYTES = 8192
"""How much of a file is looked at to tell text from binary."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What the first bytes say: a kind, or `text` for any plain kind; `format` is an image's, or `ole`."""

    kind: Kind
    format: str | None = None


def look(content: bytes) -> Look:
    """What `content` is by its first bytes alone; `zip` for every file that is a ZIP underneath."""
    if content.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Look(kind="zip")
    if content.startswith(_OLE):
        return Look(kind="unknown", format="ole")
    # Some producers put white space or a byte order mark before the header.
    if content[:64].lstrip(b"\xef\xbb\xbf\r\n\t ").startswith(b"%PDF-"):
        return Look(kind="pdf")
    for signature, offset, image_format in _IMAGES:
        if content[offset : offset + len(signature)] == signature:
            return Look(kind="image", format=image_format)
    if content.startswith(b"BM") and content[6:10] == bytes(4):
        return Look(kind="image", format="bmp")
    return Look(kind="text" if _is_text(content) else "unknown")


def kind_of(content: bytes, *, name: str, media_type: str | None, entries: Iterable[str] | None = None) -> Kind:
    """What `content` is; `entries` are the names inside when it is a ZIP underneath, None when they are not known."""
    claims = _claims(name, media_type)
    seen = look(content).kind
    if seen == "zip":
        return _package_kind(entries) if entries is not None else _first(claims, PACKAGES, "zip")
    if seen == "text":
        return _plain_kind(content, claims)
    return seen


def claimed_kind(name: str, media_type: str | None) -> Kind:
    """What the media type, else the name, says; `unknown` when both are silent."""
    for claim in _claims(name, media_type):
        if claim != "legacy":
            return claim
    return "unknown"


def lies(kind: Kind, *, name: str, media_type: str | None) -> list[str]:
    """Sentences about a name or media type that disagrees with `kind`; empty when they agree or say nothing."""
    claims = (("file name", _claim_of_name(name)), ("declared media type", _claim_of_media_type(media_type)))
    return [
        f"The {source} says that this is {_LABELS[claim]}, but the content is {_LABELS[kind]}."
        for source, claim in claims
        if claim is not None and not _agrees(claim, kind)
    ]


def is_json(content: bytes | str) -> bool:
    """Whether `content` is one valid JSON document; checked from end to end without building a value."""
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def _claims(name: str, media_type: str | None) -> list[Claim]:
    claims = (_claim_of_media_type(media_type), _claim_of_name(name))
    return [claim for claim in claims if claim is not None]


def _claim_of_media_type(media_type: str | None) -> Claim | None:
    if media_type is None:
        return None
    essence = media_type.partition(";")[0].strip().lower()
    if essence in _MEDIA_TYPES:
        return _MEDIA_TYPES[essence]
    if essence.startswith("image/"):
        return "image"
    return "text" if essence.startswith("text/") else None


def _claim_of_name(name: str) -> Claim | None:
    stem, dot, ending = name.rpartition(".")
    return _ENDINGS.get(ending.lower()) if dot and stem else None


def _agrees(claim: Claim, kind: Kind) -> bool:
    if claim == kind or (claim in PLAIN and kind in PLAIN):
        return True
    if claim == "zip":
        return kind in PACKAGES
    return claim == "legacy" and kind == "unknown"


def _first(claims: list[Claim], allowed: frozenset[Claim], otherwise: Kind) -> Kind:
    for claim in claims:
        if claim in allowed and claim != "legacy":
            return claim
    return otherwise


def _package_kind(entries: Iterable[str]) -> Kind:
    names = list(entries)
    if "[Content_Types].xml" not in names:
        return "zip"
    folders = {name.partition("/")[0] for name in names}
    if "word" in folders:
        return "docx"
    if "ppt" in folders:
        return "pptx"
    return "xlsx" if "xl" in folders else "zip"


def _plain_kind(content: bytes, claims: list[Claim]) -> Kind:
    head = content[:1024].replace(b"\x00", b"").lstrip(b"\xef\xbb\xbf\xff\xfe\r\n\t ").lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "html"
    # `text` is what senders declare when they do not know better, so a finer word from the other source wins.
    finer: list[Claim] = [claim for claim in claims if claim != "text"]
    return _first(finer, PLAIN, "json" if head.startswith((b"{", b"[")) and is_json(content) else "text")


def _is_text(content: bytes) -> bool:
    if content.startswith(_BOMS):
        return True
    head = content[:HEAD_BYTES]
    odd = sum(1 for byte in head if byte < 32 and byte not in _TEXT_CONTROLS)
    # A stray NUL in a log does not make it binary; a binary file has far more than one in fifty.
    return odd * 50 <= len(head)
