"""JSON for the wire, and the responses that carry it."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi.responses import Response

from core.errors import FloorlineError
from server.http.errors import TABLE, body_of, headers_of


def encode(body: Any) -> bytes:
    """Write UTF-8 on one line; a number that is not finite becomes null."""
    return msgspec.json.encode(body)


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(body), status, headers, media_type="application/json")


def error_response(error: FloorlineError) -> Response:
    return json_response(body_of(error), TABLE[type(error)].status, headers_of(error))
