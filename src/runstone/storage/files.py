"""Bytes on disk, one file per owner and content.

Rule: a path is made of digests only; nothing that a user said ever becomes part of one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from runstone.errors import StorageUnavailable

T = TypeVar("T")
_REFERENCE: Final = re.compile(r"sha256-([0-9a-f]{64})")


class DiskFiles:
    """Files under `root`, which is made when it is needed. A reference is `sha256-` and the digest of the content.

    With `sync` a file has reached the disk when `put` returns; without, it survives the process but not the machine.
    """

    def __init__(self, root: Path, *, sync: bool = False) -> None:
        self._root = root
        self._sync = sync

    async def put(self, owner: str, content: bytes) -> str:
        return await _in_thread(lambda: self._put(owner, content))

    async def get(self, owner: str, reference: str) -> bytes | None:
        path = self._path(owner, reference)
        return None if path is None else await _in_thread(lambda: _read(path))

    async def delete(self, owner: str, reference: str) -> bool:
        path = self._path(owner, reference)
        return False if path is None else await _in_thread(lambda: _delete(path))

    def _path(self, owner: str, reference: str) -> Path | None:
        """Where the content lies or would lie; None when `reference` is not one of ours."""
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            return None
        digest = match[1]
        folder = hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._root / folder / digest[:2] / digest

    def _put(self, owner: str, content: bytes) -> str:
        reference = f"sha256-{hashlib.sha256(content).hexdigest()}"
        path = self._path(owner, reference)
        assert path is not None
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(path, content)
        return reference

    def _write(self, path: Path, content: bytes) -> None:
        """All of the content under its name, or nothing: readers never see half a file."""
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        try:
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                if self._sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _delete(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


async def _in_thread(job: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(job)
    except OSError as e:
        raise StorageUnavailable("The file store cannot be used now.") from e
