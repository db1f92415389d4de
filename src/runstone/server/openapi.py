"""The contract as an OpenAPI 3.1 document. Labels stand in `x-runstone-label`."""

from __future__ import annotations

import re
from typing import Any, Final

from runstone.server.contract import HEADERS, OPERATIONS
from runstone.server.operations import LABELS, Field, Operation

_PLACE: Final = re.compile(r"\{([a-z_]+)\}")
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def document(version: str) -> dict[str, Any]:
    """The document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    labels = "; ".join(f"`{label}`: {meaning}" for label, meaning in LABELS.items())
    return {
        "openapi": "3.1.0",
        "info": {"title": "Runstone", "version": version, "description": f"Labels: {labels}."},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    places = _PLACE.findall(operation.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in places]
    parameters += [_parameter(field, "query") for field in operation.query]
    if operation.path.startswith("/v1/") and operation.events:
        parameters += [_parameter(field, "header") for field in HEADERS if field.name != "Authorization"]
    shown: dict[str, Any] = {
        "operationId": f"{operation.method.lower()}_{re.sub('[^a-z]+', '_', operation.path).strip('_')}",
        "summary": operation.text,
        "x-runstone-label": operation.label,
        "responses": {"200": _answer(operation), "default": _error()},
    }
    if parameters:
        shown["parameters"] = parameters
    if operation.body:
        kind = "multipart/form-data" if operation.form else "application/json"
        shown["requestBody"] = {"content": {kind: {"schema": _schema(operation.body, operation.required)}}}
    if operation.is_public:
        shown["security"] = []
    return shown


def _answer(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.answer:
        content["application/json"] = {"schema": _schema(operation.answer, [])}
    if operation.events:
        events = [{"name": e.name, "x-runstone-label": e.label, "description": e.text} for e in operation.events]
        content["text/event-stream"] = {"schema": {"type": "string"}, "x-runstone-events": events}
    return {"description": operation.text, **({"content": content} if content else {})}


def _error() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": "It was refused, or failed.", "content": {"application/json": {"schema": schema}}}


def _parameter(field: Field, place: str) -> dict[str, Any]:
    return {
        "name": field.name,
        "in": place,
        "description": field.text,
        "schema": _type(field),
        "x-runstone-label": field.label,
    }


def _schema(fields: list[Field], required: list[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {field.name: _described(field) for field in fields}}
    return {**schema, "required": required} if required else schema


def _described(field: Field) -> dict[str, Any]:
    return {**_type(field), "description": field.text, "x-runstone-label": field.label}


def _type(field: Field) -> dict[str, Any]:
    words = field.type.split("|")
    return {"type": words[0] if len(words) == 1 else words}
