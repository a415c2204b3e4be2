"""The routes beside inference: models, health, version, metrics, and what the last steps did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
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
from telemetry.history import StepView
from telemetry.telemetry import Telemetry

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DEFAULT_STEPS: Final = 200
MAX_STEPS: Final = 10**9 - 1
SCRAPE_SHARE: Final = 0.05  # of the event loop's time that scrapes may take while requests run
LONGEST_KEPT_S: Final = 1.0
HIDDEN: Final = RequestId("hidden")  # in the place of another tenant's request
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
        self._scrape, self._kept_until_s = b"", 0.0

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
        """Write a scrape; while requests are live, keep it as long as its share of time asks."""
        telemetry, now_s = self._service.served().telemetry, time.monotonic()
        if now_s >= self._kept_until_s:
            begin_s = time.thread_time()
            self._scrape = telemetry.render()
            took_s = time.thread_time() - begin_s
            busy = self._service.supervisor.live > 0
            kept_s = min(took_s / SCRAPE_SHARE, LONGEST_KEPT_S) if busy else 0.0
            self._kept_until_s = now_s + kept_s
        return Response(self._scrape, media_type=METRICS_TYPE)

    async def steps(self, request: Request) -> Response:
        text = request.query_params.get("n", str(DEFAULT_STEPS))
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_STEPS))):
            raise InvalidType("n must be a whole number", "n")
        if text == "0":
            raise InvalidValue("n must be at least 1", "n")
        telemetry, tenant = self._service.served().telemetry, request.state.tenant
        steps = telemetry.recent_steps(int(text))
        if not request.state.sees_all:
            steps = [_seen_by(step, lambda id: telemetry.tenant_of(id) == tenant) for step in steps]
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

    async def openapi(self, _: Request) -> Response:
        return self._document


def _shown(id: RequestId, telemetry: Telemetry, tenant: str | None) -> RequestId:
    return id if telemetry.tenant_of(id) == tenant else HIDDEN


def _seen_by(step: StepView, own: Callable[[RequestId], bool]) -> StepView:
    """Hide the ids of others' requests; what they cost stays, and is nobody's."""

    def shown(ids: Iterable[RequestId]) -> list[RequestId]:
        return [id if own(id) else HIDDEN for id in ids]

    return replace(
        step,
        slices=[piece if own(piece.id) else replace(piece, id=HIDDEN) for piece in step.slices],
        admitted=shown(step.admitted),
        preempted=shown(step.preempted),
        ended={id: reason for id, reason in step.ended.items() if own(id)},
    )


def _card(served: Served) -> ModelCard:
    ready = served.ready
    limit, vocab_size = ready.max_model_len, ready.model.vocab_size
    return ModelCard(served.name, "model", served.created, "floorline", limit, vocab_size)
