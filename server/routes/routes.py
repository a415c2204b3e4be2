"""The one table of routes: what each takes, gives and says of itself, and who handles it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response

from core.routes import Route
from server.answers.bodies import ChatCompletion, Completion
from server.contract.validation import Validator
from server.http.errors import ErrorAnswer
from server.routes.inference import Inference
from server.routes.operations import (
    MAX_STEPS,
    EngineStatus,
    ModelCard,
    ModelList,
    Operations,
    RecentSteps,
    ServerLoad,
    ServerVersion,
)
from server.routes.token_routes import Detokenized, Tokenized, TokenizerInfo, TokenRoutes
from server.schema.openapi import Endpoint, openapi
from telemetry.why.window import WindowView

Handler = Callable[[Request], Awaitable[Response]]

_BODY_ERRORS: Final = (400, 404, 408, 413, 415, 503)
_TEMPLATE_ERRORS: Final = (*_BODY_ERRORS, 429)  # too many templates of callers wait
_INFERENCE_ERRORS: Final = (*_TEMPLATE_ERRORS, 500)
_ID: Final = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_COUNT: Final = {
    "name": "n",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_STEPS},
}
_WINDOW: Final = {
    "name": "window",
    "in": "query",
    "schema": {"type": "string", "pattern": "^[0-9]+s$"},
}


@dataclass(frozen=True, slots=True)
class Handlers:
    """Whose methods handle the routes."""

    inference: Inference
    tokens: TokenRoutes
    operations: Operations


ROUTES: Final[tuple[tuple[Endpoint, Callable[[Handlers], Handler]], ...]] = (
    (
        Endpoint(
            Route.COMPLETIONS,
            "Continue one or more texts",
            Completion,
            _INFERENCE_ERRORS,
            body=("completion",),
            streams=True,
        ),
        lambda to: to.inference.completions,
    ),
    (
        Endpoint(
            Route.CHAT,
            "Answer a conversation",
            ChatCompletion,
            _INFERENCE_ERRORS,
            body=("chat",),
            streams=True,
        ),
        lambda to: to.inference.chat,
    ),
    (
        Endpoint(
            Route.TOKENIZE,
            "Count the tokens of a text or a conversation",
            Tokenized,
            _TEMPLATE_ERRORS,
            body=("tokenize_text", "tokenize_chat"),
        ),
        lambda to: to.tokens.tokenize,
    ),
    (
        Endpoint(
            Route.DETOKENIZE,
            "Write tokens as text",
            Detokenized,
            _BODY_ERRORS,
            body=("detokenize",),
        ),
        lambda to: to.tokens.detokenize,
    ),
    (
        Endpoint(
            Route.TOKENIZER_INFO, "Names of special tokens, and the template", TokenizerInfo, (503,)
        ),
        lambda to: to.tokens.info,
    ),
    (
        Endpoint(Route.MODELS, "The served model, in a list", ModelList, (503,)),
        lambda to: to.operations.models,
    ),
    (
        Endpoint(Route.MODEL, "The served model", ModelCard, (404, 503), parameters=(_ID,)),
        lambda to: to.operations.model,
    ),
    (
        Endpoint(Route.HEALTH, "Whether the engine lives", EngineStatus, (503,)),
        lambda to: to.operations.health,
    ),
    (
        Endpoint(Route.READY, "Whether a request would be taken", EngineStatus, (503,)),
        lambda to: to.operations.ready,
    ),
    (
        Endpoint(Route.VERSION, "This server's version", ServerVersion),
        lambda to: to.operations.version,
    ),
    (
        Endpoint(Route.LOAD, "Requests that run or wait", ServerLoad),
        lambda to: to.operations.load,
    ),
    (
        Endpoint(Route.METRICS, "Prometheus text", str, (503,)),
        lambda to: to.operations.metrics,
    ),
    (
        Endpoint(
            Route.STEPS, "What the last steps did", RecentSteps, (400, 503), parameters=(_COUNT,)
        ),
        lambda to: to.operations.steps,
    ),
    (
        Endpoint(
            Route.REQUEST, "One request's timeline", dict[str, Any], (404, 503), parameters=(_ID,)
        ),
        lambda to: to.operations.request,
    ),
    (
        Endpoint(
            Route.WHY,
            "What made requests slow in the last seconds",
            WindowView,
            (400, 503),
            parameters=(_WINDOW,),
        ),
        lambda to: to.operations.why,
    ),
    (
        Endpoint(Route.OPENAPI, "This document", dict[str, Any]),
        lambda to: to.operations.openapi,
    ),
)


def document(validator: Validator, version: str) -> dict[str, Any]:
    """Write the OpenAPI document for the operator's limits."""
    endpoints = [endpoint for endpoint, _ in ROUTES]
    return openapi(endpoints, ErrorAnswer, validator.tables, version)
