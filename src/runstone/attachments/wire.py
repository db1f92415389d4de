"""What the extractor and its worker say to each other.

The request is one line of JSON, a `Job`, and after it the file's bytes up to the end of the stream. The reply is one
JSON document, a `Report`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from runstone.attachments.kinds import Kind
from runstone.attachments.limits import Limits
from runstone.attachments.reading import Detail


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, under which limits."""

    name: str
    media_type: str | None
    limits: Limits


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; the fields are those of `Extraction`."""

    kind: Kind
    status: Literal["ok", "truncated", "unsupported", "too_large", "timeout", "failed"]
    text: str = ""
    pages: int | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
    details: dict[str, Detail] = msgspec.field(default_factory=dict)


def request_bytes(job: Job) -> bytes:
    """The request's first line."""
    return msgspec.json.encode(job) + b"\n"


def job_from_line(line: bytes) -> Job:
    """The job in the request's first line."""
    return msgspec.json.decode(line, type=Job)


def report_bytes(report: Report) -> bytes:
    """The reply."""
    return msgspec.json.encode(report)


def report_from_bytes(reply: bytes) -> Report | None:
    """The report in a reply; None when the worker said something else."""
    try:
        return msgspec.json.decode(reply, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def max_reply_bytes(limits: Limits) -> int:
    """Longest legal reply: six bytes for an escaped character, and room for names and warnings."""
    return 6 * limits.max_text_chars + 1024 * 1024
