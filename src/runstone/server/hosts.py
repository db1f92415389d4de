"""Which names this server answers to, and which web pages may call it.

A page anywhere can make a browser send requests to 127.0.0.1, and can give its own name that address. So the name in Host
must be one of ours, and an Origin must be the same as the server or listed. Source: Fetch standard, "CORS protocol".
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from runstone.config import ServerConfig
from runstone.errors import ConfigError
from runstone.server.auth import is_loopback
from runstone.server.errors import HttpError

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s*]+")
_ANY: Final = "*"
_EXPOSED: Final = (
    b"runstone-run-id, x-request-id, retry-after, x-should-retry, x-hermes-session-id, idempotency-replayed"
)
RawHeaders = list[tuple[bytes, bytes]]


class HostPolicy:
    """The names and origins of one server."""

    def __init__(self, config: ServerConfig) -> None:
        """The policy of a configuration.

        Raises:
            ConfigError: an origin is not `scheme://host[:port]`.
        """
        for origin in config.origins:
            if _ORIGIN.fullmatch(origin.lower()) is None:
                raise ConfigError(
                    f"server.origins has {origin!r}; expected scheme://host[:port], each origin by itself",
                    option="server.origins",
                )
        self._names = {name.lower() for name in (*config.hosts, config.host)}
        self._takes_addresses = not is_loopback(config.host)
        self._origins = {origin.lower() for origin in config.origins}

    def check(self, headers: Headers) -> None:
        """Refuse foreign names and foreign pages.

        Raises:
            HttpError: 403; also when the header is there more than once.
        """
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._is_ours(_name_of(hosts[0])):
            raise HttpError(
                403,
                f"This server does not answer to the name {hosts[0][:100] if hosts else ''!r}; see server.hosts.",
                code="host_not_allowed",
                type="permission_error",
            )
        if origins and not self.allows(origins, hosts[0]):
            raise HttpError(
                403,
                f"Pages of {origins[0][:100]!r} may not call this server; see server.origins.",
                code="origin_not_allowed",
                type="permission_error",
            )

    def allows(self, origins: list[str], host: str) -> bool:
        """Whether a page of this origin may call."""
        if len(origins) != 1:
            return False
        origin = origins[0].lower()
        return origin in self._origins or origin.partition("://")[2] == host.lower()

    def _is_ours(self, name: str) -> bool:
        if name in self._names or _ANY in self._names or is_loopback(name):
            return True
        return self._takes_addresses and _is_address(name)

    def preflight(self, headers: Headers) -> Response | None:
        """The answer to a browser that asks before it sends; None when this is no such question. Call `check` first."""
        wanted = headers.get("access-control-request-method")
        if wanted is None or "origin" not in headers:
            return None
        response = Response(status_code=204)
        response.headers["access-control-allow-methods"] = "GET, POST, PATCH, DELETE"
        response.headers["access-control-allow-headers"] = headers.get("access-control-request-headers", "")
        response.headers["access-control-max-age"] = "600"
        return response

    def mark(self, headers: Headers, raw: RawHeaders) -> None:
        """Add to a response's headers what a page of a listed origin needs to read it. Credentials are never allowed."""
        if not self._origins:
            return
        raw.append((b"vary", b"Origin"))
        origin = headers.get("origin", "")
        if origin.lower() in self._origins:
            raw.append((b"access-control-allow-origin", origin.encode("latin-1")))
            raw.append((b"access-control-expose-headers", _EXPOSED))


def _name_of(host: str) -> str:
    """The host of a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
