"""One worker process: started, spoken to, ended.

Rule: when `ask_worker` is left, by whatever way, the process is dead and reaped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

_PIECE_BYTES = 256 * 1024
_REAP_TIMEOUT = 5.0
_SIGXCPU = 24

# The worker inherits no variable: there are keys and passwords among them. UTF-8 is set by the -X option.
_ENVIRONMENT = {"LANG": "C.UTF-8"}

# The package's own __init__ would load the web framework. So the worker gets an empty package of that name, and the
# same module as `python -m runstone.attachments.worker` starts in a fraction of the time and memory. The parent's
# search path comes last: libraries outside site-packages are found, and nothing there can shadow the standard library.
_BOOT = """\
import sys, types
root, *more = sys.argv[1:]
for name, path in (("runstone", root), ("runstone.attachments", root + "/attachments")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
sys.path.extend(path for path in more if path not in sys.path)
from runstone.attachments.worker import main
sys.exit(main())
"""


class WorkerFailure(Exception):
    """A worker that gave no reply, and why."""

    def __init__(self, reason: Literal["not_started", "timeout", "crashed", "overflow"]) -> None:
        super().__init__(reason)
        self.reason: Literal["not_started", "timeout", "crashed", "overflow"] = reason


def worker_command(boot: str = _BOOT) -> list[str]:
    """The command that starts a worker with this interpreter, in isolated mode."""
    root = str(Path(__file__).resolve().parent.parent)
    search = [path for path in sys.path if os.path.isabs(path)]
    return [sys.executable, "-I", "-B", "-X", "utf8", "-c", boot, root, *search]


async def ask_worker(
    command: Sequence[str], *, request: Sequence[bytes], kill_after: float, max_reply_bytes: int
) -> bytes:
    """The reply of a new worker to `request`.

    Cancelling kills the worker.

    Raises:
        WorkerFailure: It could not be started, took longer than `kill_after` seconds, ended without success, or said
            more than `max_reply_bytes`.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd="/", env=_ENVIRONMENT, start_new_session=True
        )
    except OSError:
        raise WorkerFailure("not_started") from None
    try:
        async with asyncio.timeout(kill_after):
            reply = await _converse(process, request, max_reply_bytes)
            status = await process.wait()
    except TimeoutError:
        raise WorkerFailure("timeout") from None
    finally:
        await _end(process)
    if status == -_SIGXCPU:
        raise WorkerFailure("timeout")
    if status != 0:
        raise WorkerFailure("crashed")
    return reply


async def _converse(process: Process, request: Sequence[bytes], max_reply_bytes: int) -> bytes:
    # Both directions at once: a worker that answers before it has read everything must not block either side.
    feeding = asyncio.create_task(_feed(process, request))
    try:
        return await _collect(process, max_reply_bytes)
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})


async def _feed(process: Process, request: Sequence[bytes]) -> None:
    assert process.stdin is not None
    # A worker that ends early closes the pipe; its exit status tells the rest.
    with contextlib.suppress(ConnectionError):
        for part in request:
            for start in range(0, len(part), _PIECE_BYTES):
                process.stdin.write(part[start : start + _PIECE_BYTES])
                await process.stdin.drain()
        process.stdin.close()


async def _collect(process: Process, max_reply_bytes: int) -> bytes:
    assert process.stdout is not None
    reply = bytearray()
    while piece := await process.stdout.read(_PIECE_BYTES):
        reply += piece
        if len(reply) > max_reply_bytes:
            raise WorkerFailure("overflow")
    return bytes(reply)


async def _end(process: Process) -> None:
    """Kill the process if it lives, and return when it is reaped; a cancellation meanwhile is raised afterwards."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    reaping = asyncio.create_task(_reap(process))
    cancelled = False
    while not reaping.done():
        try:
            await asyncio.wait({reaping}, timeout=_REAP_TIMEOUT)
            reaping.cancel()
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def _reap(process: Process) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    # Unread output would keep the pipe, and with it the process object, open.
    while await process.stdout.read(_PIECE_BYTES):
        pass
    await process.wait()
