"""The error table is complete, and its bodies have OpenAI's shape."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from core import errors
from server.http.errors import TABLE, body_of, headers_of
from server.http.json import encode


def descendants(root: type[errors.FloorlineError]) -> Iterator[type[errors.FloorlineError]]:
    yield root
    for child in root.__subclasses__():
        yield from descendants(child)


@pytest.mark.parametrize("kind", list(descendants(errors.FloorlineError)))
def test_every_error_has_a_row(kind: type[errors.FloorlineError]) -> None:
    assert kind in TABLE


@pytest.mark.parametrize("kind", list(descendants(errors.RequestError)))
def test_the_callers_mistakes_are_never_5xx(kind: type[errors.FloorlineError]) -> None:
    assert 400 <= TABLE[kind].status < 500


def test_a_body_has_all_four_keys() -> None:
    body = encode(body_of(errors.InvalidValue("n must be at least 1", "n")))
    assert msgspec.json.decode(body) == {
        "error": {
            "message": "n must be at least 1",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_value",
        }
    }


def test_waiting_is_told_in_whole_seconds_and_a_repeat_is_advised_against() -> None:
    assert headers_of(errors.Overloaded("full", 1.2)) == {"retry-after": "2"}
    assert headers_of(errors.GenerationFailed("NaN")) == {"x-should-retry": "false"}
    assert headers_of(errors.InvalidValue("no")) == {}


def test_a_number_that_json_cannot_hold_becomes_null() -> None:
    assert msgspec.json.decode(encode({"x": float("nan")})) == {"x": None}
