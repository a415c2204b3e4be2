"""Structured output: from the request's fields to a grammar.

Whether it can be followed, `server/engines/grammar_checker.py` says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.errors import InvalidValue, MissingParameter, UnsupportedParameter
from core.request import Grammar, GrammarKind
from grammar.compile import MAX_TEXT_BYTES
from server.contract.schemas import SchemaRules
from server.schema.fields import FieldGroup, Structure, Values, built
from server.schema.kinds import Anything, Boolean, ListOf, OneOf, Schema, Text

MAX_CHARACTERS: Final = MAX_TEXT_BYTES  # a character is a byte or more
MAX_CHOICES: Final = 1024


class _JsonSchemaFields(FieldGroup):
    def __init__(self) -> None:
        self.name = built("name", Text(), "what the client calls it")
        self.schema = built("schema", Anything(dict), "the JSON schema", required=True)
        self.strict = built("strict", Boolean(), "the schema is always followed")
        self.description = built("description", Text(), "not shown to the model")


class _ResponseFormatFields(FieldGroup):
    def __init__(self) -> None:
        types = OneOf(("text", "json_object", "json_schema"))
        self.type = built("type", types, "what the answer must be", required=True)
        fields = _JsonSchemaFields()
        schema = Structure(fields.table, lambda values: values[fields.schema])
        self.json_schema = built("json_schema", schema, "for the type json_schema")
        self.schema = built("schema", Anything(dict), "the schema itself, for either type of JSON")


class _StructuredFields(FieldGroup):
    def __init__(self) -> None:
        self.json = built("json", Anything(dict), "a JSON schema")
        self.json_object = built("json_object", Boolean(), "any JSON object")
        self.regex = built("regex", Text(1, MAX_CHARACTERS), "a regular expression")
        self.choice = built("choice", ListOf(Text(1), MAX_CHOICES, least=1), "one of these texts")
        self.grammar = built("grammar", Text(1, MAX_CHARACTERS), "a Lark grammar")


_RESPONSE_FORMAT: Final = _ResponseFormatFields()
_FORMATS: Final = Structure(_RESPONSE_FORMAT.table, lambda values: values)
_STRUCTURES: Final = Structure(_StructuredFields().table, Values.plain)


@dataclass(frozen=True, slots=True)
class ResponseFormatKind:
    """OpenAI's `response_format`; reads as a grammar, or None for text."""

    rules: SchemaRules

    def read(self, value: Any, path: str) -> Grammar | None:
        fields = _RESPONSE_FORMAT
        given = _FORMATS.read(value, path)
        kind, wrapped, bare = given[fields.type], given[fields.json_schema], given[fields.schema]
        if wrapped is not None and (bare is not None or kind != "json_schema"):
            message = f"{path}.json_schema goes with the type json_schema alone"
            raise InvalidValue(message, f"{path}.json_schema")
        if kind == "text":
            if bare is not None:
                raise InvalidValue(f"{path}.schema does not go with text", f"{path}.schema")
            return None
        schema = bare if wrapped is None else wrapped
        if schema is not None:
            return _json_schema(self.rules.answer(schema), path)
        if kind == "json_schema":
            raise MissingParameter(f"{path}.json_schema is required", f"{path}.json_schema")
        return Grammar(GrammarKind.JSON_OBJECT)

    def schema(self) -> Schema:
        return _FORMATS.schema()


@dataclass(frozen=True, slots=True)
class StructuredOutputsKind:
    """vLLM's `structured_outputs`: exactly one of its keys."""

    rules: SchemaRules

    def read(self, value: Any, path: str) -> Grammar:
        given = _STRUCTURES.read(value, path)
        asked = [name for name, one in given.items() if one is not None and one is not False]
        if len(asked) != 1:
            raise InvalidValue(f"{path} must hold exactly one of {', '.join(given)}", path)
        match asked[0]:
            case "json":
                return _json_schema(self.rules.answer(given["json"]), path)
            case "json_object":
                return Grammar(GrammarKind.JSON_OBJECT)
            case "regex":
                return Grammar(GrammarKind.REGEX, given["regex"])
            case "choice":
                return Grammar(GrammarKind.CHOICE, json.dumps(given["choice"], ensure_ascii=False))
            case _:
                return Grammar(GrammarKind.LARK, given["grammar"])

    def schema(self) -> Schema:
        return _STRUCTURES.schema()


# Such an answer cannot begin as a call does, so that a grammar may say: one or the other.
BESIDE_TOOLS: Final = frozenset({GrammarKind.JSON_OBJECT, GrammarKind.JSON_SCHEMA})

# Only the grammar decides what comes and where it ends: these could cut it or leave it no token.
NOT_WITH_A_GRAMMAR: Final = (
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "min_tokens",
    "allowed_token_ids",
    "bad_words",
)


def _json_schema(schema: Mapping[str, Any], path: str) -> Grammar:
    text = json.dumps(schema, ensure_ascii=False)
    if len(text) > MAX_CHARACTERS:
        raise InvalidValue(f"the schema of {path} is over {MAX_CHARACTERS} characters", path)
    return Grammar(GrammarKind.JSON_SCHEMA, text)


def refuse_conflicts(values: Values, param: str) -> None:
    """Refuse what does not go with a grammar, which the field `param` brought.

    Raises:
        UnsupportedParameter: names the other field.
    """
    for name in NOT_WITH_A_GRAMMAR:
        if values.plain()[name]:
            raise UnsupportedParameter(f"{name} cannot be combined with {param}", name)
