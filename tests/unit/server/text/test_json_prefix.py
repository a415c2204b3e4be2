"""The start of a JSON value is told from what no JSON begins with."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.text.json_prefix import JsonPrefix

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)  # fmt: skip


def taken(text: str) -> int:
    """Count the characters that are taken."""
    prefix = JsonPrefix()
    return next((at for at, one in enumerate(text) if not prefix.push(one)), len(text))


@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_every_value_is_taken_whole(value: object, ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    assert taken(text) == len(text)
    prefix = JsonPrefix()
    for character in f" {text} ":
        assert prefix.push(character)
    assert prefix.ended
    assert not prefix.push("x")


# each has one character, behind the bar, that cannot follow
@pytest.mark.parametrize(
    "text",
    ["|x", "{|1", '{"a"|,', '{"a":|}', '{"a":1|]', '{"a":1,|}', "[|,", "[1|}", "[1,|]", "0|1",
     "-|x", "-0|0", "1.|e", "1e|.", "1e+|x", "tr|y", "nul|x", '"\\|x', '"\\u12|g', '"a|\n',
     '["a"|:', "[1.|]", "[tru|]", '{"a"|}', "{}|{", "[1 |2", "[-|]", "[1e|,"],
)  # fmt: skip
def test_the_first_character_that_cannot_follow_is_refused(text: str) -> None:
    at = text.index("|")
    assert taken(text.replace("|", "", 1)) == at


_VALUE = re.compile(r"\s*(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)\s*", re.A)


@given(st.text("0123456789.eE+-trufalsn ", max_size=8))
def test_what_is_taken_of_a_scalar_could_become_one(text: str) -> None:
    """The twin: some ending makes what was taken a value by the grammar's words."""
    start = text[: taken(text)]
    endings = ["", "0", "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l"]
    assert any(_VALUE.fullmatch(start + ending) for ending in endings)
