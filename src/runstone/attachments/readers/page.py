"""HTML: the words a reader would see. Nothing it points to is fetched."""

from __future__ import annotations

import codecs
import re
from html.parser import HTMLParser

from runstone.attachments.limits import Limits
from runstone.attachments.readers.plain import Decoded, decode
from runstone.attachments.reading import Findings, TextGatherer

_HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "math", "iframe", "object"})
_BLOCK_WORDS = """
    address article aside blockquote body br caption dd details div dl dt fieldset figcaption figure footer form h1 h2
    h3 h4 h5 h6 head header hr html legend li main nav ol option p pre section summary table tbody tfoot thead title
    tr ul
"""
_BLOCKS = frozenset(_BLOCK_WORDS.split())
_CELLS = frozenset({"td", "th"})
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)


def read_html(content: bytes, limits: Limits) -> Findings:
    """The visible text, a line per block, cells of a row parted by tabs."""
    decoded = _decode_page(content)
    page = _Page(limits.max_text_chars)
    for start in range(0, len(decoded.text), 65536):
        page.feed(decoded.text[start : start + 65536])
        if page.gatherer.is_full:
            break
    page.close()
    findings = page.gatherer.findings()
    findings.text = re.sub(r"[ \t]*\n\s*\n\s*", "\n\n", findings.text)
    findings.details["encoding"] = decoded.encoding
    return findings


def _decode_page(content: bytes) -> Decoded:
    decoded = decode(content)
    declared = _CHARSET.search(content[:4096])
    if not decoded.is_guess or declared is None:
        return decoded
    try:
        encoding = codecs.lookup(declared[1].decode("ascii")).name
        return Decoded(text=content.decode(encoding, "replace"), encoding=encoding)
    except (LookupError, UnicodeError, ValueError):
        return decoded


class _Page(HTMLParser):
    """Gathers text between tags; white space counts as in a browser, except that `pre` is not kept."""

    def __init__(self, max_chars: int) -> None:
        super().__init__(convert_charrefs=True)
        self.gatherer = TextGatherer(max_chars)
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
        self._break(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        self._break(tag)
        if tag in _CELLS:
            self.gatherer.add("\t")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.gatherer.add(re.sub(r"\s+", " ", data) if data.strip() else (" " if data else ""))

    def _break(self, tag: str) -> None:
        if tag in _BLOCKS and not self._hidden:
            self.gatherer.add("\n")
