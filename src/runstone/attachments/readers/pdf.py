"""PDF: the text layer of each page, in order. Scanned pages have none, and no text recognition is done."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from runstone.attachments.limits import Limits
from runstone.attachments.reading import DAMAGED, Findings, Refusal, TextGatherer

if TYPE_CHECKING:
    import pypdf


def read_pdf(content: bytes, limits: Limits) -> Findings:
    """The text of the first `limits.max_pages` pages, parted by blank lines; `pages` counts all of them."""
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(content), strict=False)
    # Many files are "encrypted" with an empty password, only to forbid printing.
    if reader.is_encrypted and not _opens(reader):
        raise Refusal("failed", "The file is protected by a password.")
    gatherer = TextGatherer(limits.max_text_chars)
    count = len(reader.pages)
    unread: list[int] = []
    for number in range(min(count, limits.max_pages)):
        if gatherer.is_full:
            break
        try:
            gatherer.add(reader.pages[number].extract_text() + "\n\n")
        except MemoryError:
            raise
        except Exception:  # one broken page must not cost the others
            unread.append(number + 1)
    findings = gatherer.findings()
    findings.pages = count
    _explain(findings, unread, limits)
    return findings


def _opens(reader: pypdf.PdfReader) -> bool:
    from pypdf.errors import DependencyError

    try:
        return bool(reader.decrypt(""))
    except DependencyError:
        raise ImportError from None


def _explain(findings: Findings, unread: list[int], limits: Limits) -> None:
    count = findings.pages or 0
    if unread and len(unread) == min(count, limits.max_pages):
        raise Refusal("failed", DAMAGED)
    if unread:
        findings.warnings.append(f"{len(unread)} pages are damaged and were left out, the first is page {unread[0]}.")
    if count > limits.max_pages:
        findings.truncated = True
        findings.warnings.append(f"Only the first {limits.max_pages} of {count} pages were read.")
    if not findings.text:
        findings.warnings.append("No text was found; the pages may be scanned images.")
