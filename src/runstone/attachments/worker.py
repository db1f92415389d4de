"""Read one file and say what is in it: a process of its own, started anew for each file.

Rule: the file is on standard input, the report on standard output, and nothing else goes in or out: no path, no
network, no environment. Document libraries are imported here only, each by the one reader that needs it.
"""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
from collections.abc import Callable
from typing import BinaryIO, cast

from runstone.attachments.kinds import Kind, kind_of, lies, look
from runstone.attachments.limits import Limits
from runstone.attachments.reading import DAMAGED, Findings, Refusal
from runstone.attachments.sandbox import confine
from runstone.attachments.wire import Job, Report, job_from_line, report_bytes

Reader = Callable[[bytes, Limits], Findings]

_TOO_MUCH_MEMORY = "Reading the file needs too much memory."
_READERS: dict[Kind, str] = {
    "text": "plain:read_text",
    "markdown": "plain:read_text",
    "json": "plain:read_json",
    "csv": "plain:read_csv",
    "html": "page:read_html",
    "pdf": "pdf:read_pdf",
    "docx": "document:read_docx",
    "pptx": "slides:read_pptx",
    "xlsx": "sheets:read_xlsx",
    "zip": "archive:read_zip",
    "image": "image:read_image",
}


def main() -> int:
    """Serve one request; the exit status is 0 whenever a report was written."""
    reply = _private_stdout()
    job = job_from_line(sys.stdin.buffer.readline())
    confine(job.limits)
    reply.write(_reply(job))
    reply.close()
    return 0


def report(content: bytes, job: Job) -> Report:
    """What `content` holds; whatever a library does with it, this returns."""
    kind: Kind = "unknown"
    warnings: list[str] = []
    try:
        kind = _kind(content, job)
        warnings = lies(kind, name=job.name, media_type=job.media_type)
        findings = _read(kind, content, job.limits)
    except Refusal as refusal:
        return Report(kind=kind, status=refusal.status, warnings=[*warnings, refusal.sentence])
    except MemoryError:
        return Report(kind=kind, status="too_large", warnings=[*warnings, _TOO_MUCH_MEMORY])
    except ImportError:
        sentence = "Reading this kind of file needs optional libraries: pip install 'runstone[attachments]'"
        return Report(kind=kind, status="unsupported", warnings=[*warnings, sentence])
    except Exception:  # whatever a document library raises on a damaged file
        return Report(kind=kind, status="failed", warnings=[*warnings, DAMAGED])
    return Report(
        kind=kind,
        status="truncated" if findings.truncated else "ok",
        text=findings.text,
        pages=findings.pages,
        warnings=[*warnings, *findings.warnings],
        details=findings.details,
    )


def _reply(job: Job) -> bytes:
    try:
        return report_bytes(report(sys.stdin.buffer.read(), job))
    except MemoryError:  # around the reading, where `report` cannot see it
        return report_bytes(Report(kind="unknown", status="too_large", warnings=[_TOO_MUCH_MEMORY]))


def _private_stdout() -> BinaryIO:
    """The real standard output; what a library prints goes to standard error instead."""
    private = os.dup(1)
    os.dup2(2, 1)
    return cast(BinaryIO, os.fdopen(private, "wb"))


def _kind(content: bytes, job: Job) -> Kind:
    entries = None
    if look(content).kind == "zip":
        archive = importlib.import_module("runstone.attachments.readers.archive")
        try:
            entries = archive.entry_names(content, job.limits)
        except zipfile.BadZipFile:
            # The kind then is what the file claims to be; its reader says that it is damaged.
            entries = None
    return kind_of(content, name=job.name, media_type=job.media_type, entries=entries)


def _read(kind: Kind, content: bytes, limits: Limits) -> Findings:
    if not content:
        return Findings(warnings=["The file is empty."])
    if kind == "unknown":
        if look(content).format == "ole":
            raise Refusal("unsupported", "Old or password-protected Office files are not read; save it as DOCX or PDF.")
        raise Refusal("unsupported", "Files of this kind are not read.")
    module, _, function = _READERS[kind].partition(":")
    reader = cast(Reader, getattr(importlib.import_module(f"runstone.attachments.readers.{module}"), function))
    return reader(content, limits)


if __name__ == "__main__":
    sys.exit(main())
