"""Attached files to text, from the server's side.

Rule: nothing in this process opens the file; its first bytes are compared, and the worker does the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from runstone.attachments.extraction import Extraction
from runstone.attachments.kinds import HEAD_BYTES, Kind, kind_of
from runstone.attachments.limits import Limits
from runstone.attachments.process import WorkerFailure, ask_worker, worker_command
from runstone.attachments.reading import clean
from runstone.attachments.wire import Job, Report, max_reply_bytes, report_from_bytes, request_bytes

_log = logging.getLogger(__name__)


class Extractor:
    """Reads attached files, at most `limits.max_parallel` at a time. One per event loop."""

    def __init__(self, limits: Limits | None = None, *, command: Sequence[str] | None = None) -> None:
        """An extractor under `limits`; `command` replaces the command line of the worker."""
        self._limits = limits or Limits()
        self._command = list(command or worker_command())
        self._places = asyncio.Semaphore(self._limits.max_parallel)

    async def extract(self, *, content: bytes, name: str, media_type: str | None) -> Extraction:
        """The text of one file; a file that cannot be read is a status and a warning, never an exception.

        Waiting for a free place has no limit of its own; `limits.timeout` counts from the start of the worker.
        Cancelling kills the worker before the cancellation goes on.
        """
        name = clean(name)
        media_type = None if media_type is None else clean(media_type)
        if len(content) > self._limits.max_bytes:
            sentence = f"The file has {len(content)} bytes; at most {self._limits.max_bytes} are read."
            report = Report(kind=_guess(content, name, media_type), status="too_large", warnings=[sentence])
        else:
            async with self._places:
                report = await self._report(content, Job(name=name, media_type=media_type, limits=self._limits))
        return Extraction(
            name=name,
            media_type=media_type,
            kind=report.kind,
            status=report.status,
            text=report.text,
            excerpt=report.text[: self._limits.excerpt_chars],
            size_bytes=len(content),
            pages=report.pages,
            warnings=report.warnings,
            details=report.details,
        )

    async def _report(self, content: bytes, job: Job) -> Report:
        limits = self._limits
        try:
            reply = await ask_worker(
                self._command,
                request=[request_bytes(job), content],
                kill_after=limits.timeout,
                max_reply_bytes=max_reply_bytes(limits),
            )
        except WorkerFailure as failure:
            _log.warning("a worker for attachments gave no reply: %s", failure.reason)
            return self._failure(content, job, failure)
        return report_from_bytes(reply) or self._failure(content, job, WorkerFailure("crashed"))

    def _failure(self, content: bytes, job: Job, failure: WorkerFailure) -> Report:
        kind = _guess(content, job.name, job.media_type)
        match failure.reason:
            case "timeout":
                sentence = f"Reading the file took longer than {self._limits.timeout:g} seconds."
                return Report(kind=kind, status="timeout", warnings=[sentence])
            case "not_started":
                sentence = "The reader of attached files could not be started."
            case "crashed" | "overflow":
                sentence = "The reader of attached files ended unexpectedly on this file."
        return Report(kind=kind, status="failed", warnings=[sentence])


def _guess(content: bytes, name: str, media_type: str | None) -> Kind:
    """The kind without a worker's help: from the beginning of the file and what is said about it."""
    return kind_of(content[:HEAD_BYTES], name=name, media_type=media_type)
