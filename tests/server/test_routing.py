"""Paths to routes, letter by letter."""

from __future__ import annotations

import pytest
from starlette.responses import Response

from runstone.server.app import routes
from runstone.server.calls import Call
from runstone.server.contract import OPERATIONS
from runstone.server.errors import HttpError
from runstone.server.routing import SOCKET, Route, Router, route_path_of


async def handler(call: Call) -> Response:
    """Never called."""
    raise NotImplementedError


ROUTER = Router(
    Route(method=method, path=path, handler=handler)
    for method, path in (
        ("GET", "/a"),
        ("POST", "/a"),
        ("GET", "/a/{id}"),
        ("DELETE", "/a/{id}"),
        ("GET", "/m/{name:path}"),
    )
)


@pytest.mark.parametrize(
    ("path", "params"),
    [("/a", {}), ("/a/x y", {"id": "x y"}), ("/a/..", {"id": ".."}), ("/m/x/y", {"name": "x/y"})],
)
def test_a_path_names_its_route(path: str, params: dict[str, str]) -> None:
    """What stands in a place is handed over as it is."""
    assert ROUTER.match("GET", path).params == params


@pytest.mark.parametrize("path", ["", "/", "/a/", "//a", "/a/x/y", "/A", "/a\n", "/m/", "/a/\n/x"])
def test_nearly_right_is_wrong(path: str) -> None:
    """No path is tidied up."""
    with pytest.raises(HttpError) as raised:
        ROUTER.match("GET", path)
    assert raised.value.answer.status == 404


def test_a_wrong_method_is_told_the_right_ones() -> None:
    """405 with `allow`."""
    with pytest.raises(HttpError) as raised:
        ROUTER.match("PUT", "/a/x")
    assert raised.value.answer.status == 405
    assert raised.value.answer.headers == {"allow": "DELETE, GET"}


def test_two_routes_of_one_name_are_a_mistake() -> None:
    """A route that is there twice stops the start."""
    twice = Route(method="GET", path="/a", handler=handler)
    with pytest.raises(ValueError, match="two routes"):
        Router([twice, twice])


@pytest.mark.parametrize(
    ("root", "path", "below"),
    [("", "/a", "/a"), ("/r", "/r/a", "/a"), ("/r", "/ra", "/ra"), ("/r", "/a", "/a"), ("/r", "/r", "/r")],
)
def test_the_path_below_the_mount(root: str, path: str, below: str) -> None:
    """Only a whole segment is the place where the application is mounted."""
    assert route_path_of({"type": "http", "root_path": root, "path": path}) == below
    assert route_path_of({"type": "http", "path": path}) == path


def test_the_contract_has_every_route() -> None:
    """What is served and what is published are the same, apart from HEAD and the page's style."""
    served = {(route.method, route.path.replace(":path", "")) for route in routes()}
    served = {(method, path) for method, path in served if method not in ("HEAD", SOCKET) and path != "/docs/style.css"}
    assert {(operation.method, operation.path) for operation in OPERATIONS} == served
    public = {operation.path for operation in OPERATIONS if operation.is_public}
    assert public == {route.path for route in routes() if route.is_public}
    assert public == {"/healthz", "/readyz", "/health", "/v1/health"}
