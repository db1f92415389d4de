"""Bytes of images and files: out of the request into the file store, and back."""

from __future__ import annotations

import msgspec

from runstone.core.content import FilePart, ImagePart, Part
from runstone.core.items import FileItem, Item, Message, ToolResult
from runstone.errors import InvalidRequest, NotFound
from runstone.storage.base import FileStore, RunStore


class Blobs:
    """The owner's bytes by reference."""

    def __init__(self, store: RunStore, files: FileStore) -> None:
        self._store = store
        self.files = files

    async def content(self, owner: str, reference: str) -> bytes:
        """The bytes behind `reference`.

        Raises:
            NotFound: the owner has none under it.
        """
        content = await self.files.get(owner, reference)
        if content is None:
            raise NotFound("attachment", reference)
        return content

    async def contents(self, owner: str, references: set[str]) -> dict[str, bytes]:
        """Those of `references` that exist, with their bytes."""
        found = {reference: await self.files.get(owner, reference) for reference in references}
        return {reference: content for reference, content in found.items() if content is not None}

    async def stored(self, owner: str, items: list[Item]) -> list[Item]:
        """`items` with their bytes stored and referenced; a `file_id` is looked up.

        Raises:
            InvalidRequest: the owner has no file of a `file_id`.
        """
        return [await self._stored_item(owner, item, n) for n, item in enumerate(items)]

    async def _stored_item(self, owner: str, item: Item, n: int) -> Item:
        match item:
            case Message(parts=parts) | FileItem(parts=parts):
                return msgspec.structs.replace(item, parts=[await self._stored_part(owner, part, n) for part in parts])
            case ToolResult(output=output):
                return msgspec.structs.replace(
                    item, output=[await self._stored_part(owner, part, n) for part in output]
                )
            case _:
                return item

    async def _stored_part(self, owner: str, part: Part, n: int) -> Part:
        if not isinstance(part, (ImagePart, FilePart)):
            return part
        if part.content is not None:
            reference = await self.files.put(owner, part.content)
            return msgspec.structs.replace(part, content=None, blob=reference)
        if part.file_id is None:
            return part
        record = await self._store.file(owner, part.file_id)
        if record is None:
            raise InvalidRequest(
                f"No file has the id {part.file_id!r}.", param=f"input[{n}].content.file_id", code="file_not_found"
            )
        media_type = part.media_type or record.media_type
        if isinstance(part, ImagePart):
            return msgspec.structs.replace(part, blob=record.blob, media_type=media_type)
        return msgspec.structs.replace(part, blob=record.blob, media_type=media_type, name=part.name or record.name)
