"""The paths of the HTTP API: the server routes by them, and telemetry counts by them."""

from __future__ import annotations

from enum import StrEnum


class Route(StrEnum):
    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"
    MODELS = "/v1/models"
    MODEL = "/v1/models/{id}"
    HEALTH = "/health"
    READY = "/ready"
    VERSION = "/version"
    LOAD = "/load"
    METRICS = "/metrics"
    STEPS = "/debug/steps"
    REQUEST = "/debug/requests/{id}"
    WHY = "/debug/why"
    TOKENIZE = "/tokenize"
    DETOKENIZE = "/detokenize"
    TOKENIZER_INFO = "/tokenizer_info"
    OPENAPI = "/openapi.json"
