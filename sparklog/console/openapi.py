"""The OpenAPI document of the JSON API, made from the tables of pages and changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sparklog.console.changes import field_schema, fields_document
from sparklog.console.resources import ChangeAction, FieldSpec, PageResource

API_PREFIX: Final = "/api/v1"
TOKEN_HEADER: Final = "X-CSRF-Token"  # noqa: S105 - the name of a header
_PROBLEM: Final = {
    "description": "The request failed; the message says why and what to do.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error", "message"],
                "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
            }
        }
    },
}
_OBJECT: Final = {
    "description": "Done.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A path of the API whose answer is a stream or a file."""

    path: str
    name: str
    summary: str
    parameters: tuple[FieldSpec, ...]


def openapi_document(
    pages: Iterable[PageResource],
    changes: Iterable[ChangeAction],
    streams: Iterable[StreamDescription],
    version: str,
) -> dict[str, Any]:
    """Return the document, in OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for page in pages:
        path = API_PREFIX + ("/overview" if page.path == "/" else page.path)
        paths.setdefault(path, {})["get"] = _operation(page.path, page.name, page.summary) | {
            "parameters": [*_path_parameters(page.path), *_query_parameters(page.parameters)]
        }
    for change in changes:
        path = API_PREFIX + change.path
        paths.setdefault(path, {})["post"] = _operation(
            change.path, change.name, f"{change.summary} Role: {change.role.word}."
        ) | {
            "parameters": [
                *_path_parameters(change.path),
                {
                    "name": TOKEN_HEADER, "in": "header", "required": True,
                    "description": "the token from /session", "schema": {"type": "string"},
                },
            ],
            "requestBody": {
                "required": bool(change.fields),
                "content": {"application/json": {"schema": fields_document(change)}},
            },
        }  # fmt: skip
    paths[f"{API_PREFIX}/session"] = {
        "get": _operation("/session", "session", "Return the user, the role and the token.")
    }
    for one in streams:
        parameters = [*_path_parameters(one.path), *_query_parameters(one.parameters)]
        described = _operation(one.path, one.name, one.summary) | {"parameters": parameters}
        paths[API_PREFIX + one.path] = {"get": described}
    return {
        "openapi": "3.1.0",
        "info": {"title": "sparklog console", "version": version},
        "paths": dict(sorted(paths.items())),
    }


def _operation(path: str, name: str, summary: str) -> dict[str, Any]:
    section = path.strip("/").split("/")[0] or "overview"
    return {
        "operationId": name,
        "summary": summary,
        "tags": [section],
        "responses": {"200": _OBJECT, "default": _PROBLEM},
    }


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _query_parameters(parameters: Iterable[FieldSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name, "in": "query", "required": one.required,
            "description": one.summary, "schema": field_schema(one),
        }
        for one in parameters
    ]  # fmt: skip
