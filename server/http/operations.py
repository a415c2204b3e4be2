"""The routes beside inference: models, health, version, metrics, and what the last steps did."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response

from core.errors import InvalidType, InvalidValue
from server.answers.served import Served
from server.http.errors import NOT_FOUND, envelope
from server.http.middleware import error_response, json_response
from server.service import Service

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DEFAULT_STEPS: Final = 200
UNKNOWN_REQUEST: Final = (
    "no such request among the recent ones; an answer with several choices has one of each: "
    "its id with -0, -1, … behind"
)


class Operations:
    """All of them over one service. None waits for the engine."""

    def __init__(self, service: Service, version: str) -> None:
        self._service, self._version = service, version

    async def models(self, _: Request) -> Response:
        return json_response({"object": "list", "data": [_model(self._service.served())]})

    async def model(self, request: Request) -> Response:
        return json_response(_model(self._service.check_model(request.path_params["id"])))

    async def health(self, _: Request) -> Response:
        """Answer for the engine: 200 if it is there and, with work to do, was heard of lately."""
        supervisor = self._service.supervisor
        if supervisor.healthy:
            return json_response({"status": "ok"})
        return error_response(supervisor.trouble())

    async def ready(self, _: Request) -> Response:
        """Answer whether a new request would be taken."""
        supervisor = self._service.supervisor
        if supervisor.ready:
            return json_response({"status": "ready"})
        return error_response(supervisor.trouble())

    async def version(self, _: Request) -> Response:
        return json_response({"version": self._version})

    async def load(self, _: Request) -> Response:
        return json_response({"server_load": self._service.supervisor.live})

    async def metrics(self, _: Request) -> Response:
        return Response(self._service.served().telemetry.render(), media_type=METRICS_TYPE)

    async def steps(self, request: Request) -> Response:
        text = request.query_params.get("n", str(DEFAULT_STEPS))
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidType("n must be a whole number", "n")
        if text == "0":
            raise InvalidValue("n must be at least 1", "n")
        return json_response({"steps": self._service.served().telemetry.recent_steps(int(text))})

    async def request(self, request: Request) -> Response:
        """Tell a request's own tenant of it; to others it does not exist."""
        id, tenant = request.path_params["id"], request.state.tenant
        timeline = self._service.served().telemetry.request_timeline(id, tenant)
        if timeline is None:
            row = envelope(NOT_FOUND, UNKNOWN_REQUEST, "id")
            return json_response(row, NOT_FOUND.status)
        return json_response(timeline)


def _model(served: Served) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "floorline",
        "max_model_len": served.ready.max_model_len,
        "vocab_size": served.ready.model.vocab_size,
    }
