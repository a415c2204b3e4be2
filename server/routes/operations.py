"""The routes beside inference: models, health, version, metrics, and what the last steps did."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Final, Literal

from fastapi import Request
from fastapi.responses import Response
from msgspec import Struct

from core.errors import InvalidType, InvalidValue
from core.request import RequestId
from server.answers.bodies import Whole
from server.answers.served import Served
from server.http.errors import NOT_FOUND, envelope
from server.http.json import error_response, json_response
from server.schema.kinds import Schema
from server.service import Service
from telemetry.engine.proven import Proof
from telemetry.history import HIDDEN, StepView
from telemetry.telemetry import Telemetry
from telemetry.why.window import SECONDS_KEPT

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DEFAULT_STEPS: Final = 200
DEFAULT_WINDOW_S: Final = 60
MAX_STEPS: Final = 10**9 - 1
SCRAPE_SHARE: Final = 0.05  # of the event loop's time that scrapes may take while requests run
LONGEST_WAIT_S: Final = 1.0
UNKNOWN_REQUEST: Final = (
    "no such request among the recent ones; an answer with several choices has one of each: "
    "its id with -0, -1, … behind"
)


class ModelCard(Struct, forbid_unknown_fields=True):
    id: str
    object: Literal["model"]
    created: Whole
    owned_by: str
    max_model_len: Whole
    vocab_size: Whole


class ModelList(Struct, forbid_unknown_fields=True):
    object: Literal["list"]
    data: list[ModelCard]


class EngineStatus(Struct, forbid_unknown_fields=True):
    status: str


class ServerVersion(Struct, forbid_unknown_fields=True):
    version: str


class ServerLoad(Struct, forbid_unknown_fields=True):
    server_load: Whole


class RecentSteps(Struct, forbid_unknown_fields=True):
    steps: list[StepView]
    peaks_proven: list[Proof]  # the steps that raised a peak


class Operations:
    """All of them over one service; `document` is /openapi.json. None waits for the engine."""

    def __init__(self, service: Service, version: str, document: Schema) -> None:
        self._service, self._version, self._document = service, version, json_response(document)
        self._next_scrape: asyncio.Task[bytes] | None = None
        self._scrape_due_s = 0.0

    async def models(self, _: Request) -> Response:
        return json_response(ModelList("list", [_card(self._service.served())]))

    async def model(self, request: Request) -> Response:
        return json_response(_card(self._service.check_model(request.path_params["id"])))

    async def health(self, _: Request) -> Response:
        """Answer for the engine: 200 if it is there and, with work to do, was heard of lately."""
        supervisor = self._service.supervisor
        if supervisor.healthy:
            return json_response(EngineStatus("ok"))
        return error_response(supervisor.trouble())

    async def ready(self, _: Request) -> Response:
        """Answer whether a new request would be taken."""
        supervisor = self._service.supervisor
        if supervisor.ready:
            return json_response(EngineStatus("ready"))
        return error_response(supervisor.trouble())

    async def version(self, _: Request) -> Response:
        return json_response(ServerVersion(self._version))

    async def load(self, _: Request) -> Response:
        return json_response(ServerLoad(self._service.supervisor.live))

    async def metrics(self, _: Request) -> Response:
        """Write a scrape that holds all that ended before it was asked for.

        While requests are live, it waits as long as the share of the last one asks. Those that
        wait together share one.
        """
        if self._next_scrape is None:
            self._next_scrape = asyncio.create_task(self._scrape())
        return Response(await asyncio.shield(self._next_scrape), media_type=METRICS_TYPE)

    async def _scrape(self) -> bytes:
        await asyncio.sleep(self._scrape_due_s - time.monotonic())
        self._next_scrape, begin_s = None, time.thread_time()
        scrape = self._service.served().telemetry.render()
        wait_s = min((time.thread_time() - begin_s) / SCRAPE_SHARE, LONGEST_WAIT_S)
        busy = self._service.supervisor.live > 0
        self._scrape_due_s = time.monotonic() + wait_s if busy else 0.0
        return scrape

    async def steps(self, request: Request) -> Response:
        text = request.query_params.get("n", str(DEFAULT_STEPS))
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_STEPS))):
            raise InvalidType("n must be a whole number", "n")
        if text == "0":
            raise InvalidValue("n must be at least 1", "n")
        telemetry, tenant = self._service.served().telemetry, request.state.tenant
        steps = telemetry.recent_steps(int(text))
        if not request.state.sees_all:
            steps = [step.seen_by(lambda id: telemetry.tenant_of(id) == tenant) for step in steps]
        return json_response(RecentSteps(steps, telemetry.proofs()))

    async def request(self, request: Request) -> Response:
        """Tell a request's own tenant of it; to others it does not exist."""
        id, tenant = request.path_params["id"], request.state.tenant
        telemetry = self._service.served().telemetry
        tenant = telemetry.tenant_of(id) if tenant is None else tenant
        timeline = None if tenant is None else telemetry.request_timeline(id, tenant)
        if timeline is not None and not request.state.sees_all:
            steps = [
                replace(step, beside=[_shown(other, telemetry, tenant) for other in step.beside])
                for step in timeline.steps
            ]
            timeline = replace(timeline, steps=steps)
        if timeline is None:
            return json_response(envelope(NOT_FOUND, UNKNOWN_REQUEST, "id"), NOT_FOUND.status)
        return json_response(timeline)

    async def why(self, request: Request) -> Response:
        """Say what made requests slow; which one was the slowest, to whom it is shown."""
        text = request.query_params.get("window", f"{DEFAULT_WINDOW_S}s")
        count = text.removesuffix("s")
        if not (count.isascii() and count.isdigit() and text.endswith("s") and len(count) <= 9):
            raise InvalidType("window must be whole seconds, like 60s", "window")
        if not 1 <= int(count) <= SECONDS_KEPT:
            raise InvalidValue(f"window must be between 1s and {SECONDS_KEPT}s", "window")
        telemetry = self._service.served().telemetry
        view = telemetry.why(int(count))
        whose = None if view.worst is None else telemetry.tenant_of(view.worst.id)
        if not request.state.sees_all and whose != request.state.tenant:
            view = replace(view, worst=None)
        return json_response(view)

    async def openapi(self, _: Request) -> Response:
        return self._document


def _shown(id: RequestId, telemetry: Telemetry, tenant: str | None) -> RequestId:
    return id if telemetry.tenant_of(id) == tenant else HIDDEN


def _card(served: Served) -> ModelCard:
    ready = served.ready
    limit, vocab_size = ready.max_model_len, ready.model.vocab_size
    return ModelCard(served.name, "model", served.created, "floorline", limit, vocab_size)
