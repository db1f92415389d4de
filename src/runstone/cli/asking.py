"""A server, asked over HTTP."""

from __future__ import annotations

import argparse
import http.client
import json
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlsplit

from runstone.errors import BackendError, BackendUnavailable, ConfigError

_DEFAULT: Final = "http://127.0.0.1:8080"
#: How often a stream that was cut is taken up again before the command gives up, and how long it waits in between.
_TRIES: Final = 10
_PAUSE: Final = 0.5
_TIMEOUT: Final = 60.0


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of every command that asks a server."""
    command.add_argument("--url", default=_DEFAULT, help=f"the server ({_DEFAULT})")
    command.add_argument("--key", help="an API key, where the server has keys")
    command.add_argument("--json", action="store_true", help="one JSON object a line")


class Server:
    """A server at an address, asked as the user of a key."""

    def __init__(self, url: str, key: str | None) -> None:
        """The server.

        Raises:
            ConfigError: the address is none.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is no address of a server; expected http://host:port", option="url")
        self._parts = parts
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def post(self, *path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        """The JSON that a POST is answered with.

        Raises:
            BackendError: the server refuses, or cannot be reached.
        """
        connection, response = self._send("POST", path, {"Content-Type": "application/json"}, json.dumps(body or {}))
        with connection:
            return json.loads(response.read())

    def events(self, *path: str, query: str, after: str | None = None) -> Iterator[dict[str, Any]]:
        """The data of a stream's frames up to its end; a stream that is cut is read on from where it was.

        Raises:
            BackendError: the server refuses, or cannot be reached any more.
        """
        failures = 0
        while True:
            is_over = False
            try:
                for id, event, data in self._frames(path, query, after):
                    failures, after = 0, id or after
                    if event == "done":
                        is_over = True
                        break
                    yield json.loads(data)
            except BackendUnavailable:
                failures += 1
                if failures == _TRIES:
                    raise
                time.sleep(_PAUSE)
            if is_over:
                return

    def _frames(self, path: tuple[str, ...], query: str, after: str | None) -> Iterator[tuple[str, str, str]]:
        headers = {} if after is None else {"Last-Event-ID": after}
        connection, response = self._send("GET", path, headers, None, query)
        frame = {"id": "", "event": "", "data": ""}
        with connection:
            try:
                for line in response:
                    name, _, value = line.decode().rstrip("\r\n").partition(": ")
                    if name in frame:
                        frame[name] = value
                    elif not name and frame["data"]:
                        yield frame["id"], frame["event"], frame["data"]
                        frame = {"id": "", "event": "", "data": ""}
            except (OSError, http.client.HTTPException) as e:
                raise BackendUnavailable("The stream was cut.") from e
        raise BackendUnavailable("The stream was cut.")

    def _send(
        self, method: str, path: tuple[str, ...], headers: dict[str, str], body: str | None, query: str = ""
    ) -> tuple[_Closing, http.client.HTTPResponse]:
        parts = self._parts
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT)
        target = parts.path.rstrip("/") + "".join(f"/{quote(word, safe='')}" for word in path)
        try:
            connection.request(method, f"{target}{query}", body=body, headers={**self._headers, **headers})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            raise BackendUnavailable(f"No server answers at {parts.scheme}://{parts.netloc}.") from e
        if response.status >= 400:
            text = response.read()
            connection.close()
            raise BackendError(_reason(text) or f"The server says {response.status}.", status=response.status)
        return _Closing(connection), response


class _Closing:
    """A connection that is closed at the end of a block."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _reason(text: bytes) -> str | None:
    try:
        match json.loads(text):
            case {"error": {"message": str(message)}}:
                return message
    except ValueError:
        pass
    return None
