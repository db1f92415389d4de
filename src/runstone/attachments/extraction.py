"""What is known of one attached file."""

from __future__ import annotations

from typing import Literal

import msgspec

from runstone.attachments.kinds import Kind, claimed_kind
from runstone.attachments.reading import Detail, clean

Status = Literal["ok", "truncated", "unsupported", "too_large", "timeout", "failed", "reference"]


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """One attached file and its text.

    No string in it holds a NUL or a lone surrogate; they stand as U+FFFD.

    Attributes:
        name: The file's name as the user gave it. Never a path to anything here.
        media_type: The declared media type, None when none was declared.
        kind: What the file is, decided by content first; `unknown` when nothing told.
        status: `ok`: read whole. `truncated`: read up to a limit. `unsupported`: of a kind that is not read, or the
            optional libraries are missing. `too_large`: refused by a size limit. `timeout`: the reader was killed.
            `failed`: damaged, protected or hostile. `reference`: known by address only, nothing was read.
        text: The text; empty for images and for every status but `ok` and `truncated`.
        excerpt: Its beginning.
        size_bytes: Length of the file, 0 for a reference.
        pages: Pages of a PDF, slides of a presentation; None for other kinds and when unknown.
        warnings: Sentences fit to be shown to the user, in the order found; they never hold paths or library errors.
        details: Facts by kind: image `format`, `width`, `height`; zip `entries`, `inflated_bytes`; xlsx `sheets`;
            csv `rows`, `columns`; json `valid`; text kinds `encoding`. A fact that is not known is absent.
    """

    name: str
    media_type: str | None
    kind: Kind
    status: Status
    text: str = ""
    excerpt: str = ""
    size_bytes: int
    pages: int | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
    details: dict[str, Detail] = msgspec.field(default_factory=dict)


def reference(*, name: str, media_type: str | None) -> Extraction:
    """A file that is known by its address only: nothing is fetched, nothing read."""
    return Extraction(
        name=clean(name),
        media_type=None if media_type is None else clean(media_type),
        kind=claimed_kind(name, media_type),
        status="reference",
        size_bytes=0,
        warnings=["The file is known by its address only; it was not fetched."],
    )
