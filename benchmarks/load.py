"""Load: raw sockets on asyncio, one request a connection; counts frames, time to the first one, the server's CPU.

A frame is an occurrence of `marker` in the body. CPU is utime + stime of a process and its children, from /proc.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One request's answer; times in seconds."""

    first: float | None
    total: float
    frames: int
    status: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a load gave. `cpu` is the server's, in seconds."""

    answers: list[Answer]
    wall: float
    cpu: float

    @property
    def frames(self) -> int:
        """All frames received."""
        return sum(answer.frames for answer in self.answers)

    @property
    def cpu_us_per_frame(self) -> float:
        """The server's CPU per frame, in microseconds."""
        return 1e6 * self.cpu / max(self.frames, 1)

    @property
    def frames_per_second(self) -> float:
        """Frames per second of wall time."""
        return self.frames / self.wall

    def first_ms(self, quantile: float = 0.5) -> float:
        """Time to the first frame in milliseconds."""
        firsts = sorted(answer.first for answer in self.answers if answer.first is not None)
        return 1e3 * firsts[min(len(firsts) - 1, int(quantile * len(firsts)))] if firsts else float("nan")

    @property
    def bad(self) -> int:
        """Answers that were not 200."""
        return sum(answer.status != "200" for answer in self.answers)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children."""
    ticks, total, todo = os.sysconf("SC_CLK_TCK"), 0.0, [pid]
    while todo:
        one = todo.pop()
        try:
            with open(f"/proc/{one}/stat", encoding="ascii") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / ticks
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/children", encoding="ascii") as file:
                    todo += [int(child) for child in file.read().split()]
        except FileNotFoundError:
            continue
    return total


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
    return 0


async def request(port: int, body: bytes, *, path: str, marker: bytes, method: str = "POST") -> Answer:
    """Send one request and read its answer to the end."""
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    first, frames, tail, status, size = None, 0, b"", "", 0
    while chunk := await reader.read(1 << 18):
        if not status:
            status = chunk[:15].decode("latin1").split(" ")[1]
        size += len(chunk)
        blob = tail + chunk
        frames += blob.count(marker)
        if first is None and marker in blob:
            first = time.perf_counter() - begun
        tail = blob[-(len(marker) - 1) :]
    writer.close()
    return Answer(first=first, total=time.perf_counter() - begun, frames=frames, status=status, size_bytes=size)


async def run_load(
    port: int,
    pid: int,
    *,
    body: Callable[[int], bytes],
    path: str,
    clients: int,
    requests: int,
    marker: bytes = b"\ndata:",
) -> Load:
    """`requests` requests, `clients` at once, after one to warm up."""
    await request(port, body(-1), path=path, marker=marker)
    gate = asyncio.Semaphore(clients)

    async def one(n: int) -> Answer:
        async with gate:
            return await request(port, body(n), path=path, marker=marker)

    cpu, begun = cpu_seconds(pid), time.perf_counter()
    answers = await asyncio.gather(*(one(n) for n in range(requests)))
    return Load(answers=answers, wall=time.perf_counter() - begun, cpu=cpu_seconds(pid) - cpu)
