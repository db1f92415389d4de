"""The measurements. Each gives rows of (what, figure, target or None); a ratio compares two servers of the same run."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import control
from benchmarks.load import Load, request, rss_bytes, run_load
from benchmarks.rows import Row
from benchmarks.servers import LOAD_CORES, ROOT, Server, baseline, pin_to_server_core, runstone

CHAT = "/v1/chat/completions"


def chat_body(words: int | None = None, *, store: bool = False) -> Callable[[int], bytes]:
    """A streamed Chat request; the same for all, each a conversation of its own."""
    content = "hi" if words is None else f"hi {words}"
    asked = {"model": "words", "stream": True, "store": store, "messages": [{"role": "user", "content": content}]}
    body = json.dumps(asked).encode()
    return lambda n: body


def _load(server: Server, *, clients: int, requests: int, words: int | None = None, store: bool = False) -> Load:
    os.sched_setaffinity(0, LOAD_CORES)
    body = chat_body(words, store=store)
    return asyncio.run(run_load(server.port, server.pid, body=body, path=CHAT, clients=clients, requests=requests))


def stream() -> list[Row]:
    """Answers of 2,000 words as fast as they go, 16 clients; then one client for the first word."""
    loads: dict[str, Load] = {}
    for name in ("bare", "typical"):
        with baseline(name, N=2000) as server:
            loads[name] = _load(server, clients=16, requests=160)
    with runstone(N=2000) as server:
        loads["runstone"] = _load(server, clients=16, requests=160)
        single = _load(server, clients=1, requests=200, words=20)
    ours, bare = loads["runstone"], loads["bare"]
    assert ours.bad == 0 and ours.frames >= 160 * 2000, "an answer was not whole"
    return [
        *(Row(what=f"{name}: CPU per token", figure=load.cpu_us_per_frame, unit="us") for name, load in loads.items()),
        Row(
            what="runstone : bare, CPU per token",
            figure=ours.cpu_us_per_frame / bare.cpu_us_per_frame,
            unit="x",
            at_most=0.8,
        ),
        Row(what="runstone: tokens per second", figure=ours.frames_per_second, unit="/s", at_least=200_000),
        Row(what="bare: tokens per second", figure=bare.frames_per_second, unit="/s"),
        Row(what="runstone: first token, one client, p50", figure=single.first_ms(), unit="ms", at_most=2.0),
        Row(what="runstone: first token, one client, p99", figure=single.first_ms(0.99), unit="ms"),
    ]


def paced() -> list[Row]:
    """200 streams of 50 words a second each."""
    loads: dict[str, Load] = {}
    with baseline("bare", N=300, PACE=0.02) as server:
        loads["bare"] = _load(server, clients=200, requests=200)
    with runstone(N=300, PACE=0.02) as server:
        loads["runstone"] = _load(server, clients=200, requests=200)
    ours, bare = loads["runstone"], loads["bare"]
    assert ours.bad == 0, "an answer failed"
    return [
        Row(what="bare paced: CPU per token", figure=bare.cpu_us_per_frame, unit="us"),
        Row(what="runstone paced: CPU per token", figure=ours.cpu_us_per_frame, unit="us"),
        Row(
            what="runstone : bare paced, CPU per token",
            figure=ours.cpu_us_per_frame / bare.cpu_us_per_frame,
            unit="x",
            at_most=1.8,
        ),
        Row(what="runstone paced: wall time : ideal", figure=ours.wall / 6.0, unit="x"),
    ]


def length() -> list[Row]:
    """CPU per token for answers of 1,000, 10,000 and 100,000 words, and with a database of many runs."""
    rows, first = [], 0.0
    with runstone() as server:
        for words, requests in ((1_000, 200), (10_000, 20), (100_000, 2)):
            load = _load(server, clients=2, requests=requests, words=words)
            first = first or load.cpu_us_per_frame
            rows.append(Row(what=f"CPU per token, answer of {words:,}", figure=load.cpu_us_per_frame, unit="us"))
        rows.append(
            Row(what="100,000 : 1,000 words, CPU per token", figure=rows[-1].figure / first, unit="x", at_most=1.3)
        )
        for runs in (1_000, 10_000):
            _load(server, clients=16, requests=runs - runs // 10, words=5, store=True)
            load = _load(server, clients=2, requests=100, words=1_000)
            rows.append(Row(what=f"CPU per token, about {runs:,} runs stored", figure=load.cpu_us_per_frame, unit="us"))
        rows.append(
            Row(what="10,000 runs : first, CPU per token", figure=rows[-1].figure / first, unit="x", at_most=1.3)
        )
    return rows


def idle() -> list[Row]:
    """1,000 open streams on which nothing happens, and the memory of a server that does nothing."""
    with runstone("benchmarks.agents:idle") as server:
        before = rss_bytes(server.pid)
        after = asyncio.run(_idle_streams(server, 1_000))
        return [
            Row(what="memory of an idle server", figure=before / 2**20, unit="MB", at_most=80),
            Row(what="memory per open idle stream", figure=(after - before) / 1_000 / 1024, unit="KB", at_most=60),
        ]


async def _idle_streams(server: Server, count: int) -> int:
    body = chat_body()(0)
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    writers = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head + body)
        await reader.readuntil(b"word ")
        writers.append(writer)
    memory = rss_bytes(server.pid)
    for writer in writers:
        writer.close()
    return memory


def startup() -> list[Row]:
    """From the command to the first byte, and what the installation weighs."""
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        with runstone() as server:
            asyncio.run(request(server.port, chat_body(1)(0), path=CHAT, marker=b"\ndata:"))
            times.append(time.perf_counter() - begun)
    return [
        Row(what="start to first byte, median of 5", figure=sorted(times)[2], unit="s", at_most=1.0),
        Row(what="core install", figure=_installed_bytes() / 1e6, unit="MB", at_most=80),
    ]


def _pinned(program: str) -> str:
    """What a Python program prints that runs where the servers run."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=pin_to_server_core,
    )
    return done.stdout


def _installed_bytes() -> int:
    """The size of a fresh environment with Runstone's core in it, less what an empty one has."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--target", str(target), str(ROOT)], check=True, cwd=folder
        )
        return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


def langgraph() -> list[Row]:
    """What a LangGraph agent costs a token by itself, and served."""
    alone = float(_pinned("from benchmarks import graphs; print(graphs.cost_alone(runs=10))"))
    with runstone("benchmarks.graphs:graph", N=2000) as server:
        load = _load(server, clients=4, requests=16)
    return [
        Row(what="LangGraph alone, in process: CPU per token", figure=alone, unit="us"),
        Row(what="LangGraph served: CPU per token", figure=load.cpu_us_per_frame, unit="us"),
        Row(what="served less alone: CPU per token", figure=load.cpu_us_per_frame - alone, unit="us", at_most=12),
    ]


def readers() -> list[Row]:
    """16 readers of one run of 1,000 words a second, four of them stalled, joining at random moments; `READERS_SECONDS` long."""
    seconds = int(os.environ.get("READERS_SECONDS", "60"))
    words = seconds * 1_000
    with runstone(N=words, PACE=0.001) as server:
        return asyncio.run(_readers(server, words))


async def _readers(server: Server, words: int) -> list[Row]:
    chooser = random.Random(1)
    body = json.dumps(
        {
            "model": "words",
            "stream": True,
            "store": True,
            "messages": [{"role": "user", "content": "hi"}],
            "run_id": "shared",
        }
    ).encode()
    begun = time.perf_counter()
    first = asyncio.create_task(request(server.port, body, path=CHAT, marker=b"\ndata:"))
    await asyncio.sleep(2.0)
    memory = rss_bytes(server.pid)
    stalled = [await _stalled(server) for _ in range(4)]

    async def join() -> list[int]:
        await asyncio.sleep(chooser.uniform(0, words / 1_000 * 0.9))
        return await _seen_ids(server)

    seen = await asyncio.gather(*(join() for _ in range(11)))
    whole = await first
    wall = time.perf_counter() - begun
    grown = rss_bytes(server.pid) - memory
    for writer in stalled:
        writer.close()
    assert whole.frames >= words, "the first reader missed something"
    for ids in seen:
        assert ids == sorted(set(ids)), "a reader got an event twice, or out of order"
        assert len(ids) >= words, "a reader missed something"
    return [
        Row(what=f"16 readers, {words:,} words: memory grown", figure=grown / 2**20, unit="MB", at_most=20),
        Row(what="16 readers: wall time : alone", figure=wall / (words / 1_000), unit="x", at_most=1.3),
    ]


async def _stalled(server: Server) -> asyncio.StreamWriter:
    """A reader that asks and then reads nothing."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.write(f"GET {CHAT}/shared?stream=true HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    return writer


async def _seen_ids(server: Server) -> list[int]:
    """The ids of all frames of the run, read from its beginning to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 20)
    head = f"GET {CHAT}/shared?stream=true HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    ids: list[int] = []
    while line := await reader.readline():
        if line.startswith(b"id: ") and b"." not in line:
            ids.append(int(line[4:]))
    writer.close()
    return ids


def database() -> list[Row]:
    """Bytes on disk per token."""
    with runstone(N=2000) as server:
        _load(server, clients=8, requests=50, store=True)
        assert server.database is not None
        with sqlite3.connect(server.database) as db:
            pages, size = db.execute("PRAGMA page_count").fetchone()[0], db.execute("PRAGMA page_size").fetchone()[0]
    return [Row(what="database: bytes per token", figure=pages * size / (51 * 2000), unit="B")]


SUITES: dict[str, Callable[[], list[Row]]] = {
    "stream": stream,
    "paced": paced,
    "length": length,
    "idle": idle,
    "startup": startup,
    "langgraph": langgraph,
    "database": database,
    "readers": readers,
    "history": control.history,
    "sessions": control.sessions,
    "resume": control.resume,
    "stop": control.stop,
    "steer": control.steer,
    "subscribers": control.subscribers,
}
