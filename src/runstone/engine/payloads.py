"""The payload that user functions and hooks of the second contract see: made in the run, first of all when files came with it."""

from __future__ import annotations

from typing import Any, Protocol

from runstone.attachments import Extraction, Extractor, reference
from runstone.core.content import FilePart, ImagePart
from runstone.core.events import Custom
from runstone.core.runs import Run, RunRequest
from runstone.errors import NotFound
from runstone.runners.base import RunContext
from runstone.runners.payload import attached_parts, blobs_in, part_key, runner_payload


class Payloads(Protocol):
    """Makes payloads."""

    async def payload(self, run: Run, request: RunRequest, context: RunContext) -> dict[str, Any]:
        """The payload of one run; attachments are extracted here, with progress in the run's log."""
        ...


class NoPayloads:
    """For agents that need none."""

    async def payload(self, run: Run, request: RunRequest, context: RunContext) -> dict[str, Any]:
        """Nothing."""
        return {}


class ExtractedPayloads:
    """Payloads with the text of attached files. Each finished file is told in the log as `custom` of the name `attachment`."""

    def __init__(self, extractor: Extractor) -> None:
        self._extractor = extractor

    async def payload(self, run: Run, request: RunRequest, context: RunContext) -> dict[str, Any]:
        """The payload of one run. What cannot be read is a status in it, never an error."""
        extractions: dict[str, Extraction] = {}
        for part in attached_parts(request):
            key = part_key(part)
            if key in extractions:
                continue
            extractions[key] = found = await self._extraction(part, context)
            context.emit(Custom(name="attachment", data=_progress(found)))
        items = [*request.history, *request.input]
        blobs = {key: content for key in blobs_in(items) if (content := await _bytes(key, context)) is not None}
        return runner_payload(request, extractions=extractions, blobs=blobs)

    async def _extraction(self, part: ImagePart | FilePart, context: RunContext) -> Extraction:
        name = (part.name if isinstance(part, FilePart) else None) or "attachment"
        content = None if part.blob is None else await _bytes(part.blob, context)
        if content is None:
            return reference(name=name, media_type=part.media_type)
        return await self._extractor.extract(content=content, name=name, media_type=part.media_type)


async def _bytes(key: str, context: RunContext) -> bytes | None:
    try:
        return await context.blob(key)
    except NotFound:
        return None


def _progress(found: Extraction) -> dict[str, Any]:
    return {
        "name": found.name,
        "kind": found.kind,
        "status": found.status,
        "size_bytes": found.size_bytes,
        "warnings": found.warnings,
    }
