"""Parts of a message.

Rule: bytes are never part of a logged part. `content` of an image or file carries them from the door to admission, which
stores them once and leaves `blob`, the reference; the log refuses a part that still has `content`.
"""

from __future__ import annotations

from typing import Any

import msgspec


class TextPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="text"):
    """Text. `annotations` are carried as they came (citations and the like)."""

    text: str
    annotations: list[dict[str, Any]] = []


class ImagePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="image"):
    """An image: a remote `url` (never fetched), a `file_id` of the Files API, or a stored `blob`."""

    url: str | None = None
    file_id: str | None = None
    blob: str | None = None
    content: bytes | None = None
    media_type: str | None = None
    detail: str | None = None


class FilePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="file"):
    """A file, by the same three ways as an image. `is_data_url`: it was sent as a data URL and is given back as one."""

    name: str | None = None
    url: str | None = None
    file_id: str | None = None
    blob: str | None = None
    content: bytes | None = None
    media_type: str | None = None
    is_data_url: bool = False


class DataPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="data"):
    """A JSON value that is part of a message."""

    data: Any
    media_type: str | None = None


class RefusalPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="refusal"):
    """The model's words of refusal; shown where a protocol has a place for them, as text elsewhere."""

    text: str


Part = TextPart | ImagePart | FilePart | DataPart | RefusalPart


def text_of(parts: list[Part]) -> str:
    """The texts of `parts` joined without a separator; empty when there are none."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))
