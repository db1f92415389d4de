"""One server per database file: an operating system lock beside it, which the system itself takes back after a crash."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from runstone.errors import ConfigError, StorageUnavailable

if sys.platform == "win32":
    import msvcrt

    def _lock(fd: int) -> None:
        # Far behind the text, so that others can read who holds it.
        os.lseek(fd, 1 << 20, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


class ServerLock:
    """Held from `take` to `release`, or to the end of the process."""

    def __init__(self, database: Path) -> None:
        # Where the file really lies: another name for it must not be another lock.
        database = database.resolve()
        self._path = database.with_name(database.name + ".lock")
        self._fd: int | None = None

    def take(self) -> None:
        """Become the one server of this database.

        Raises:
            ConfigError: another one is; the message names its process.
            StorageUnavailable: the lock file cannot be written.
        """
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as e:
            raise StorageUnavailable("The folder of the database cannot be written.") from e
        try:
            _lock(fd)
        except OSError as e:
            holder = os.pread(fd, 80, 0).decode("ascii", "replace").strip() if hasattr(os, "pread") else ""
            os.close(fd)
            raise ConfigError(
                f"Another server uses this database: {holder or 'its process is not known'}. "
                "Stop it, or give this one another database.",
                option="database",
            ) from e
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, f"process {os.getpid()} (runstone server)\n".encode())
        self._fd = fd

    def release(self) -> None:
        """Let another server take it. The file stays: taking it away could free a name that another one just locked."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
