"""How the command line shows things: lines for people, JSON lines for programs.

Rule: what a model or a tool said may hold anything, so nothing is printed that a terminal would obey.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

_LONGEST: Final = 160


def plain(text: str) -> str:
    """`text` with everything that is not printable as an escape, line ends too."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "replace").decode() for letter in text
    )


def short(text: str, longest: int = _LONGEST) -> str:
    """The beginning of `text`, fit for one line."""
    line = plain(text[: longest + 1])
    return line if len(text) <= longest else f"{line[:longest]}..."


def moment(at: float | None) -> str:
    """A time in the machine's own zone; `-` when there is none."""
    return "-" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def json_line(value: Any) -> str:  # noqa: ANN401
    """A value as one line of JSON."""
    return msgspec.json.encode(value).decode()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns under their names, as wide as they have to be."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def fields(rows: Iterable[tuple[str, Any]]) -> str:
    """Names and values, one pair a line; values that are None are left out."""
    shown = [(name, value) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {short(str(value), 400)}" for name, value in shown)
