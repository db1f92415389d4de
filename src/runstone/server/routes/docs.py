"""The contract for people, as one page that loads nothing from anywhere, and for programs as OpenAPI."""

from __future__ import annotations

from html import escape
from typing import Final

from starlette.responses import Response

from runstone.server.calls import Call
from runstone.server.contract import HEADERS, OPERATIONS
from runstone.server.errors import JsonResponse
from runstone.server.openapi import document
from runstone.server.operations import LABELS, Field, Operation
from runstone.server.routes.models import model_names
from runstone.server.routing import Route, root_path_of

_VERSION: Final = "1"
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1f24; }
h2 { margin-top: 2.5rem; font-size: 1.1rem; border-top: 1px solid #d0d7de; padding-top: 1rem; }
code { font: 13px ui-monospace, monospace; background: #f2f4f7; padding: 0 .25em; border-radius: 3px; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
td, th { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid #eaeef2; }
.label { white-space: nowrap; font-size: 12px; padding: .05em .5em; border-radius: 1em; background: #e6f4ea; }
.extension { background: #e7f0fd; } .legacy { background: #fbe9e7; } .compatible-shaped { background: #fdf3d8; }
@media (prefers-color-scheme: dark) {
 body { background: #0d1117; color: #e6edf3; } code { background: #21262d; } td, th, h2 { border-color: #30363d; }
 .label { color: #1b1f24; }
}
"""
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


async def openapi(call: Call) -> JsonResponse:
    """The OpenAPI document."""
    return JsonResponse(document(_VERSION))


async def style(call: Call) -> Response:
    """The page's one style sheet; the policy forbids styles inside the page."""
    return Response(_STYLE, media_type="text/css", headers={"x-content-type-options": "nosniff"})


async def docs(call: Call) -> Response:
    """The page."""
    root = root_path_of(call.request.scope)
    agents = ", ".join(_code(name) for name in model_names(call.engine))
    labels = "".join(f"<li>{_label(label)} {escape(meaning)}</li>" for label, meaning in LABELS.items())
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Runstone HTTP</title>",
        f"<link rel='stylesheet' href='{escape(root)}/docs/style.css'></head><body><h1>Runstone HTTP</h1>",
        f"<p>Models of this server: {agents}. The same as <a href='{escape(root)}/openapi.json'>OpenAPI</a>.</p>",
        f"<ul>{labels}</ul>",
        _table("Headers", HEADERS),
        *(_section(operation) for operation in OPERATIONS),
        "</body></html>",
    ]
    return Response("".join(parts), media_type="text/html", headers=_HEADERS)


def _section(operation: Operation) -> str:
    title = f"{_code(f'{operation.method} {operation.path}')} {_label(operation.label)}"
    tables = (
        ("Query", operation.query),
        ("Body", operation.body),
        ("Answer", operation.answer),
        ("Events", operation.events),
    )
    shown = "".join(_table(name, fields) for name, fields in tables if fields)
    return f"<h2>{title}</h2><p>{_prose(operation.text)}.</p>{shown}"


def _table(name: str, fields: list[Field]) -> str:
    rows = "".join(
        f"<tr><td>{_code(field.name)}</td><td>{_label(field.label)}</td><td>{escape(field.type)}</td>"
        f"<td>{_prose(field.text)}</td></tr>"
        for field in fields
    )
    return f"<table><caption>{name}</caption>{rows}</table>"


def _prose(text: str) -> str:
    """Words, those between backticks as code."""
    pieces = text.split("`")
    return "".join(_code(piece) if n % 2 else escape(piece) for n, piece in enumerate(pieces))


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _label(label: str) -> str:
    return f"<span class='label {label}'>{label}</span>"


ROUTES: Final = [
    Route(method="GET", path="/openapi.json", handler=openapi),
    Route(method="GET", path="/docs", handler=docs),
    Route(method="GET", path="/docs/style.css", handler=style),
]
