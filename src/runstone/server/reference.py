"""The contract as the page docs/reference/http.md, which a test compares with this."""

from __future__ import annotations

from typing import Final

from runstone.server.contract import HEADERS, OPERATIONS
from runstone.server.operations import LABELS, Field, Operation

_HEAD: Final = """# HTTP

What the server answers to, for every operation, field and event. The same as a page of a running server is `/docs`,
and as OpenAPI 3.1 `/openapi.json`. What becomes of each value stands in the pages of the
[protocols](../protocols/responses.md).

This page is made from the table that the server itself uses: `python -m runstone.server.reference >
docs/reference/http.md`.

## Labels

{labels}

## For every request

- A body is JSON, declared as `application/json`, in UTF-8, an object at the top; anything else is 415 or 400. Bodies
  over `server.max_body_bytes` are 413, found out while they come in.
- The name in `Host` has to be this machine's, `server.host` or one of `server.hosts`; else 403 `host_not_allowed`. An
  `Origin` has to be the server's own or one of `server.origins`; else 403 `origin_not_allowed`.
- With keys, every route but `/healthz`, `/readyz` and Hermes' `/health`, `/v1/health` needs one; without or with a
  wrong one it is 401, also where there is no route.
- An id of another user is answered like one that nobody has: 404.
- Every answer has `x-request-id`. Errors are `{{"error": {{"message", "type", "param", "code"}}}}`.
- Paths are taken letter by letter: no redirects, no trailing slashes.

## Streams

`text/event-stream`. The head comes at once, first bytes within a tenth of a second. A keep-alive is one comment line
`: ping` without an empty line after it, between frames, after `server.ping_after` seconds of silence. The body ends
with `data: [DONE]`; a stream that ends without it was cut, and can be read on from the last `id:` (Chat) or
`sequence_number` (Responses). A client that leaves ends nothing, unless `disconnect` is `stop`.

## Headers

{headers}
"""


def page() -> str:
    """The page."""
    labels = "\n".join(f"- **{label}**: {meaning}" for label, meaning in LABELS.items())
    head = _HEAD.format(labels=labels, headers=_table("header", HEADERS))
    return "\n".join([head, *(_section(operation) for operation in OPERATIONS)])


def _section(operation: Operation) -> str:
    parts = [f"## `{operation.method} {operation.path}`\n", f"{operation.text}. **{operation.label}**\n"]
    for word, fields in (
        ("query", operation.query),
        ("body", operation.body),
        ("answer", operation.answer),
        ("event", operation.events),
    ):
        if fields:
            parts.append(_table(word, fields) + "\n")
    return "\n".join(parts)


def _table(word: str, fields: list[Field]) -> str:
    has_types = any(field.type for field in fields)
    head = [f"| {word} | label | type | meaning |", "| --- | --- | --- | --- |"]
    if not has_types:
        head = [f"| {word} | label | meaning |", "| --- | --- | --- |"]
    rows = [
        f"| `{field.name}` | {field.label} | {_type(field) if has_types else ''}{field.text.replace('|', chr(92) + '|')} |"
        for field in fields
    ]
    return "\n".join([*head, *rows])


def _type(field: Field) -> str:
    return f"{field.type.replace('|', ' or ')} | "


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
