"""What all readers share: the findings they return, the refusal they raise, the text they gather.

Rule: a sentence here is written by us; no text of a library's exception and no path reaches it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Detail = str | int | bool | None
REPLACEMENT = "\ufffd"
DAMAGED = "The file is damaged and could not be read."


class Refusal(Exception):
    """A file that is not read: `status` as in `Extraction`, `sentence` for the user."""

    def __init__(self, status: Literal["unsupported", "too_large", "timeout", "failed"], sentence: str) -> None:
        super().__init__(sentence)
        self.status: Literal["unsupported", "too_large", "timeout", "failed"] = status
        self.sentence = sentence


class Findings(msgspec.Struct, kw_only=True):
    """What a reader found; `truncated` when a limit ended the reading."""

    text: str = ""
    truncated: bool = False
    pages: int | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
    details: dict[str, Detail] = msgspec.field(default_factory=dict)


class TextGatherer:
    """Text that grows to a limit and no further."""

    def __init__(self, max_chars: int) -> None:
        """Room for `max_chars` characters."""
        self._room = max_chars
        self._max_chars = max_chars
        self._pieces: list[str] = []
        self.is_full = False

    def add(self, piece: str) -> None:
        """Keep as much of `piece` as there is room for; `is_full` once more than white space was left out."""
        if len(piece) > self._room:
            self.is_full = self.is_full or not piece[self._room :].isspace()
            piece = piece[: self._room]
        self._room -= len(piece)
        self._pieces.append(piece)

    def findings(self, *, as_written: bool = False) -> Findings:
        """The text, and a warning when it was cut; white space around it is kept only when it is `as_written`."""
        text = clean("".join(self._pieces))
        findings = Findings(text=text if as_written else text.strip(), truncated=self.is_full)
        if self.is_full:
            findings.warnings.append(f"Only the first {self._max_chars} characters were kept.")
        return findings


def clean(text: str) -> str:
    """`text` with U+FFFD for NULs and lone surrogates; two surrogates that form a pair become their character."""
    text = text.replace("\x00", REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
