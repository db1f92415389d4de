"""Writes until its files may not grow any more, makes room, and goes on."""

import asyncio
import resource
import sys
from pathlib import Path

from runstone.errors import StorageUnavailable
from runstone.storage.sqlite import SqliteStore
from tests.storage.builders import OWNER, an_append, deltas, said, start


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main() -> None:
    """Fill, and go on."""
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    run = await start(store)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    seq, refused = 2, None
    while refused is None:
        try:
            await store.append(an_append(run, deltas(seq, 50, text="x" * 100)))
            seq += 50
        except StorageUnavailable as e:
            refused = e
    say(f"full: {refused.message}")
    assert await store.last_seq(OWNER, "r1") == seq - 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.append(an_append(run, deltas(seq, 50)))
    await store.append(said(run, seq + 50, "still here"))
    seqs = [event.seq for event in await store.events(OWNER, "r1", after=0, limit=100_000)]
    assert seqs == list(range(1, seq + 51))
    await store.close()
    say("ok")


asyncio.run(main())
