"""Makes the ids of runs, sessions and files: 26 characters that sort by time, without `_`."""

from __future__ import annotations

import secrets
import time
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"


class IdSource:
    """Ids that never repeat; those of one source sort in the order they were made, also when the clock goes back."""

    def __init__(self) -> None:
        self._last = 0

    def new(self, prefix: str) -> str:
        """`prefix`, then `_`, then 26 characters of `0-9a-z`."""
        value = (int(time.time() * 1000) << 82) | secrets.randbits(78) << 4
        if value <= self._last:
            value = self._last + 1 + secrets.randbits(16)
        self._last = value
        digits = []
        for _ in range(26):
            digits.append(_ALPHABET[value & 31])
            value >>= 5
        return f"{prefix}_{''.join(reversed(digits))}"
