"""Bytes, in memory and on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runstone.errors import StorageUnavailable
from runstone.storage.base import FileStore
from runstone.storage.files import DiskFiles
from runstone.storage.memory import MemoryFiles


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    """An empty store of bytes."""
    return MemoryFiles() if request.param == "memory" else DiskFiles(tmp_path / "files", sync=True)


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 500_000], ids=["empty", "large"])
async def test_bytes_come_back(files: FileStore, content: bytes) -> None:
    """What was put is what is got."""
    reference = await files.put("ann", content)
    assert await files.get("ann", reference) == content


async def test_the_same_content_has_the_same_reference(files: FileStore) -> None:
    """However often and however many at once; another content has another one."""
    references = await asyncio.gather(*(files.put("ann", b"same") for _ in range(10)))
    assert len(set(references)) == 1
    assert await files.put("ann", b"other") != references[0]


async def test_bytes_are_their_owners(files: FileStore) -> None:
    """A reference opens nothing for another owner, and what one deletes the other keeps."""
    reference = await files.put("ann", b"x")
    assert await files.get("bob", reference) is None
    assert not await files.delete("bob", reference)
    assert await files.put("bob", b"x") == reference
    assert await files.delete("ann", reference)
    assert not await files.delete("ann", reference)
    assert await files.get("ann", reference) is None
    assert await files.get("bob", reference) == b"x"


@pytest.mark.parametrize(
    "reference",
    ["", "../../secret", "sha256-", "sha256-" + "g" * 64, "sha256-" + "a" * 63, "sha256-" + "a" * 64 + "\n"],
)
async def test_what_is_no_reference_opens_nothing(files: FileStore, reference: str) -> None:
    """A word that we did not make is nobody's file."""
    assert await files.get("ann", reference) is None
    assert not await files.delete("ann", reference)


def names_in(folder: Path, pattern: str) -> list[str]:
    """Names of what is in a folder."""
    return [path.name for path in folder.glob(pattern)]


async def test_no_path_is_made_of_what_a_user_says(tmp_path: Path) -> None:
    """An owner's name never becomes part of a path, whatever it holds; and no half file is left."""
    files = DiskFiles(tmp_path / "root")
    for owner in ("../../outside", "a/b", "nul\x00", "\ud800", ""):
        assert await files.get(owner, await files.put(owner, b"x")) == b"x"
    assert names_in(tmp_path, "*") == ["root"]
    names = names_in(tmp_path / "root", "**/*")
    assert all(set(name) <= set("0123456789abcdef") for name in names)


async def test_a_disk_that_cannot_be_used_is_no_missing_file(tmp_path: Path) -> None:
    """Trouble is told as trouble; when it is over, the next call works."""
    root = tmp_path / "root"
    root.write_text("in the way")
    files = DiskFiles(root)
    with pytest.raises(StorageUnavailable):
        await files.put("ann", b"x")
    root.unlink()
    assert await files.get("ann", await files.put("ann", b"x")) == b"x"
