"""Starts the servers under test, each pinned to core 0; the load runs on the others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SERVER_CORES = {0}
LOAD_CORES = set(range(1, os.cpu_count() or 1)) or {0}


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server."""

    pid: int
    port: int
    ready_after: float
    database: Path | None = None


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pin_to_server_core() -> None:
    """Run this process where the servers run."""
    os.sched_setaffinity(0, SERVER_CORES)


@contextmanager
def baseline(name: str, **environment: object) -> Iterator[Server]:
    """`bare` or `typical` under uvicorn with the loop and parser that Runstone uses."""
    port = free_port()
    command = [
        "-m",
        "uvicorn",
        f"benchmarks.{name}:app",
        "--port",
        str(port),
        "--log-level",
        "error",
        "--no-access-log",
    ]
    with _running([sys.executable, *command], port, environment) as server:
        yield server


@contextmanager
def runstone(
    target: str = "benchmarks.agents:words", *, database: Path | None = None, **environment: object
) -> Iterator[Server]:
    """`runstone run` with a database on disk, an empty one unless `database` is given."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        path = database or Path(folder) / "runs.db"
        command = [str(Path(sys.executable).with_name("runstone")), "run", target, "--port", str(port)]
        command += ["--db", str(path), "--log-level", "warning"]
        with _running(command, port, environment, path) as server:
            yield server


@contextmanager
def _running(
    command: list[str], port: int, environment: dict[str, object], database: Path | None = None
) -> Iterator[Server]:
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {name: str(value) for name, value in environment.items()},
        preexec_fn=pin_to_server_core,
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_until_listening(process, port)
        yield Server(pid=process.pid, port=port, ready_after=time.perf_counter() - begun, database=database)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it listened")
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.005)
    raise RuntimeError("the server did not listen within a minute")
