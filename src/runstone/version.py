"""The release. Read here by the build, the command line and the documents that name it."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
