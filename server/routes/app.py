"""The HTTP application: its routes, and how errors become answers. It starts nothing."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from core.errors import FloorlineError
from server.contract.validation import Validator
from server.http.body_reader import BodyReader
from server.http.errors import METHOD_NOT_ALLOWED, NOT_FOUND, ErrorRow, envelope
from server.http.json import error_response, json_response
from server.http.keys import Keyring
from server.http.middleware import Edge
from server.routes.inference import Inference
from server.routes.operations import Operations
from server.routes.routes import ROUTES, Handlers, document
from server.routes.token_routes import TokenRoutes
from server.service import Service
from server.text.prompts import PromptEncoder


def create_app(service: Service, version: str) -> FastAPI:
    """Build the app over a service, whose supervisor somebody else runs."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    http = service.settings.http
    _add_routes(app, service, version)
    app.add_exception_handler(FloorlineError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_exception)

    def on_response(route: str, status: int) -> None:
        if service.telemetry is not None:
            service.telemetry.on_http_response(route, status)

    app.add_middleware(
        Edge,
        keys=Keyring(http.api_key, http.scrape_key),
        on_response=on_response,
        access_log=http.access_log,
    )
    if http.cors_origins is not None:
        origins = [origin.strip() for origin in http.cors_origins.split(",")]
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["x-request-id"],
        )
    return app


def _add_routes(app: FastAPI, service: Service, version: str) -> None:
    http = service.settings.http
    validator = Validator(http)
    encoder = PromptEncoder(service.templates, service.off_loop, http)
    parts = (service, BodyReader(http, service.off_loop), validator, encoder)
    operations = Operations(service, version, document(validator, version))
    handlers = Handlers(Inference(*parts), TokenRoutes(*parts), operations)
    for endpoint, handler in ROUTES:
        path = endpoint.route.replace("}", ":path}")  # an id may hold slashes
        methods = ["GET", "HEAD"] if endpoint.method == "GET" else [endpoint.method]
        app.add_api_route(path, handler(handlers), methods=methods, response_model=None)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, FloorlineError)
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Put the framework's own refusals (404, 405) into OpenAI's envelope."""
    assert isinstance(error, HTTPException)
    rows = {404: NOT_FOUND, 405: METHOD_NOT_ALLOWED}
    row = rows.get(error.status_code, ErrorRow(error.status_code, "invalid_request_error", None))
    words = {404: "does not exist", 405: f"does not take {request.method}"}
    message = f"{request.url.path[:200]} {words.get(row.status, error.detail)}"
    return json_response(envelope(row, message), row.status, dict(error.headers or {}))
