"""Keys and values of a body are counted where they are, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.errors import InvalidValue
from server.limits.body_weight import MAX_CONTAINERS, MAX_KEYS, MAX_VALUES, check_weight


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "body",
    [
        compact({f"k{at}": 1 for at in range(MAX_KEYS + 1)}),
        compact([{"a": 1}] * (MAX_KEYS + 1)),
        b"[" + b"[]," * MAX_CONTAINERS + b"1]",
        compact([1] * (MAX_VALUES + 2)),
    ],
)
def test_what_is_too_many_is_refused_with_the_limit(body: bytes) -> None:
    with pytest.raises(InvalidValue, match=f"{MAX_KEYS}, {MAX_CONTAINERS} and {MAX_VALUES}"):
        check_weight(body)


@pytest.mark.parametrize(
    "body",
    [
        compact({f"k{at}": 1 for at in range(MAX_KEYS)}),
        compact([1] * MAX_VALUES),
        compact({"prompt": '":,[{\\' * 2 * MAX_VALUES}),
        b'"' + b'\\"' * MAX_VALUES + b":" * MAX_VALUES,  # a string that never ends
        b'"\\' + b":" * MAX_VALUES,
    ],
)
def test_what_is_in_a_string_does_not_count(body: bytes) -> None:
    check_weight(body)
