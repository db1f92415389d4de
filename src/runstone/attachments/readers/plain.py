"""Text, Markdown, JSON and CSV: the characters as they are."""

from __future__ import annotations

import codecs
import csv
import io

import msgspec

from runstone.attachments.kinds import is_json
from runstone.attachments.limits import Limits
from runstone.attachments.reading import REPLACEMENT, Findings, TextGatherer

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GUESSED = "The encoding is not declared; it was taken to be {}."


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """Characters and the encoding they were in; `is_guess` when another encoding would have been possible."""

    text: str
    encoding: str
    is_guess: bool = False


def decode(content: bytes) -> Decoded:
    """`content` as characters: by its mark, else UTF-8, else GB 18030, else Windows-1252; never fails."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return Decoded(text=content[len(mark) :].decode(encoding, "replace"), encoding=encoding)
    try:
        return Decoded(text=content.decode(), encoding="utf-8")
    except UnicodeDecodeError:
        return _decode_other(content)


def read_text(content: bytes, limits: Limits) -> Findings:
    """The text of a file that is all text."""
    decoded = decode(content)
    gatherer = TextGatherer(limits.max_text_chars)
    gatherer.add(decoded.text)
    findings = gatherer.findings(as_written=True)
    findings.details["encoding"] = decoded.encoding
    if decoded.is_guess:
        findings.warnings.append(_GUESSED.format(decoded.encoding))
    return findings


def read_json(content: bytes, limits: Limits) -> Findings:
    """The text of a JSON file as it is written, and whether it is valid."""
    findings = read_text(content, limits)
    is_valid = is_json(decode(content).text)
    findings.details["valid"] = is_valid
    if not is_valid:
        findings.warnings.append("The file is not valid JSON.")
    return findings


def read_csv(content: bytes, limits: Limits) -> Findings:
    """The text of a CSV file as it is written, with the number of rows and of columns in the first row."""
    findings = read_text(content, limits)
    text = decode(content).text
    first_line = text.partition("\n")[0]
    delimiter = max(",;\t|", key=first_line.count)
    try:
        widths = [len(row) for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    except csv.Error:
        return findings
    findings.details |= {"rows": len(widths), "columns": widths[0] if widths else 0}
    return findings


def _decode_other(content: bytes) -> Decoded:
    """Not valid UTF-8: damaged UTF-8, or an older encoding."""
    high = sum(1 for byte in content[:65536] if byte >= 0x80)
    as_utf8 = content.decode("utf-8", "replace")
    # A cut or a stray byte in UTF-8 spoils few characters; an older encoding read as UTF-8 spoils nearly all.
    if as_utf8[:65536].count(REPLACEMENT) * 10 <= high:
        return Decoded(text=as_utf8, encoding="utf-8", is_guess=True)
    try:
        chinese = content.decode("gb18030")
    except UnicodeDecodeError:
        chinese = ""
    # In Chinese text nearly every such character takes two high bytes; in Western text, read as Chinese, it takes one
    # and swallows the letter after it.
    if chinese and high * 10 >= 16 * sum(1 for character in chinese[:65536] if character > "\x7f"):
        return Decoded(text=chinese, encoding="gb18030", is_guess=True)
    return Decoded(text=content.decode("cp1252", "replace"), encoding="windows-1252", is_guess=True)
