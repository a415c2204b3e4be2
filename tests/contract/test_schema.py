"""What /openapi.json says is true: Schemathesis asks each route and checks each answer by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from core.version import version
from server.cli.options import resolve
from server.contract.validation import Validator
from server.routes.routes import document
from tests.contract.conftest import Server

FLAGS = {"max_n": "3", "max_prompts": "3", "max_request_tokens": "2000"}  # so that answers are soon
DOCUMENT = document(Validator(resolve(FLAGS, {}, {}, "").http), version())
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
    allow_header_conformance,
]

schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def small(model_dir: Path) -> Iterator[Server]:
    server = Server(model_dir, FLAGS)
    yield server
    server.stop()


def test_the_document_that_is_asked_about_is_the_one_served(small: Server) -> None:
    assert small.client.get("/openapi.json").json() == httpx.Response(200, json=DOCUMENT).json()


def known(value: Any, key: str = "") -> Any:
    """Bring what no schema can know, token ids and the model's name, to what the server knows."""
    if isinstance(value, dict):
        return {one: known(item, one) for one, item in value.items() if one != "model"}
    if isinstance(value, list):
        return [known(item, key) for item in value]
    ids = ("prompt", "tokens", "stop_token_ids", "allowed_token_ids")
    return value % 260 if key in ids and type(value) is int and value >= 260 else value


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=80, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_documented(case: schemathesis.Case, small: Server) -> None:
    if isinstance(case.body, dict):
        case.body = known(case.body)
    case.call_and_validate(base_url=small.url, checks=CHECKS)
