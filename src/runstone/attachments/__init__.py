"""Text of the files that a user attaches to a turn.

Rule: a file is foreign and may be hostile, so no document library runs in this process; `worker` reads the file in a
process of its own that is limited from inside and killed from outside.
"""

from __future__ import annotations

from runstone.attachments.extraction import Extraction, reference
from runstone.attachments.extractor import Extractor
from runstone.attachments.limits import Limits

__all__ = ["Extraction", "Extractor", "Limits", "reference"]
