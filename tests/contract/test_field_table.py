"""Each field of each table with each kind of bad value: refused by name, and the server lives on.

The cases are made from the tables that the server reads by; what each must answer is worked out
here from the field's kind, not by asking the server's code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from core.settings import HttpSettings
from server.contract.validation import Validator
from server.schema.fields import Field, Structure, Support
from server.schema.kinds import (
    Anything,
    Biases,
    Boolean,
    Integer,
    ListOf,
    Number,
    OneOf,
    Text,
    TokenId,
)
from tests.contract.test_bad_input import CHAT, COMPLETIONS, JSON, USER

TABLES = Validator(HttpSettings()).tables
ROUTES = {
    "completion": (COMPLETIONS, {"prompt": "a", "max_tokens": 1}),
    "chat": (CHAT, {"messages": USER, "max_tokens": 1}),
    "tokenize_text": ("/tokenize", {"prompt": "a"}),
    "tokenize_chat": ("/tokenize", {"messages": USER}),
    "detokenize": ("/detokenize", {"tokens": [97]}),
}
RAW = {  # JSON texts of other types than a field's own
    "text": '"Ünï \\ud83e\\udd8a"', "empty text": '""', "true": "true", "integer": "7",
    "fraction": "1.5", "list": '["x"]', "object": '{"x": 1}', "nested": "[[[]]]",
}  # fmt: skip
NO_JSON = {
    "NaN": b"NaN", "Infinity": b"Infinity", "overflow": b"1e999", "surrogate": b'"\\ud83d"',
    "bad UTF-8": b'"\xff"', "control": b'"\x01"',
}  # fmt: skip
HUGE = {"huge": 10**30, "huge negative": -(10**30), "int64": 2**63, "below int64": -(2**63) - 1}

Case = tuple[str, str, bytes, str, str]  # table, field, the value's JSON, code, param


def fits(kind: Any, value: str) -> bool:
    """Say whether a JSON text of `RAW` is of the kind's type, in range or not."""
    accepts: dict[type, tuple[str, ...]] = {
        Boolean: ("true",),
        Integer: ("integer",),
        Number: ("integer", "fraction"),
        Text: ("text", "empty text"),
        OneOf: ("text", "empty text"),
        TokenId: ("integer", "fraction"),
        ListOf: ("list", "nested"),
        Structure: ("object",),
        Biases: ("object",),
    }
    return value in accepts[type(kind)]


def wrong_types(field: Field) -> Iterator[tuple[str, str]]:
    for name, text in RAW.items():
        if type(field.kind) in (Anything,) and field.kind.python_type is object:
            continue
        if isinstance(field.kind, Anything):
            if name not in {dict: ("object",), list: ("list", "nested")}[field.kind.python_type]:
                yield text, "invalid_type"
        elif isinstance(field.kind, ListOf) and field.kind.lone:
            if name not in ("text", "empty text", "list"):
                yield text, "invalid_type"
        elif not fits(field.kind, name):
            yield text, "invalid_type"


def out_of_range(kind: Any) -> Iterator[tuple[str, str]]:
    """Give values beside the limits that the kind states."""
    match kind:
        case Integer(low, high):
            least, most = -(10**40) if low is None else low, 10**40 if high is None else high
            values = [value for value in (least - 1, most + 1) if abs(value) < 10**39]
            values += [value for value in HUGE.values() if not least <= value <= most]
            yield from ((str(value), "invalid_value") for value in values)
        case Number(low, high, above_low):
            beside = [low - 0.001, high + 0.001, -1e30, 1e30] + [low] * above_low
            yield from ((json.dumps(value), "invalid_value") for value in beside)
        case Text(least, most, _):
            texts = ["x" * (least - 1)] if least else []
            texts += ["x" * (most + 1)] if most else []
            yield from ((json.dumps(text), "invalid_value") for text in texts)
        case OneOf():
            yield from ((json.dumps(text), "invalid_value") for text in ("", "Ü", "x" * 5000))
        case ListOf(item, most, least, _):
            good = json.loads({TokenId: "1"}.get(type(item), '"x"'))
            sizes = [least - 1] if least else []
            sizes += [most + 1] if most is not None else []
            yield from ((json.dumps([good] * size), "invalid_value") for size in sizes)
            if isinstance(item, TokenId):
                for token in (-1, 1.5, 2**63, 260, 10**30):
                    yield json.dumps([token]), "invalid_token_id"
        case Biases(most, limit):
            many = {str(at): 1.0 for at in range(most + 1)}
            keys = ("a", "-1", "260", "9" * 30, "Ü", "", "1.0", "0x1")
            biases = [{"1": limit + 1}, {"1": -limit - 1}, many, *({key: 1.0} for key in keys)]
            for bias in biases:
                yield json.dumps(bias), "invalid_value"
            yield '{"1": "x"}', "invalid_type"


PLAIN = (Boolean, Integer, Number, Text, OneOf, ListOf, Structure, Biases, Anything)


def cases() -> Iterator[Case]:
    for table, fields in TABLES.items():
        for field in fields.values():
            if field.support is Support.IGNORED:
                continue
            for text in NO_JSON.values():
                yield table, field.name, text, "invalid_json", ""
            if not isinstance(field.kind, PLAIN):
                continue  # prompts, messages and grammars have tests of their own
            for value, code in wrong_types(field):
                yield table, field.name, value.encode(), code, field.name
            if field.name not in ("max_tokens", "max_completion_tokens", "min_tokens"):
                for value, code in out_of_range(field.kind):
                    yield table, field.name, value.encode(), code, field.name


CASES = list(cases())


def within_range(kind: Any) -> Iterator[Any]:
    """Give the values at the limits that the kind states, and whole numbers as fractions."""
    match kind:
        case Integer(low, high):
            yield from (value for value in (low, high) if value is not None)
            yield float(low or 1)
        case Number(low, high, above_low):
            yield from (low + 1e-9 if above_low else low, high)
        case Text(least, most, None):
            yield from ("ü" * least, "x" * (most or 1000))
        case OneOf(values):
            yield from values
        case Biases(most, limit):
            yield from ({"0": limit}, {str(at): -limit for at in range(most)}, {})


NEEDS = {"top_logprobs": {"logprobs": True}, "prompt_logprobs": {"stream": False}}
GOOD = [
    (table, field.name, value)
    for table, fields in TABLES.items()
    for field in fields.values()
    if field.support is Support.BUILT and field.name != "best_of"
    for value in (*within_range(field.kind), *([] if field.required else [None]))
]


@pytest.mark.parametrize(("table", "name", "value"), GOOD, ids=lambda v: f"{v!r:.24}")
def test_null_and_the_limits_themselves_are_taken(table: str, name: str, value: Any) -> None:
    path, good = ROUTES[table]
    if name == "min_tokens":
        good = {**good, "max_tokens": 2**40}
    body = json.dumps({**good, **NEEDS.get(name, {}), name: value}).encode()
    validator = Validator(HttpSettings())
    readers = {COMPLETIONS: validator.completion, CHAT: validator.chat}
    reader: Any = readers.get(path, validator.detokenize)
    (validator.tokenize if path == "/tokenize" else reader)(body)


def body_of(table: str, name: str, value: bytes) -> bytes:
    """Put a field into a good request; the bytes of its value may be no JSON."""
    good = {key: item for key, item in ROUTES[table][1].items() if key != name}
    rest = b"".join(b", " + json.dumps({key: item}).encode()[1:-1] for key, item in good.items())
    return b"{" + json.dumps(name).encode() + b": " + value + rest + b"}"


def shown(case: Case) -> str:
    return f"{case[0]}-{case[1]}-{case[2][:24]!r}"


def test_there_are_as_many_cases_as_promised() -> None:
    assert len(CASES) >= 600


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_a_bad_value_is_refused_by_name(http: httpx.Client, case: Case) -> None:
    table, name, value, code, param = case
    response = http.post(ROUTES[table][0], content=body_of(table, name, value), headers=JSON)
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    blamed = error["param"] and error["param"].partition(".")[0]
    expected = (400, code, param or None)
    assert (response.status_code, error["code"], blamed) == expected, response.text
    assert len(response.content) < 1000
    assert http.get("/ready").status_code == 200
