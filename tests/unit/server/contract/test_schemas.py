"""A schema as it is enforced: texts and integers end, arguments are those that it names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.request import Grammar, GrammarKind
from core.settings import HttpSettings
from grammar.check import check_grammar
from server.contract.schemas import MAX_INTEGER, MAX_TEXT, SchemaRules
from server.contract.tools import ToolUse

RULES = SchemaRules(string_characters=50, open_arguments=False)
OPEN = SchemaRules(string_characters=50, open_arguments=True)
RANGE = {"minimum": -MAX_INTEGER, "maximum": MAX_INTEGER}
SHUT = {"additionalProperties": False}
STRING = {"type": "string", "maxLength": 50}


@pytest.mark.parametrize(
    ("schema", "enforced"),
    [
        ({"type": "string"}, STRING),
        ({"type": ["string", "null"]}, {"type": ["string", "null"], "maxLength": 50}),
        ({"type": "string", "minLength": 60}, {"type": "string", "minLength": 60}),
        ({"type": "string", "minLength": 50}, {"type": "string", "minLength": 50, "maxLength": 50}),
        ({"type": "string", "maxLength": 10**6}, {"type": "string", "maxLength": MAX_TEXT}),
        ({"type": "integer"}, {"type": "integer", **RANGE}),
        ({"type": "integer", "minimum": 5},
         {"type": "integer", "minimum": 5, "maximum": MAX_INTEGER}),
        ({"type": "integer", "exclusiveMaximum": 5},
         {"type": "integer", "exclusiveMaximum": 5, "minimum": -MAX_INTEGER}),
        ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": STRING}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]},
         {"anyOf": [STRING, {"type": "null"}]}),
        ({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"},
         {"$defs": {"a": STRING}, "$ref": "#/$defs/a"}),
        ({"properties": {"type": {"type": "string"}, "items": {"type": "string"}}},
         {"properties": {"type": STRING, "items": STRING}}),
        ({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties":
          {"type": "string"}}, {"type": "object", "additionalProperties": STRING}),
        ({"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]},
          "additionalProperties": {"type": "string"}},
         {"type": "object", "properties": {"a": STRING, "b": STRING}, **SHUT}),
        ({"type": "object", "propertyNames": {"pattern": "^a"}},
         {"type": "object", "patternProperties": {"^a": {}}, **SHUT}),
        ({"propertyNames": True}, {}),
    ],
)  # fmt: skip
def test_what_has_no_end_gets_one(schema: Any, enforced: Any) -> None:
    before = json.dumps(schema)
    assert RULES.answer(schema) == enforced
    assert json.dumps(schema) == before
    check_grammar(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(enforced)))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 7}, {"type": "string", "maxLength": "7"},
        {"type": "string", "minLength": 4000, "maxLength": 5000},
        {"type": "string", "pattern": "^a+$"},
        {"type": "string", "format": "date"}, {"type": "string", "enum": ["a"]},
        {"type": "string", "const": "a"}, {"type": "integer", "minimum": 1, "maximum": 2},
        {"type": "integer", "enum": [1]}, {"type": "integer", "minimum": 10**30},
        {"type": "integer", "minimum": "a"}, {"type": "number"}, {"type": "boolean"}, {},
        {"enum": [{"type": "string"}]}, {"const": {"type": "string"}},
        {"default": {"type": "string"}}, {"not": {"type": "string"}},
        {"properties": {"a": {"type": "object"}}}, {"propertyNames": {"minLength": 3}},
        {"propertyNames": {"pattern": "a"}, "properties": {"a": {}}}, {"propertyNames": 5},
        {"items": True, "additionalProperties": False},
    ],
)  # fmt: skip
def test_what_says_its_end_or_is_no_schema_stays(schema: Any) -> None:
    assert RULES.answer(schema) == schema


def test_nothing_is_bounded_where_the_operator_says_so() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    assert SchemaRules(0, False).answer(schema) == schema


PERSON = {"type": "object", "properties": {"a": {"type": "boolean"}}}
SHUT_PERSON = {**PERSON, **SHUT}
NOTHING = {"type": "object", "properties": {}, **SHUT}


@pytest.mark.parametrize(
    ("parameters", "enforced"),
    [
        (PERSON, SHUT_PERSON),
        ({}, NOTHING),
        ({"type": "object"}, NOTHING),
        ({**PERSON, "additionalProperties": True}, {**PERSON, "additionalProperties": True}),
        ({"type": "object", "properties": {"free": {"type": "object"}}},
         {"type": "object", "properties": {"free": {"type": "object"}}, **SHUT}),
        ({"type": "object", "properties": {"list": {"type": "array", "items": PERSON}}},
         {"type": "object", "properties": {"list": {"type": "array", "items": SHUT_PERSON}},
          **SHUT}),
        # one of two: each branch is closed; parts of one object: none is, nor what they refer to
        ({"type": "object", "anyOf": [PERSON, PERSON]},
         {"type": "object", "anyOf": [SHUT_PERSON, SHUT_PERSON]}),
        ({"type": "object", "allOf": [PERSON]}, {"type": "object", "allOf": [SHUT_PERSON]}),
        ({"type": "object", "allOf": [PERSON, PERSON]},
         {"type": "object", "allOf": [PERSON, PERSON]}),
        ({**PERSON, "anyOf": [{"required": ["a"]}]}, {**PERSON, "anyOf": [{"required": ["a"]}],
                                                      **SHUT}),
        ({**PERSON, "anyOf": [PERSON]}, {**PERSON, "anyOf": [PERSON]}),
        ({"type": "object", "$defs": {"p": PERSON}, "properties": {"p": {"$ref": "#/$defs/p"}}},
         {"type": "object", "$defs": {"p": SHUT_PERSON},
          "properties": {"p": {"$ref": "#/$defs/p"}}, **SHUT}),
        ({"type": "object", "$defs": {"p": PERSON}, "allOf": [{"$ref": "#/$defs/p"}, PERSON]},
         {"type": "object", "$defs": {"p": PERSON}, "allOf": [{"$ref": "#/$defs/p"}, PERSON]}),
    ],
)  # fmt: skip
def test_arguments_are_those_that_the_schema_names(parameters: Any, enforced: Any) -> None:
    assert RULES.arguments({"parameters": parameters}) == enforced
    opened = OPEN.arguments({"parameters": parameters})
    assert opened == {"type": "object", **parameters}
    assert OPEN.arguments({"parameters": parameters, "strict": True}) == enforced


def test_the_default_closes_arguments_and_bounds_texts() -> None:
    assert SchemaRules.of(HttpSettings()) == SchemaRules(2048, open_arguments=False)


def use(*names: str, enforced: bool = False, parallel: bool = True) -> ToolUse:
    tools = tuple({"type": "function", "function": {"name": one}} for one in names)
    return ToolUse(tools, enforced, frozenset(names), parallel)


def test_without_an_answers_schema_only_enforced_calls_have_a_grammar() -> None:
    assert use("f").grammar(RULES, None) is None
    assert use("f", enforced=True).grammar(RULES, None) is not None


def test_enforced_calls_leave_no_room_for_another_answer() -> None:
    answer = Grammar(GrammarKind.JSON_OBJECT)
    enforced = use("f", enforced=True)
    assert enforced.grammar(RULES, answer) == enforced.grammar(RULES, None)
