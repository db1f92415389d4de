"""Word documents: paragraphs and tables of the body in reading order."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from runstone.attachments.limits import Limits
from runstone.attachments.readers.archive import check_package
from runstone.attachments.reading import Findings, TextGatherer

if TYPE_CHECKING:
    from lxml.etree import _Element

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
# What stands for a picture in programs that cannot draw it; a text box would be read twice.
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_BEFORE = {f"{_WORD}tab": "\t", f"{_WORD}br": "\n", f"{_WORD}cr": "\n", f"{_WORD}noBreakHyphen": "-"}
_AFTER = {f"{_WORD}p": "\n", f"{_WORD}tr": "\n", f"{_WORD}tc": "\t"}
_TEXT = f"{_WORD}t"
_CELL = f"{_WORD}tc"
_PARAGRAPH = f"{_WORD}p"
_SKIPPED = frozenset({_FALLBACK, f"{_WORD}del", f"{_WORD}pPr", f"{_WORD}rPr", f"{_WORD}sectPr", f"{_WORD}tblPr"})


def read_docx(content: bytes, limits: Limits) -> Findings:
    """A line per paragraph; a line per row of a table, its cells parted by tabs. Deleted text is left out."""
    check_package(content, limits)
    import docx

    gatherer = TextGatherer(limits.max_text_chars)
    _walk(docx.Document(io.BytesIO(content)).element.body, gatherer, in_cell=False)
    return gatherer.findings()


def _walk(element: _Element, gatherer: TextGatherer, *, in_cell: bool) -> None:
    """Add the text under `element`.

    By element and not by the library's tables: those repeat a merged cell as often as its span says, which may be a
    billion times, and leave out content controls. The parser bounds the depth at 256.
    """
    for child in element:
        tag = child.tag
        if gatherer.is_full or not isinstance(tag, str) or tag in _SKIPPED:
            continue
        if tag == _TEXT:
            gatherer.add(child.text or "")
            continue
        gatherer.add(_BEFORE.get(tag, ""))
        _walk(child, gatherer, in_cell=in_cell or tag == _CELL)
        gatherer.add(" " if in_cell and tag == _PARAGRAPH else _AFTER.get(tag, ""))
