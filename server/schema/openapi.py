"""The OpenAPI document: bodies from the fields' tables, answers from the types that are encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from core.routes import Route
from server.schema.fields import Table, object_schema
from server.schema.kinds import Schema

_EVENTS: Final[Schema] = {"description": "`data:` lines of JSON chunks, then `data: [DONE]`"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a route takes and gives. It does not know who handles it."""

    route: Route
    summary: str
    answer: Any  # the type that is encoded; str is text as it is
    errors: tuple[int, ...] = ()  # statuses beside 401, which any may have
    parameters: tuple[Schema, ...] = ()
    body: tuple[str, ...] = ()  # tables of its fields, where it is a POST; it fits one of them
    streams: bool = False  # where the body asks for it

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"


def openapi(
    endpoints: Iterable[Endpoint], error: type, tables: Mapping[str, Table], version: str
) -> Schema:
    """Write the document; `error` is the type of a refusal's body."""
    endpoints = list(endpoints)
    types = [error, *(endpoint.answer for endpoint in endpoints)]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    paths: Schema = {}
    for endpoint, answer in zip(endpoints, schemas[1:], strict=True):
        described = _described(endpoint, answer, schemas[0], tables)
        paths.setdefault(endpoint.route.value, {})[endpoint.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Floorline", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _described(
    endpoint: Endpoint, answer: Schema, error: Schema, tables: Mapping[str, Table]
) -> Schema:
    media = "text/plain" if endpoint.answer is str else "application/json"
    content = {media: {"schema": answer}}
    if endpoint.streams:
        content["text/event-stream"] = {"schema": _EVENTS}
    refused = {"description": "refused", "content": {"application/json": {"schema": error}}}
    described: Schema = {
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "the answer", "content": content},
            **{str(status): refused for status in sorted({401, *endpoint.errors})},
        },
    }
    if endpoint.parameters:
        described["parameters"] = list(endpoint.parameters)
    if endpoint.body:
        forms = [object_schema(tables[name]) for name in endpoint.body]
        body = forms[0] if len(forms) == 1 else {"anyOf": forms}
        content = {"application/json": {"schema": body}}
        described["requestBody"] = {"required": True, "content": content}
    return described
