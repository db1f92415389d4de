"""Whether the process lives, and whether it takes work. The only routes that need no credentials."""

from __future__ import annotations

from typing import Final

from runstone.errors import StorageError
from runstone.server.calls import Call
from runstone.server.errors import JsonResponse
from runstone.server.routing import Route


async def healthz(call: Call) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


async def readyz(call: Call) -> JsonResponse:
    """200 when starts are taken: the store reads and writes, and the server is not shutting down; 503 otherwise."""
    if call.engine.is_draining:
        return JsonResponse({"status": "draining"}, status=503, headers={"retry-after": "2"})
    try:
        await call.engine.store.session(call.owner, "readyz")
        await call.engine.store.check()
    except StorageError:
        return JsonResponse({"status": "storage_unavailable"}, status=503, headers={"retry-after": "2"})
    return JsonResponse({"status": "ready"})


ROUTES: Final = [
    Route(method=method, path=path, handler=handler, is_public=True)
    for path, handler in (("/healthz", healthz), ("/readyz", readyz))
    for method in ("GET", "HEAD")
]
