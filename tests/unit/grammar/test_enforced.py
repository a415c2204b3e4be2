"""What a model may still say under the schemas that a server enforces: it comes to an end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.request import Grammar, GrammarKind
from core.settings import HttpSettings
from grammar.compile import GrammarCompiler
from server.contract.schemas import MAX_TEXT, SchemaRules
from server.contract.tools import ToolUse
from tests.unit.grammar.test_compile import ENDS, allowed

RULES = SchemaRules.of(HttpSettings())


def taken(compiler: GrammarCompiler, grammar: Grammar, output: str) -> tuple[int, bool]:
    """Count the bytes that may come, and say whether the output may end behind them."""
    matcher, data = compiler.compile(grammar), output.encode()
    for at, byte in enumerate(data):
        if byte not in allowed(matcher, data[:at]):
            return at, bool(ENDS & allowed(matcher, data[:at]))
    return len(data), bool(ENDS & allowed(matcher, data))


def schema(value: Any) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(RULES.answer(value)))


@pytest.mark.parametrize(
    ("output", "digits"), [("9" * 40, 18), ("-" + "9" * 40, 19), ("8" * 40, 19)]
)
def test_an_integer_ends(compiler: GrammarCompiler, output: str, digits: int) -> None:
    assert taken(compiler, schema({"type": "integer"}), output) == (digits, True)


def test_texts_end_where_the_default_says_however_many_there_are(
    compiler: GrammarCompiler,
) -> None:
    longest = "aé" * (RULES.string_characters // 2)
    names = ["a", "b", "c"]
    grammar = schema({"type": "object", "properties": {name: {"type": "string"} for name in names},
                      "required": names, "additionalProperties": False})  # fmt: skip
    whole = json.dumps(dict.fromkeys(names, longest), ensure_ascii=False)
    assert taken(compiler, grammar, whole) == (len(whole.encode()), True)
    others = {"a": {"type": "string", "maxLength": 1200}, "b": {"type": "string"}}
    mixed = schema({"type": "object", "properties": others, "required": ["a", "b"]})
    both = json.dumps({"a": "é" * 1200, "b": longest}, ensure_ascii=False)
    assert taken(compiler, mixed, both)[0] == len(both.encode())
    longer = json.dumps({"a": longest + "a"}, ensure_ascii=False)
    assert taken(compiler, grammar, longer)[0] == len(f'{{"a": "{longest}'.encode())


def test_a_text_with_a_very_large_bound_ends_within_what_the_library_can_follow(
    compiler: GrammarCompiler,
) -> None:
    grammar = schema({"type": "string", "maxLength": 10**6})
    assert taken(compiler, grammar, '"' + "é" * MAX_TEXT + '"') == (2 * MAX_TEXT + 2, True)


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = ({"type": "function", "function": {"name": "f", "parameters": CITY}},)
CALL = '<tool_call>\n{"name": "f", "arguments": {"city": "x"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("answer", "other"),
    [(Grammar(GrammarKind.JSON_OBJECT), '{"any": [1]}'), (schema(CITY), '{"city": "x"}')],
)
@pytest.mark.parametrize("parallel", [False, True])
def test_with_tools_an_answer_by_a_schema_is_calls_or_the_schema(
    compiler: GrammarCompiler, answer: Grammar, other: str, parallel: bool
) -> None:
    use = ToolUse(TOOLS, False, frozenset({"f"}), parallel)
    grammar = use.grammar(RULES, answer)
    assert grammar is not None
    assert taken(compiler, grammar, CALL) == (len(CALL), True)
    assert taken(compiler, grammar, f"{CALL}\n{CALL}")[0] == (
        2 * len(CALL) + 1 if parallel else len(CALL)
    )
    assert taken(compiler, grammar, other) == (len(other), True)
    assert taken(compiler, grammar, f"{other}\n{CALL}") == (len(other), True)
    assert taken(compiler, grammar, "Sure.")[0] == 0


@pytest.mark.parametrize("strict", [None, False, True])
@pytest.mark.parametrize("opened", [False, True])
def test_a_call_has_no_argument_that_its_schema_does_not_name(
    compiler: GrammarCompiler, strict: bool | None, opened: bool
) -> None:
    function = {"name": "f", "parameters": CITY, "strict": strict}
    use = ToolUse(({"type": "function", "function": function},), True, frozenset({"f"}))
    grammar = use.grammar(SchemaRules(2048, opened), None)
    assert grammar is not None
    more = CALL.replace('"x"', '"x", "more": 1')
    assert (taken(compiler, grammar, more)[0] == len(more)) == (opened and not strict)
