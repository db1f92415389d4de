"""Which handler a request goes to. A path matches as it was routed, letter by letter: nothing is tidied up or redirected."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.types import Scope

from runstone.errors import RunstoneError
from runstone.protocols.base import ErrorBody
from runstone.protocols.openai import error_body
from runstone.server.errors import HttpError

if TYPE_CHECKING:
    from starlette.responses import Response

    from runstone.server.calls import Call

    Handler = Callable[[Call], Awaitable[Response]]
else:
    Handler = Any

#: The method of routes for WebSockets; no HTTP request can have it.
SOCKET: Final = "WebSocket upgrade"
_PARAMETER: Final = re.compile(r"\{([a-z_]+)(:path)?\}")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path. `{name}` in the path is one segment, `{name:path}` the rest with its slashes.

    `errors` says a Runstone error in the words of the surface. `is_public`: no credentials are needed.
    """

    method: str
    path: str
    handler: Handler
    errors: Callable[[RunstoneError], ErrorBody] = error_body
    is_public: bool = False


class Match(msgspec.Struct, frozen=True):
    """A route, and what stands in its path's places."""

    route: Route
    params: dict[str, str]


class Router:
    """The routes of a server."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: dict[str, tuple[re.Pattern[str], dict[str, Route]]] = {}
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        if "{" not in route.path:
            by_method = self._fixed.setdefault(route.path, {})
        else:
            _, by_method = self._patterns.setdefault(route.path, (_pattern(route.path), {}))
        if route.method in by_method:
            raise ValueError(f"two routes for {route.method} {route.path}")
        by_method[route.method] = route

    def match(self, method: str, path: str) -> Match:
        """The route of a request.

        Raises:
            HttpError: 404 when no path matches, 405 when one does with other methods.
        """
        allowed: set[str] = set()
        for by_method, params in self._candidates(path):
            if method in by_method:
                return Match(by_method[method], params)
            allowed |= by_method.keys() - {SOCKET}
        if allowed:
            words = ", ".join(sorted(allowed))
            raise HttpError(
                405,
                f"{method} is not allowed here; expected {words}.",
                code="method_not_allowed",
                headers={"allow": words},
            )
        raise HttpError(404, f"There is nothing at {path[:200]!r}.", code="unknown_url")

    def _candidates(self, path: str) -> Iterable[tuple[dict[str, Route], dict[str, str]]]:
        if path in self._fixed:
            yield self._fixed[path], {}
        for pattern, by_method in self._patterns.values():
            found = pattern.fullmatch(path)
            if found is not None:
                yield by_method, found.groupdict()


def _pattern(path: str) -> re.Pattern[str]:
    pieces, end = [], 0
    for place in _PARAMETER.finditer(path):
        pieces.append(re.escape(path[end : place.start()]))
        pieces.append(f"(?P<{place[1]}>{'.+' if place[2] else '[^/]+'})")
        end = place.end()
    return re.compile("".join([*pieces, re.escape(path[end:])]), re.DOTALL)


def root_path_of(scope: Scope) -> str:
    """Where the application is mounted; empty at the top."""
    return str(scope["root_path"]) if scope.keys() & {"root_path"} else ""


def route_path_of(scope: Scope) -> str:
    """The path below the place where the application is mounted."""
    path, root = str(scope["path"]), root_path_of(scope)
    return path[len(root) :] if root and path.startswith(f"{root}/") else path
