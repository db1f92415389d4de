"""Schema and numbered migrations, one folder per database. A released file never changes; a change is a new file."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final, Literal

import msgspec

_NAME: Final = re.compile(r"([0-9]{3})_[a-z0-9_]+\.sql")


class Migration(msgspec.Struct, frozen=True):
    """A step from version `number` - 1 to `number`."""

    number: int
    name: str
    script: str


def migrations(database: Literal["sqlite"]) -> list[Migration]:
    """All steps for `database`, first to last, numbered 1, 2, 3 ..."""
    found = []
    for file in files(__name__).joinpath(database).iterdir():
        if (match := _NAME.fullmatch(file.name)) is not None:
            found.append(Migration(int(match[1]), file.name, file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda step: step.number)
