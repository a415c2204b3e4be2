"""The OpenAPI document: bodies from the fields' tables, answers as the routes write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from server.contract.fields import object_schema
from server.contract.kinds import Schema
from server.contract.validation import Validator

TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}
ANY_OBJECT: Final[Schema] = {"type": "object"}
IDS: Final[Schema] = {"type": "array", "items": WHOLE}

_EVENTS: Final[Schema] = {"description": "`data:` lines of JSON chunks, then `data: [DONE]`"}
_BODY_ERRORS: Final = (400, 404, 408, 413, 415, 503)
_TEMPLATE_ERRORS: Final = (*_BODY_ERRORS, 429)  # too many templates of callers wait
_INFERENCE_ERRORS: Final = (*_TEMPLATE_ERRORS, 500)


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Describe an object that holds these fields and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _choice(reasons: Iterable[str], own: dict[str, Schema]) -> Schema:
    return _object(
        {
            "index": WHOLE,
            **own,
            "finish_reason": {"type": "string", "enum": list(reasons)},
            "stop_reason": {"anyOf": [TEXT, WHOLE, {"type": "null"}]},
        },
        {
            "token_ids": IDS,
            "prompt_token_ids": IDS,
            "prompt_logprobs": {"type": "array", "items": _nullable(ANY_OBJECT)},
        },
    )


def _answer(object: str, choice: str) -> Schema:
    return _object(
        {
            "id": TEXT,
            "object": {"const": object},
            "created": WHOLE,
            "model": TEXT,
            "system_fingerprint": TEXT,
            "choices": {"type": "array", "items": _ref(choice), "minItems": 1},
            "usage": _ref("Usage"),
        },
        {"cost": ANY_OBJECT},
    )


_CALL: Final = _object(
    {
        "id": TEXT,
        "type": {"const": "function"},
        "function": _object({"name": TEXT, "arguments": TEXT}),
    }
)
_MESSAGE: Final = _object(
    {"role": {"const": "assistant"}, "content": _nullable(TEXT), "refusal": {"type": "null"}},
    {"tool_calls": {"type": "array", "items": _CALL, "minItems": 1}},
)
_TOKEN_VALUE: Final[dict[str, Schema]] = {"token": TEXT, "logprob": NUMBER, "bytes": IDS}
_TOP: Final[Schema] = {"type": "array", "items": _object(_TOKEN_VALUE)}
_CHAT_LOGPROBS: Final = _object(
    {
        "content": {"type": "array", "items": _object({**_TOKEN_VALUE, "top_logprobs": _TOP})},
        "refusal": {"type": "null"},
    }
)
_LOGPROBS: Final = _object(
    {
        "tokens": {"type": "array", "items": TEXT},
        "token_logprobs": {"type": "array", "items": _nullable(NUMBER)},
        "top_logprobs": {"type": "array", "items": _nullable(ANY_OBJECT)},
        "text_offset": IDS,
    }
)
_SCHEMAS: Final[dict[str, Schema]] = {
    "Error": _object(
        {
            "error": _object(
                {"message": TEXT, "type": TEXT, "param": _nullable(TEXT), "code": _nullable(TEXT)}
            )
        }
    ),
    "Usage": _object(
        {
            "prompt_tokens": WHOLE,
            "completion_tokens": WHOLE,
            "total_tokens": WHOLE,
            "prompt_tokens_details": _object({"cached_tokens": WHOLE}),
        }
    ),
    "CompletionChoice": _choice(
        ("stop", "length"), {"text": TEXT, "logprobs": _nullable(_LOGPROBS)}
    ),
    "ChatChoice": _choice(
        ("stop", "length", "tool_calls"),
        {"message": _MESSAGE, "logprobs": _nullable(_CHAT_LOGPROBS)},
    ),
    "Completion": _answer("text_completion", "CompletionChoice"),
    "Chat": _answer("chat.completion", "ChatChoice"),
    "Model": _object(
        {
            "id": TEXT,
            "object": {"const": "model"},
            "created": WHOLE,
            "owned_by": TEXT,
            "max_model_len": WHOLE,
            "vocab_size": WHOLE,
        }
    ),
    "Models": _object(
        {"object": {"const": "list"}, "data": {"type": "array", "items": _ref("Model")}}
    ),
    "Tokens": _object(
        {
            "count": WHOLE,
            "max_model_len": WHOLE,
            "tokens": IDS,
            "token_strs": _nullable({"type": "array", "items": TEXT}),
        }
    ),
    "Prompt": _object({"prompt": TEXT}),
    "Status": _object({"status": TEXT}),
    "Version": _object({"version": TEXT}),
    "Load": _object({"server_load": WHOLE}),
    "Steps": _object({"steps": {"type": "array", "items": ANY_OBJECT}}),
    "Any": ANY_OBJECT,
}


def _responses(answer: Schema, errors: Iterable[int], media: dict[str, Schema]) -> Schema:
    error = {"description": "refused", "content": {"application/json": {"schema": _ref("Error")}}}
    content = {"application/json": {"schema": answer}} if answer else {}
    content |= {kind: {"schema": schema} for kind, schema in media.items()}
    statuses = sorted({401, *errors})
    return {
        "200": {"description": "the answer", "content": content},
        **{str(status): error for status in statuses},
    }


def _post(
    summary: str,
    body: Schema,
    answer: str,
    errors: Iterable[int],
    media: dict[str, Schema] | None = None,
) -> Schema:
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": _responses(_ref(answer), errors, media or {}),
        }
    }


def _inference(summary: str, body: Schema, answer: str) -> Schema:
    return _post(summary, body, answer, _INFERENCE_ERRORS, {"text/event-stream": _EVENTS})


def _get(
    summary: str, answer: str, errors: Iterable[int] = (503,), parameters: Iterable[Schema] = ()
) -> Schema:
    route: Schema = {"summary": summary, "responses": _responses(_ref(answer), errors, {})}
    if parameters:
        route["parameters"] = list(parameters)
    return {"get": route}


_ID: Final[Schema] = {"name": "id", "in": "path", "required": True, "schema": TEXT}
_COUNT: Final[Schema] = {
    "name": "n",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": 10**9 - 1},
}


def openapi(validator: Validator, version: str) -> dict[str, Any]:
    """Write the document for the operator's limits."""
    tables = {name: object_schema(table) for name, table in validator.tables.items()}
    tokenize: Schema = {"anyOf": [tables["tokenize_text"], tables["tokenize_chat"]]}
    metrics = _responses({}, (503,), {"text/plain": TEXT})
    paths = {
        "/v1/completions": _inference("Continue a text", tables["completion"], "Completion"),
        "/v1/chat/completions": _inference("Answer a conversation", tables["chat"], "Chat"),
        "/tokenize": _post("Count a prompt's tokens", tokenize, "Tokens", _TEMPLATE_ERRORS),
        "/detokenize": _post("Write tokens as text", tables["detokenize"], "Prompt", _BODY_ERRORS),
        "/v1/models": _get("The served model, in a list", "Models"),
        "/v1/models/{id}": _get("The served model", "Model", (404, 503), [_ID]),
        "/health": _get("Whether the engine lives", "Status"),
        "/ready": _get("Whether a request would be taken", "Status"),
        "/version": _get("This server's version", "Version", ()),
        "/load": _get("Requests that run or wait", "Load", ()),
        "/metrics": {"get": {"summary": "Prometheus text", "responses": metrics}},
        "/debug/steps": _get("What the last steps did", "Steps", (400, 503), [_COUNT]),
        "/debug/requests/{id}": _get("One request's timeline", "Any", (404, 503), [_ID]),
        "/openapi.json": _get("This document", "Any", ()),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Floorline", "version": version},
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }
