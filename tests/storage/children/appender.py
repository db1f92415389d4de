"""Appends to one run until it is killed, and prints the number of each event that was acknowledged."""

import asyncio
import sys
from pathlib import Path

from runstone.storage.sqlite import SqliteStore
from tests.storage.builders import an_append, deltas, start


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main() -> None:
    """Keep a few appends under way."""
    store = SqliteStore(Path(sys.argv[1]), longest_wait=0.0)
    await store.open()
    run = await start(store)
    seq = 2
    while True:
        appends = [store.append(an_append(run, deltas(seq + n, 1))) for n in range(10)]
        for append in appends:
            await append
            say(str(seq))
            seq += 1


asyncio.run(main())
