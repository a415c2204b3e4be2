"""What is added to a JSON schema before it is enforced: ends of texts and numbers, closed objects.

A grammar lets a model go on for as long as the schema does, and a small one does so. It changes no
part that says something itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.settings import HttpSettings

Node = dict[str, Any]

MAX_INTEGER: Final = 9 * 10**18  # digits of 64 bits; the library's ranges end below 2^63

MAX_TEXT: Final = 3_000  # characters: more may be too much work for the library, amid the answer
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_LONE: Final = ("items", "additionalProperties", "unevaluatedProperties", "then", "else")
_COMBINE: Final = ("$ref", "allOf", "anyOf", "oneOf", "dependentSchemas", "if", "then", "else")
_SAY_LENGTH: Final = ("maxLength", "pattern", "format", "enum", "const", *_COMBINE)
_SAY_KEYS: Final = ("additionalProperties", "unevaluatedProperties")
_LOWER: Final = ("minimum", "exclusiveMinimum")
_UPPER: Final = ("maximum", "exclusiveMaximum")
_NOTES: Final = frozenset({"type", "title", "description", "$schema"})  # of a key: no rule


@dataclass(frozen=True, slots=True)
class SchemaRules:
    """The operator's choices. `string_characters` 0 bounds neither strings nor integers."""

    string_characters: int
    open_arguments: bool  # calls may have arguments that their schema does not name

    @classmethod
    def of(cls, limits: HttpSettings) -> SchemaRules:
        return cls(limits.max_schema_string, limits.open_tool_arguments)

    def answer(self, schema: Mapping[str, Any]) -> Node:
        """Give the schema of an answer as it is enforced."""
        return self._ended(_mapped(schema, lambda key, name, inner: self.answer(inner)))

    def arguments(self, function: Mapping[str, Any]) -> Node:
        """Give the schema of a function's arguments as it is enforced: an object's."""
        schema = self.answer({"type": "object", **function.get("parameters", {})})
        if self.open_arguments and not function.get("strict"):
            return schema
        if not _has(schema, "properties", "patternProperties", *_COMBINE):
            schema = {**schema, "properties": {}}  # it takes no arguments
        return _closed(schema, True, frozenset(_shared(schema, True)))

    def _ended(self, node: Node) -> Node:
        """Add the ends that a text or an integer lacks."""
        node = _plain_names(node)
        if not self.string_characters:
            return node
        types = node.get("type")
        types = types if isinstance(types, list) else [types]
        if "string" in types and ("maxLength" in node or not _has(node, *_SAY_LENGTH)):
            least, most = node.get("minLength", 0), node.get("maxLength", self.string_characters)
            counts = isinstance(least, int) and isinstance(most, int)
            if counts and least <= (most := min(most, MAX_TEXT)):
                node = {**node, "maxLength": most}
        if "integer" in types and not _has(node, "enum", "const", *_COMBINE):
            node = _with_range(node)
        return node


def _has(node: Node, *keywords: str) -> bool:
    return any(keyword in node for keyword in keywords)


def _mapped(node: Mapping[str, Any], change: Callable[[str, str, Node], Node]) -> Node:
    """Change each schema right below, by its keyword and, where it has one, its name.

    What is under `not` and `if` stays: what is added there would take from what may come.
    """
    changed = dict(node)
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            changed[key] = {
                name: change(key, name, inner) if isinstance(inner, dict) else inner
                for name, inner in value.items()
            }
        elif key in _LISTS and isinstance(value, list):
            changed[key] = [change(key, "", one) if isinstance(one, dict) else one for one in value]
        elif key in _LONE and isinstance(value, dict):
            changed[key] = change(key, "", value)
    return changed


def _with_range(node: Node) -> Node:
    """Add the end of an integer's range that is missing, where the other leaves room for it."""
    given = [node[key] for key in (*_LOWER, *_UPPER) if key in node]
    if not all(isinstance(one, int | float) and abs(one) <= MAX_INTEGER for one in given):
        return node  # the library says what is wrong with it
    low = {} if _has(node, *_LOWER) else {"minimum": -MAX_INTEGER}
    high = {} if _has(node, *_UPPER) else {"maximum": MAX_INTEGER}
    return {**node, **low, **high}


def _plain_names(node: Node) -> Node:
    """Write `propertyNames` in words that the library knows; what says nothing is left out."""
    names = node.get("propertyNames")
    names = {} if names is True else names
    if not isinstance(names, dict) or names.get("type", "string") != "string":
        return node
    rest = {key: value for key, value in node.items() if key != "propertyNames"}
    rules, value = names.keys() - _NOTES, rest.get("additionalProperties", {})
    if not rules:
        return rest
    if _has(node, "properties", "patternProperties"):
        return node
    if rules == {"enum"} and isinstance(names["enum"], list):
        keys = [key for key in names["enum"] if isinstance(key, str)]
        return {**rest, "properties": dict.fromkeys(keys, value), "additionalProperties": False}
    if rules == {"pattern"} and isinstance(names["pattern"], str):
        patterns = {names["pattern"]: value}
        return {**rest, "patternProperties": patterns, "additionalProperties": False}
    return node


# ── closing objects ───────────────────────────────────────────────────────────────────────────


def _may_close(node: Node, keyword: str, may_close: bool) -> bool:
    """Say whether an object below may be closed: not if another schema names keys of it, too."""
    if keyword not in _COMBINE:
        return True
    lone = keyword != "allOf" or len(node[keyword]) == 1
    return may_close and lone and "properties" not in node


def _shared(node: Node, may_close: bool) -> Iterator[str]:
    """Find the references to what must stay open."""
    if "$ref" in node and (not may_close or "properties" in node):
        yield str(node["$ref"])
    below: list[tuple[Node, bool]] = []

    def note(key: str, name: str, inner: Node) -> Node:
        below.append((inner, _may_close(node, key, may_close)))
        return inner

    _mapped(node, note)
    for inner, may in below:
        yield from _shared(inner, may)


def _closed(node: Node, may_close: bool, shared: frozenset[str]) -> Node:
    """Close the objects that name their keys."""

    def close(key: str, name: str, inner: Node) -> Node:
        may = _may_close(node, key, may_close) and f"#/{key}/{name}" not in shared
        return _closed(inner, may, shared)

    changed = _mapped(node, close)
    combined = json.dumps([node[key] for key in _COMBINE if key in node])
    others = "$ref" in node or '"properties"' in combined or '"$ref"' in combined
    if may_close and "properties" in node and not others and not _has(node, *_SAY_KEYS):
        changed["additionalProperties"] = False
    return changed
