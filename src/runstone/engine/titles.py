"""Titles of sessions: made from the first message unless given, and unique for their owner."""

from __future__ import annotations

from typing import Final

from runstone.core.items import Item, Message
from runstone.storage.base import RunStore

_LONGEST: Final = 60


def words_of(items: list[Item]) -> str | None:
    """A title from the first words of the user, in one line; None when there are none."""
    for item in items:
        if isinstance(item, Message) and item.role == "user" and item.text.strip():
            line = " ".join(item.text.split())
            return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…"
    return None


async def title_of(store: RunStore, owner: str, items: list[Item]) -> str | None:
    """A title made from `items` that no other session of the owner has; None when they have no words."""
    words = words_of(items)
    return None if words is None else await free_title(store, owner, words)


async def free_title(store: RunStore, owner: str, title: str) -> str:
    """`title`, or the first of `title #2`, `title #3` ... that no session of the owner has."""
    candidate, n = title, 1
    while await store.is_title_taken(owner, candidate):
        n += 1
        candidate = f"{title} #{n}"
    return candidate
