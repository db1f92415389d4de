"""How much one attached file may cost."""

from __future__ import annotations

import math

import msgspec

from runstone.errors import ConfigError

_MIB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one extraction; every one is positive.

    Attributes:
        max_bytes: Largest file that is read, in bytes.
        max_text_chars: Longest text that is kept, in characters.
        max_pages: Most pages of a PDF or slides of a presentation that are read.
        max_entries: Most entries in a ZIP file, the Office formats included.
        max_inflated_bytes: Most bytes that all entries of such a file may inflate to, counted while inflating.
        timeout: Seconds until the process that reads the file is killed.
        memory_bytes: Address space of that process, in bytes.
        max_parallel: Most such processes at one time, per extractor.
        excerpt_chars: Length of the excerpt, in characters.

    Raises:
        ConfigError: A limit is not a positive, finite number.
    """

    max_bytes: int = 20 * _MIB
    max_text_chars: int = 200_000
    max_pages: int = 200
    max_entries: int = 2_000
    max_inflated_bytes: int = 200 * _MIB
    timeout: float = 20.0
    memory_bytes: int = 1024 * _MIB
    max_parallel: int = 2
    excerpt_chars: int = 2_000

    def __post_init__(self) -> None:
        """Refuse what no extraction could run under."""
        for option in self.__struct_fields__:
            value = getattr(self, option)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(
                    f"attachments.{option} is {value!r}, expected a number above 0", option=f"attachments.{option}"
                )
