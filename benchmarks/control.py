"""Run control: pages, lists, resume, stop, steer, subscribers."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.agents import STEP_SECONDS
from benchmarks.load import cpu_seconds
from benchmarks.rows import Row
from benchmarks.seed import fill
from benchmarks.servers import LOAD_CORES, Server, baseline, runstone


async def _open(
    port: int, method: str, path: str, body: Any = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
    return reader, writer


async def _ask(port: int, method: str, path: str, body: Any = None) -> bytes:
    """The whole answer, its head included."""
    reader, writer = await _open(port, method, path, body)
    answer = await reader.read(-1)
    writer.close()
    if b" 200 " not in answer[:16] and b" 202 " not in answer[:16] and b" 201 " not in answer[:16]:
        raise RuntimeError(f"{method} {path}: {answer[:300]!r}")
    return answer


async def _median_ms(port: int, path: str, times: int = 30) -> float:
    await _ask(port, "GET", path)
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        await _ask(port, "GET", path)
        taken.append(time.perf_counter() - begun)
    return 1e3 * sorted(taken)[times // 2]


@contextmanager
def _filled(target: str = "benchmarks.agents:words", **amounts: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "runs.db"
        fill(database, **amounts)
        os.sched_setaffinity(0, LOAD_CORES)
        with runstone(target, database=database) as server:
            yield server


def history() -> list[Row]:
    """The newest page of 50 messages, of sessions of 100 and of 10,000 messages."""
    figures = {}
    for messages in (100, 10_000):
        with _filled(messages=messages) as server:
            figures[messages] = asyncio.run(
                _median_ms(server.port, "/api/sessions/long/messages?limit=50&order=latest")
            )
    return [
        Row(what="history page, 100 messages", figure=figures[100], unit="ms"),
        Row(what="history page, 10,000 messages", figure=figures[10_000], unit="ms", at_most=10),
        Row(what="history page, 10,000 : 100", figure=figures[10_000] / figures[100], unit="x", at_most=1.5),
    ]


def sessions() -> list[Row]:
    """A page of the list of 100,000 sessions, without and with a search."""
    with _filled(sessions=100_000) as server:
        page = asyncio.run(_median_ms(server.port, "/api/sessions?limit=50"))
        search = asyncio.run(_median_ms(server.port, "/api/sessions?limit=50&search=number%2099"))
        nothing = asyncio.run(_median_ms(server.port, "/api/sessions?limit=50&search=nowhere", times=10))
    return [
        Row(what="sessions: a page of 100,000", figure=page, unit="ms", at_most=20),
        Row(what="sessions: the same with a search", figure=search, unit="ms", at_most=100),
        Row(what="sessions: a search without a hit", figure=nothing, unit="ms", at_most=100),
    ]


def resume() -> list[Row]:
    """Reading on at the end of a run of 100,000 events."""
    with _filled(events=100_000) as server:
        path = "/v1/runs/huge/events?last_seq=99990"
        runs = asyncio.run(_median_ms(server.port, path, times=7))
        chat = asyncio.run(_median_ms(server.port, "/v1/responses/resp_huge?stream=true&starting_after=99990", times=7))
    return [
        Row(what="resume at the end of 100,000 events, runs", figure=runs, unit="ms", at_most=300),
        Row(what="resume at the end of 100,000 events, Responses", figure=chat, unit="ms", at_most=300),
    ]


def stop() -> list[Row]:
    """From the request to stop to `run.cancelled` at another client that reads the run."""
    with runstone("benchmarks.agents:idle") as server:
        taken = sorted(asyncio.run(_stops(server, 40)))
    return [
        Row(what="stop to run.cancelled, p50", figure=1e3 * taken[len(taken) // 2], unit="ms", at_most=50),
        Row(what="stop to run.cancelled, worst", figure=1e3 * taken[-1], unit="ms"),
    ]


async def _stops(server: Server, times: int) -> list[float]:
    taken = []
    for n in range(times):
        await _ask(server.port, "POST", "/v1/runs", {"input": "hi", "run_id": f"stop{n}"})
        reader, writer = await _open(server.port, "GET", f"/v1/runs/stop{n}/events")
        await reader.readuntil(b"word")
        begun = time.perf_counter()
        stopping = asyncio.create_task(_ask(server.port, "POST", f"/v1/runs/stop{n}/stop", {}))
        await reader.readuntil(b"run.cancelled")
        taken.append(time.perf_counter() - begun)
        await stopping
        writer.close()
    return taken


def steer() -> list[Row]:
    """From the request to steer, sent at the begin of a step, to what the agent says of it when that step is over."""
    with runstone("benchmarks.agents:attentive") as server:
        taken = sorted(asyncio.run(_steers(server, 30)))
    return [
        Row(what="steer to delivery, p50", figure=taken[len(taken) // 2] / STEP_SECONDS, unit="steps", at_most=1.1),
        Row(what="steer to delivery, worst", figure=taken[-1] / STEP_SECONDS, unit="steps", at_most=1.2),
    ]


async def _steers(server: Server, times: int) -> list[float]:
    taken = []
    for n in range(times):
        await _ask(server.port, "POST", "/v1/runs", {"input": "hi", "run_id": f"steer{n}"})
        reader, writer = await _open(server.port, "GET", f"/v1/runs/steer{n}/events")
        await reader.readuntil(b"begin")
        begun = time.perf_counter()
        steering = asyncio.create_task(_ask(server.port, "POST", f"/v1/runs/steer{n}/steer", {"input": "left"}))
        await reader.readuntil(b"heard left")
        taken.append(time.perf_counter() - begun)
        await steering
        writer.close()
    return taken


def subscribers() -> list[Row]:
    """500 subscribers of one session in which 50 words a second are said, against a relay that knows nothing."""
    words, count = 250, 500
    with baseline("bare", N=words, PACE=0.02) as server:
        bare = asyncio.run(_followed(server, "/relay", count, words, start=("POST", "/relay")))
    with runstone(N=words, PACE=0.02) as server:
        asyncio.run(_ask(server.port, "POST", "/api/sessions", {"id": "shared"}))
        said = {"message": "hi", "accepted_only": True}
        path = "/api/sessions/shared/events?format=hermes"
        ours = asyncio.run(
            _followed(server, path, count, words, start=("POST", "/api/sessions/shared/chat/stream"), body=said)
        )
    return [
        Row(what="bare relay: CPU per delivered event", figure=bare, unit="us"),
        Row(what="runstone: CPU per delivered event", figure=ours, unit="us"),
        Row(what="runstone : bare relay, CPU per delivered event", figure=ours / bare, unit="x", at_most=1.5),
    ]


async def _followed(
    server: Server, path: str, count: int, words: int, *, start: tuple[str, str], body: Any = None
) -> float:
    """CPU microseconds per event and subscriber, while `words` words are said."""
    connections = [await _open(server.port, "GET", path) for _ in range(count)]
    for reader, _ in connections:
        await reader.readuntil(b"\r\n\r\n")
    cpu = cpu_seconds(server.pid)

    async def follow(reader: asyncio.StreamReader) -> None:
        tail, last = b"", f"word{words - 1} ".encode()
        while last not in tail:
            chunk = await reader.read(1 << 16)
            assert chunk, "a subscriber's stream ended early"
            tail = tail[-64:] + chunk

    following = asyncio.gather(*(follow(reader) for reader, _ in connections))
    await _ask(server.port, *start, body)
    await following
    spent = cpu_seconds(server.pid) - cpu
    for _, writer in connections:
        writer.close()
    return 1e6 * spent / (words * count)
