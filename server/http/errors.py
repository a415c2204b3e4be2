"""The one table from our errors to OpenAI's: status, type, code. It raises and catches nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from core import errors


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """How one class of error looks to a client."""

    status: int
    type: str
    code: str | None


def _bad(code: str, status: int = 400) -> ErrorRow:
    return ErrorRow(status, "invalid_request_error", code)


TABLE: Final[Mapping[type[errors.FloorlineError], ErrorRow]] = MappingProxyType(
    {
        errors.FloorlineError: ErrorRow(500, "server_error", None),
        errors.SettingsError: ErrorRow(500, "server_error", None),
        errors.ModelError: ErrorRow(500, "server_error", None),
        errors.RequestError: _bad("invalid_request"),
        errors.InvalidJson: _bad("invalid_json"),
        errors.UnsupportedMediaType: _bad("unsupported_media_type", 415),
        errors.BodyTooLarge: _bad("body_too_large", 413),
        errors.BodyTooSlow: _bad("body_too_slow", 408),
        errors.HeadTooSlow: _bad("head_too_slow", 408),
        errors.MissingParameter: _bad("missing_required_parameter"),
        errors.InvalidType: _bad("invalid_type"),
        errors.InvalidValue: _bad("invalid_value"),
        errors.UnsupportedParameter: _bad("unsupported_parameter"),
        errors.EmptyPrompt: _bad("empty_prompt"),
        errors.InvalidTokenId: _bad("invalid_token_id"),
        errors.ContextLengthExceeded: _bad("context_length_exceeded"),
        errors.TemplateFailed: _bad("template_error"),
        errors.ModelNotFound: _bad("model_not_found", 404),
        errors.InvalidApiKey: _bad("invalid_api_key", 401),
        errors.ServiceError: ErrorRow(500, "server_error", None),
        errors.Overloaded: ErrorRow(429, "rate_limit_error", "overloaded"),
        errors.ShuttingDown: ErrorRow(503, "server_error", "shutting_down"),
        errors.EngineDead: ErrorRow(503, "server_error", "engine_dead"),
        errors.EngineStarting: ErrorRow(503, "server_error", "engine_starting"),
        errors.GenerationFailed: ErrorRow(500, "server_error", None),
    }
)

INTERNAL: Final = ErrorRow(500, "server_error", "internal_error")
NOT_FOUND: Final = _bad("not_found", 404)
METHOD_NOT_ALLOWED: Final = _bad("method_not_allowed", 405)


class ErrorBody(msgspec.Struct, forbid_unknown_fields=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's `ErrorResponse`."""

    error: ErrorBody


def envelope(row: ErrorRow, message: str, param: str | None = None) -> ErrorAnswer:
    return ErrorAnswer(ErrorBody(message, row.type, param, row.code))


def body_of(error: errors.FloorlineError) -> ErrorAnswer:
    return envelope(TABLE[type(error)], str(error), getattr(error, "param", None))


def headers_of(error: errors.FloorlineError) -> dict[str, str]:
    """Tell a client when to come back, or, after a failure that would repeat, not to."""
    if isinstance(error, errors.ServiceError) and error.retry_after_s is not None:
        return {"retry-after": str(math.ceil(error.retry_after_s))}
    if TABLE[type(error)].status >= 500:
        return {"x-should-retry": "false"}
    if isinstance(error, errors.InvalidApiKey):
        return {"www-authenticate": "Bearer"}
    return {}
