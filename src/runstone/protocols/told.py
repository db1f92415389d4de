"""What was told of a growing text, without keeping a long one for every reader.

Rule: text can only be appended to a stream, so an encoder has to know whether the finished text goes on from what was told.
For that a digest is enough; the text itself is kept while it is short, for the encoders that have to repeat it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_MOST_PIECES: Final = 512
MOST_KEPT_CHARS: Final = 256 * 1024


class Told:
    """A text that grows. Appending to `pieces` and calling `fold` now and then is what `add` does."""

    __slots__ = ("_chars", "_digest", "_kept", "pieces")

    def __init__(self, text: str = "") -> None:
        self.pieces: list[str] = [text] if text else []
        self._chars = 0
        self._kept: str | None = ""
        self._digest = blake2b(digest_size=16)

    def add(self, text: str) -> None:
        """It goes on with `text`."""
        pieces = self.pieces
        pieces.append(text)
        if len(pieces) >= _MOST_PIECES:
            self.fold()

    def fold(self) -> None:
        """Make the pieces small."""
        joined = "".join(self.pieces)
        self.pieces.clear()
        self._chars += len(joined)
        self._digest.update(joined.encode(errors="surrogatepass"))
        if self._kept is not None:
            self._kept = self._kept + joined if self._chars <= MOST_KEPT_CHARS else None

    def rest_of(self, text: str) -> str | None:
        """What `text` has beyond what was told; None when it does not go on from there."""
        self.fold()
        if len(text) < self._chars:
            return None
        digest = blake2b(digest_size=16)
        # In pieces: every reader of a long answer comes by here at its end, and none needs a copy of it.
        for start in range(0, self._chars, MOST_KEPT_CHARS):
            piece = text[start : min(start + MOST_KEPT_CHARS, self._chars)]
            digest.update(piece.encode(errors="surrogatepass"))
        return text[self._chars :] if digest.digest() == self._digest.digest() else None

    @property
    def text(self) -> str | None:
        """All of it; None when it is longer than `MOST_KEPT_CHARS`."""
        self.fold()
        return self._kept
