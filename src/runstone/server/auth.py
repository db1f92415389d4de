"""Who calls: the bearer key of a request, and the user it belongs to.

Rule: with keys configured nobody is anybody without one; every key is compared, in constant time, whatever was sent.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from runstone.config import ServerConfig
from runstone.core.ids import LOCAL_OWNER
from runstone.errors import ConfigError, NotAllowed

_BASE64: Final = re.compile(r"(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?")


class Keys:
    """The configured keys."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Keys and their users.

        Raises:
            ConfigError: a key or a user is empty, or a key has a space.
        """
        for key, user in keys.items():
            if not key or not user or key != "".join(key.split()):
                raise ConfigError("server.keys has an empty or spaced key, or an empty user", option="server.keys")
        self._users = [(_digest(key.encode()), user) for key, user in keys.items()]

    def owner(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The owner on whose behalf the request acts; `local` when there are no keys.

        Raises:
            NotAllowed: no key, more than one, or a wrong one.
        """
        if not self._users:
            return LOCAL_OWNER
        values = [value for name, value in headers if name == b"authorization"]
        if len(values) != 1:
            raise NotAllowed("An API key is needed, in one header `Authorization: Bearer <key>`.")
        scheme, _, token = values[0].strip().partition(b" ")
        digest = _digest(token.strip())
        found = None
        for known, user in self._users:
            if hmac.compare_digest(digest, known):
                found = user
        if found is None or scheme.lower() != b"bearer":
            raise NotAllowed("The API key is not valid.")
        return found


#: A browser cannot give a WebSocket headers; it can offer a subprotocol: this, and the key in URL-safe base64 without padding.
KEY_SUBPROTOCOL: Final = "runstone.bearer."


def with_offered_key(headers: list[tuple[bytes, bytes]], subprotocols: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """A WebSocket's headers, with the key that it offers as a subprotocol when it brings none in a header."""
    if any(name == b"authorization" for name, _ in headers):
        return headers
    found = [word.removeprefix(KEY_SUBPROTOCOL) for word in subprotocols if word.startswith(KEY_SUBPROTOCOL)]
    keys = [urlsafe_b64decode(word + "=" * (-len(word) % 4)) for word in found if _BASE64.fullmatch(word)]
    return [*headers, *((b"authorization", b"Bearer " + key) for key in keys)]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(config: ServerConfig) -> None:
    """See that nobody from outside is let in without a key.

    Raises:
        ConfigError: the server would listen beyond loopback without keys.
    """
    if not config.keys and not is_loopback(config.host):
        raise ConfigError(
            f"server.host is {config.host!r}, which others can reach, and there are no keys: "
            "give keys (--key USER=KEY) or listen on 127.0.0.1",
            option="server.keys",
        )
