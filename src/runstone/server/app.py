"""The ASGI application: every request through one door, in one order.

Order: request id, route-independent refusals (host, origin), preflight, route, credentials, handler, headers. Whatever goes
wrong on the way is logged with the request's id and answered in the words of the surface; callers never see why.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runstone.config import Config
from runstone.core.ids import LOCAL_OWNER
from runstone.engine.engine import Engine
from runstone.errors import RunstoneError
from runstone.protocols.base import ErrorBody
from runstone.protocols.openai import error_body
from runstone.server.auth import Keys, with_offered_key
from runstone.server.calls import Call, Shared
from runstone.server.errors import HttpError, failed, response_of
from runstone.server.hosts import HostPolicy
from runstone.server.limits import Gone
from runstone.server.routes import (
    capabilities,
    chat,
    conversations,
    docs,
    files,
    health,
    hermes_runs,
    hermes_sessions,
    hermes_turns,
    models,
    responses,
    subscription,
)
from runstone.server.routing import SOCKET, Match, Route, Router, route_path_of
from runstone.server.subscribing import SessionSocket

_log = logging.getLogger("runstone.server")
Errors = Callable[[RunstoneError], ErrorBody]
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def routes() -> list[Route]:
    """Every route of the server."""
    return [
        *health.ROUTES,
        *responses.ROUTES,
        *conversations.ROUTES,
        *chat.ROUTES,
        *files.ROUTES,
        *models.ROUTES,
        *hermes_sessions.ROUTES,
        *hermes_turns.ROUTES,
        *hermes_runs.ROUTES,
        *subscription.ROUTES,
        *capabilities.ROUTES,
        *docs.ROUTES,
    ]


class HttpApp:
    """The application. It opens its engine at the start of its life, or at the first request when nobody tells it of that."""

    def __init__(self, engine: Engine, config: Config, *, more: Iterable[Route] = ()) -> None:
        """The application of an engine.

        Raises:
            ConfigError: keys or origins are malformed.
        """
        self.engine = engine
        self.shared = Shared(engine, config)
        self._config = config
        self._keys = Keys(config.server.keys)
        self._hosts = HostPolicy(config.server)
        self._router = Router([*routes(), *more])
        self._lock = asyncio.Lock()
        self._is_open = False

    async def open(self) -> None:
        """Open the engine, once; a try that failed can be repeated."""
        if self._is_open:
            return
        async with self._lock:
            if not self._is_open:
                await self.engine.open()
                self._is_open = True

    async def close(self) -> None:
        """End what runs and close the engine; nothing when it is not open."""
        async with self._lock:
            if self._is_open:
                self._is_open = False
                await self.engine.close(drain_timeout=self._config.server.drain_timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await self._websocket(scope, receive, send)
            case kind:
                raise RuntimeError(f"connections of the kind {kind!r} are not served")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except Exception as e:
            if not isinstance(e, RunstoneError):
                _log.exception("the server cannot start")
            await send({"type": "lifespan.startup.failed", "message": str(e)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A socket goes the way of a request; who is refused gets an HTTP answer where the server can give one."""
        offered = list(scope["subprotocols"]) if "subprotocols" in scope else []
        headers = with_offered_key(scope["headers"], offered)
        await self._http({**scope, "type": "http", "method": SOCKET, "headers": headers}, receive, send, socket=scope)

    async def _http(self, scope: Scope, receive: Receive, send: Send, *, socket: Scope | None = None) -> None:
        request = Request(scope, receive)
        given = request.headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        try:
            response = await self._response(request, request_id)
        except Gone:
            return
        raw = response.raw_headers
        raw.append((b"x-request-id", request_id.encode()))
        self._hosts.mark(request.headers, raw)
        try:
            if socket is None or isinstance(response, SessionSocket):
                await response(scope, receive, send)
            elif "extensions" in socket and "websocket.http.response" in (socket["extensions"] or {}):
                await response(socket, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
        except Exception:
            _log.exception("request %s: the answer could not be sent to its end", request_id)

    async def _response(self, request: Request, request_id: str) -> Response:
        errors: Errors = error_body
        try:
            self._hosts.check(request.headers)
            if request.method == "OPTIONS" and (answer := self._hosts.preflight(request.headers)) is not None:
                return answer
            match = self._match(request)
            errors = match.route.errors
            owner = LOCAL_OWNER if match.route.is_public else self._keys.owner(request.scope["headers"])
            await self.open()
            call = Call(self.shared, request, owner=owner, request_id=request_id, params=match.params)
            return await match.route.handler(call)
        except HttpError as e:
            return response_of(e.answer)
        except RunstoneError as e:
            return self._refused(e, request_id, errors)
        except Gone:
            raise
        except Exception:
            _log.exception("request %s: %s %r failed", request_id, request.method, request.scope["path"])
            return response_of(failed().answer)

    def _match(self, request: Request) -> Match:
        """The route of a request.

        Raises:
            HttpError: no such route; only callers with credentials hear of that.
            NotAllowed: no or wrong credentials.
        """
        try:
            return self._router.match(request.method, route_path_of(request.scope))
        except HttpError:
            self._keys.owner(request.scope["headers"])
            raise

    def _refused(self, error: RunstoneError, request_id: str, errors: Errors) -> Response:
        answer = errors(error)
        if error.code == "draining":
            _log.info("request %s: refused, the server shuts down", request_id)
        elif answer.status >= 500:
            _log.error("request %s: %s: %s", request_id, type(error).__name__, error, exc_info=error.__cause__)
        response = response_of(answer)
        if answer.status == 413:
            # The rest of the body is not read; the connection cannot be used again.
            response.headers["connection"] = "close"
        return response
