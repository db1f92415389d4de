"""What the worker gives up before it touches a file.

Rule: nothing here can be taken back by code that runs later in the process. Where a system lacks one of the limits the
others still hold, and the extractor's clock holds everywhere.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys

from runstone.attachments.limits import Limits

try:
    import resource
except ImportError:  # pragma: no cover - not a POSIX system
    resource = None  # type: ignore[assignment]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DENIED_PREFIXES = (
    "socket.connect",
    "socket.bind",
    "socket.getaddrinfo",
    "socket.gethostby",
    "socket.send",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.kill",
    "pty.",
    "shutil.",
    "urllib.",
    "ftplib.",
    "smtplib.",
)


def confine(limits: Limits) -> None:
    """Limit memory, processor time, wall-clock time, files and privileges of this process for the rest of its life."""
    if resource is not None:
        seconds = math.ceil(limits.timeout) + 1
        _lower(resource.RLIMIT_AS, limits.memory_bytes)
        _lower(resource.RLIMIT_CPU, seconds)
        _lower(resource.RLIMIT_FSIZE, 0)
        _lower(resource.RLIMIT_CORE, 0)
        _lower(resource.RLIMIT_NOFILE, 64)
        # The extractor kills at `timeout`; this is for a worker whose extractor is gone.
        signal.setitimer(signal.ITIMER_REAL, limits.timeout + 1.0)
        with contextlib.suppress(OSError):
            os.nice(5)
    # openpyxl imports numpy where it finds it: 100 ms and hundreds of MB of address space for nothing.
    for module in ("numpy", "pandas"):
        sys.modules[module] = None  # type: ignore[assignment]
    sys.addaudithook(_deny)


def _lower(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    # Some systems know the name of a limit and refuse to set it.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(limit, (value, value))


def _deny(event: str, args: tuple[object, ...]) -> None:
    if event == "open":
        flags = args[2] if len(args) > 2 else 0
        if isinstance(flags, int) and flags & _WRITING:
            raise PermissionError("a reader of attachments writes no files")
    elif event.startswith(_DENIED_PREFIXES):
        raise PermissionError("a reader of attachments opens no connection and starts no process")
