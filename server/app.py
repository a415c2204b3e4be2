"""The HTTP application: its routes, and how errors become answers. It starts nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from core.errors import FloorlineError
from server.body_reader import BodyReader
from server.edge import Edge, error_response, json_response
from server.errors import METHOD_NOT_ALLOWED, NOT_FOUND, Row, envelope
from server.inference import Inference
from server.operations import Operations
from server.service import Service
from server.validation import Validator

Handler = Callable[[Request], Awaitable[Response]]


def create_app(service: Service, version: str) -> FastAPI:
    """Build the app over a service, whose supervisor somebody else runs."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    http = service.settings.http
    inference = Inference(service, BodyReader(http), Validator(http))
    _add_routes(app, inference, Operations(service, version))
    app.add_exception_handler(FloorlineError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_exception)

    def on_response(route: str, status: int) -> None:
        if service.telemetry is not None:
            service.telemetry.on_http_response(route, status)

    app.add_middleware(Edge, api_key=http.api_key, on_response=on_response)
    return app


def _add_routes(app: FastAPI, inference: Inference, operations: Operations) -> None:
    posts: dict[str, Handler] = {
        "/v1/completions": inference.completions,
        "/v1/chat/completions": inference.chat,
    }
    gets: dict[str, Handler] = {
        "/v1/models": operations.models,
        "/v1/models/{id:path}": operations.model,
        "/health": operations.health,
        "/ready": operations.ready,
        "/version": operations.version,
        "/metrics": operations.metrics,
        "/debug/steps": operations.steps,
        "/debug/requests/{id:path}": operations.request,
    }
    for path, handler in posts.items():
        app.add_api_route(path, handler, methods=["POST"], response_model=None)
    for path, handler in gets.items():
        app.add_api_route(path, handler, methods=["GET"], response_model=None)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, FloorlineError)
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Put the framework's own refusals (404, 405) into OpenAI's envelope."""
    assert isinstance(error, HTTPException)
    rows = {404: NOT_FOUND, 405: METHOD_NOT_ALLOWED}
    row = rows.get(error.status_code, Row(error.status_code, "invalid_request_error", None))
    words = {404: "does not exist", 405: f"does not take {request.method}"}
    message = f"{request.url.path[:200]} {words.get(row.status, error.detail)}"
    return json_response(envelope(row, message), row.status, dict(error.headers or {}))
