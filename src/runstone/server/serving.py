"""Runs an application on uvicorn, and ends it well.

A signal ends a server in this order: new starts are refused, runs get `server.drain_timeout` to end and are then interrupted,
their streams send their last frames, connections close, the store closes. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn

from runstone.config import ServerConfig
from runstone.errors import ConfigError
from runstone.server.app import HttpApp
from runstone.server.connections import HttpConnection

#: What streams may take for their last frames when all runs have ended.
_LAST_FRAMES: Final = 5
#: Clients have nothing to say on a WebSocket.
_MAX_MESSAGE: Final = 64 * 1024
#: Threads of blocking agents and of the database take turns with the event loop at least this often.
_SWITCH_INTERVAL: Final = 0.001
#: A server that streams makes many short-lived objects and few cycles: at Python's own thresholds the search for cycles takes a
#: tenth of its time.
_GC_THRESHOLDS: Final = (20_000, 10, 10)
_M_MMAP_THRESHOLD: Final = -3  # malloc.h
_LARGE_BLOCK_BYTES: Final = 1024 * 1024


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, app: HttpApp, *, drain_timeout: float, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._app = app
        self._drain_timeout = drain_timeout
        self._ready = ready
        self._hurry = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await self._app.open()
        await super().startup(sockets)
        gc.freeze()
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends the server well, the second at once."""
        if self.should_exit and self._loop is not None:
            self.force_exit = True
            self._loop.call_soon_threadsafe(self._hurry.set)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.create_task(self._app.engine.end_runs(drain_timeout=self._drain_timeout))
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({ending, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if self.force_exit:
            ending.cancel()
            self.config.timeout_graceful_shutdown = 0
        await super().shutdown(sockets)


def _give_back_large_blocks() -> None:
    """Have memory of a megabyte or more returned to the system as soon as it is free.

    The end of a long answer makes several copies of it for a moment. Left alone, glibc raises its threshold after the first of
    them and keeps the rest for ever.
    """
    if sys.platform == "linux":
        tune = getattr(ctypes.CDLL(None), "mallopt", None)
        if tune is not None:
            tune(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def run_server(app: HttpApp, config: ServerConfig, *, ready: Callable[[str], None] | None = None) -> None:
    """Serve until a signal comes. `ready` is called with the address when it listens; port 0 becomes a real one.

    Raises:
        ConfigError: the address cannot be used.
        RunstoneError: the engine cannot be opened.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _give_back_large_blocks()
    gc.set_threshold(*_GC_THRESHOLDS)
    listener = _listener(config.host, config.port)
    settings = uvicorn.Config(
        app,
        http=HttpConnection,
        lifespan="on",
        access_log=False,
        server_header=False,
        log_config=None,
        root_path=config.root_path,
        timeout_graceful_shutdown=_LAST_FRAMES,
        timeout_keep_alive=30,
        ws="websockets-sansio",
        ws_max_size=_MAX_MESSAGE,
        ws_per_message_deflate=False,
        proxy_headers=False,
    )
    port = listener.getsockname()[1]
    name = f"[{config.host}]" if ":" in config.host else config.host

    def listens() -> None:
        if ready is not None:
            ready(f"http://{name}:{port}")

    server = _Server(settings, app, drain_timeout=config.drain_timeout, ready=listens)
    server.run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, OverflowError) as e:
        listener.close()
        reason = e.strerror if isinstance(e, OSError) else "expected a port from 0 to 65535"
        raise ConfigError(f"{host!r} port {port} cannot be listened on: {reason}", option="server.port") from e
    listener.set_inheritable(False)
    return listener
