"""ZIP files, and the part of Office files that is ZIP.

Rule: nothing is unpacked for its own sake and no archive inside an archive is opened. Sizes are counted by inflating
piece by piece into nothing: what a header says about the size of an entry is never believed.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator

import msgspec

from runstone.attachments.limits import Limits
from runstone.attachments.readers.plain import decode
from runstone.attachments.reading import DAMAGED, Findings, Refusal, TextGatherer

_CENTRAL_HEADER = b"PK\x01\x02"
_LOCAL_HEADER = b"PK\x03\x04"
_LOCAL_HEADER_BYTES = 30
_PIECE_BYTES = 64 * 1024
_ENCRYPTED = 0x1
_NAMED_IN_UTF8 = 0x800


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a ZIP file; `size_bytes` is counted, None when it could not be."""

    name: str
    size_bytes: int | None
    is_encrypted: bool


def entry_names(content: bytes, limits: Limits) -> list[str]:
    """Names inside, as written, without looking at what they name.

    Raises:
        Refusal: There are more entries than the limit allows.
        zipfile.BadZipFile: The table of contents is damaged.
    """
    return [info.filename for info in _infos(content, limits)]


def read_zip(content: bytes, limits: Limits) -> Findings:
    """A line per entry with its name and its size."""
    gatherer = TextGatherer(limits.max_text_chars)
    total_bytes = 0
    count = 0
    for entry in _entries(content, limits):
        count += 1
        total_bytes += entry.size_bytes or 0
        size = "size unknown" if entry.size_bytes is None else f"{entry.size_bytes} bytes"
        gatherer.add(f"{entry.name}\t{size}{', encrypted' if entry.is_encrypted else ''}\n")
    findings = gatherer.findings()
    findings.details |= {"entries": count, "inflated_bytes": total_bytes}
    return findings


def check_package(content: bytes, limits: Limits) -> None:
    """Let an Office file pass to its library, or not.

    Raises:
        Refusal: It is damaged or encrypted, has too many entries, inflates to too many bytes, or declares XML
            entities.
    """
    guard = _EntityGuard()
    for entry in _entries(content, limits, guard):
        if entry.is_encrypted:
            raise Refusal("failed", "The file is encrypted.")
        if entry.size_bytes is None:
            raise Refusal("failed", DAMAGED)
    # Last, so that a bomb is told as one even where its bytes are no XML.
    if guard.complaint is not None:
        raise Refusal("failed", guard.complaint)


def _infos(content: bytes, limits: Limits) -> list[zipfile.ZipInfo]:
    too_many = Refusal("too_large", f"The file has more than {limits.max_entries} entries.")
    # Before the table is parsed, which costs a kilobyte per entry. Ten times, as stored archives inside count here.
    if content.count(_CENTRAL_HEADER) > 10 * limits.max_entries:
        raise too_many
    infos = zipfile.ZipFile(io.BytesIO(content)).infolist()
    if len(infos) > limits.max_entries:
        raise too_many
    return infos


def _entries(content: bytes, limits: Limits, guard: _EntityGuard | None = None) -> Iterator[Entry]:
    room = limits.max_inflated_bytes
    infos = _infos(content, limits)
    # Entries that share their bytes are how a small file inflates beyond what one stream could.
    if sum(info.compress_size for info in infos) > len(content):
        raise Refusal("failed", "The entries of the file overlap.")
    for info in infos:
        is_encrypted = bool(info.flag_bits & _ENCRYPTED)
        size_bytes = None
        if not is_encrypted and info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            size_bytes = 0
            if guard is not None:
                guard.begin_part(info.filename)
            for piece in _pieces(content, info):
                size_bytes += len(piece)
                if size_bytes > room:
                    raise Refusal("too_large", f"The file inflates to more than {limits.max_inflated_bytes} bytes.")
                if guard is not None:
                    guard.look_at(piece)
            room -= size_bytes
        yield Entry(name=_printable_name(info), size_bytes=size_bytes, is_encrypted=is_encrypted)


def _pieces(content: bytes, info: zipfile.ZipInfo) -> Iterator[bytes]:
    packed = _packed(content, info)
    return _stored(packed) if info.compress_type == zipfile.ZIP_STORED else _inflated(packed)


def _packed(content: bytes, info: zipfile.ZipInfo) -> memoryview:
    start = info.header_offset
    header = content[start : start + _LOCAL_HEADER_BYTES]
    if len(header) < _LOCAL_HEADER_BYTES or not header.startswith(_LOCAL_HEADER):
        raise Refusal("failed", DAMAGED)
    name_bytes, extra_bytes = struct.unpack_from("<HH", header, 26)
    start += _LOCAL_HEADER_BYTES + int(name_bytes) + int(extra_bytes)
    return memoryview(content)[start : start + info.compress_size]


def _stored(packed: memoryview) -> Iterator[bytes]:
    for start in range(0, len(packed), _PIECE_BYTES):
        yield bytes(packed[start : start + _PIECE_BYTES])


def _inflated(packed: memoryview) -> Iterator[bytes]:
    """Pieces of bounded length; input is fed in slices too, as zlib copies what it has not used."""
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for pending in _stored(packed):
            while pending and not engine.eof:
                yield engine.decompress(pending, _PIECE_BYTES)
                pending = engine.unconsumed_tail
        while piece := engine.decompress(b"", _PIECE_BYTES):
            yield piece
    except zlib.error:
        raise Refusal("failed", DAMAGED) from None


class _EntityGuard:
    """Finds XML that declares entities; no Office program writes any. `complaint` is None until it found some.

    A part must be UTF-8 or UTF-16 (ISO/IEC 29500-2, "XML usage"), which makes looking for bytes enough.
    """

    _ENTITY = (b"<!ENTITY", "<!ENTITY".encode("utf-16-le"), "<!ENTITY".encode("utf-16-be"))
    _DOCTYPE = (b"<!DOCTYPE", "<!DOCTYPE".encode("utf-16-le"), "<!DOCTYPE".encode("utf-16-be"))
    _OVERLAP_BYTES = 32

    def __init__(self) -> None:
        self.complaint: str | None = None
        self._words: tuple[bytes, ...] = ()
        self._is_at_start = False
        self._tail = b""

    def begin_part(self, name: str) -> None:
        """What comes next is the part `name`; embedded HTML may have a document type, XML may not."""
        self._is_at_start = name.lower().endswith((".xml", ".rels", ".vml"))
        self._words = (*self._ENTITY, *self._DOCTYPE) if self._is_at_start else self._ENTITY
        self._tail = b""

    def look_at(self, piece: bytes) -> None:
        """Look at the next piece of the part, and at the seam to the piece before it."""
        if self.complaint is not None or not piece:
            return
        window = self._tail + piece
        if any(word in window for word in self._words):
            self.complaint = "The file declares XML entities, which Office files never do."
        elif self._is_at_start and not _is_unicode_xml(window):
            self.complaint = DAMAGED
        self._is_at_start = False
        self._tail = window[-self._OVERLAP_BYTES :]


def _is_unicode_xml(head: bytes) -> bool:
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"<\x00", b"\x00<")):
        return True
    declaration, _, _ = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:256].partition(b">")
    if not declaration.startswith(b"<"):
        return False
    words = declaration.lower().replace(b"'", b'"').replace(b" ", b"")
    return b"encoding=" not in words or any(
        b'encoding="' + name + b'"' in words for name in (b"utf-8", b"utf-16", b"us-ascii", b"ascii")
    )


def _printable_name(info: zipfile.ZipInfo) -> str:
    name = info.orig_filename
    if not info.flag_bits & _NAMED_IN_UTF8:
        try:
            # The format says code page 437; programs write whatever their system used.
            name = decode(name.encode("cp437")).text
        except UnicodeEncodeError:
            name = info.orig_filename
    return "".join(character if character.isprintable() else "\ufffd" for character in name)
