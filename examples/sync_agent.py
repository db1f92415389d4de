"""A blocking agent: a plain generator, run in a thread of its own.

runstone run examples/sync_agent.py
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from runstone.runners.threads import SyncAgentContext


def agent(messages: list[dict[str, Any]], context: SyncAgentContext) -> Iterator[str]:
    """Counts the words of the question, slowly."""
    words = context.input_text.split()
    with context.tool("count_words", {"text": context.input_text}) as call:
        time.sleep(0.2)
        call.result(len(words))
    yield f"I count {len(words)} words:"
    for word in words:
        time.sleep(0.1)
        yield f" {word}"
