"""Writes `docs/api.md` from its template and the fields' tables: `make pages`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.settings import HttpSettings
from docs.build.template import filled
from server.answers.request_size import MAX_IDS_BESIDE
from server.contract.grammars import NOT_WITH_A_GRAMMAR
from server.contract.messages import ROLES
from server.contract.schemas import MAX_INTEGER, MAX_TEXT
from server.contract.table import StreamOptions
from server.contract.validation import Validator
from server.http.errors import INTERNAL, METHOD_NOT_ALLOWED, NOT_FOUND, TABLE
from server.http.json import encode
from server.limits.body_weight import MAX_CONTAINERS, MAX_KEYS, MAX_VALUES
from server.routes.routes import ROUTES
from server.schema.fields import Field, Support, Table
from server.schema.kinds import MAX_IDS, Schema, TokenId
from server.text.prompts import MAX_SPELLINGS
from server.text.spellings import MAX_BYTES


def page() -> str:
    """Give the whole page as text."""
    tables = Validator(HttpSettings()).tables
    completion, chat = tables["completion"], tables["chat"]
    shared = [name for name in completion if _alike(completion[name], chat.get(name))]
    sections = {
        "Fields of both inference routes": {name: completion[name] for name in shared},
        "Fields of /v1/completions": _without(completion, shared),
        "Fields of /v1/chat/completions": _without(chat, shared),
        "Fields of /tokenize, for a text": tables["tokenize_text"],
        "Fields of /tokenize, for a conversation": tables["tokenize_chat"],
        "Fields of /detokenize": tables["detokenize"],
    }
    fields = "".join(_section(title, table) for title, table in sections.items()).rstrip()
    numbers = {
        "spellings": MAX_SPELLINGS,
        "word_bytes": MAX_BYTES - 1,
        "text": HttpSettings().max_schema_string,
        "integer": MAX_INTEGER,
        "longest": MAX_TEXT,
        "keys": MAX_KEYS,
        "containers": MAX_CONTAINERS,
        "values": MAX_VALUES,
        "ids": MAX_IDS,
        "beside": MAX_IDS_BESIDE,
    }
    texts = {
        "routes": _routes(),
        "fields": fields,
        "conflicts": ", ".join(f"`{name}`" for name in NOT_WITH_A_GRAMMAR),
        "roles": ", ".join(f"`{role}`" for role in ROLES.values),
        "max_text": HttpSettings().max_text,
        "errors": _errors(),
    }
    return filled("api", texts | {name: f"{number:,}" for name, number in numbers.items()})


def _routes() -> str:
    return "\n".join(
        f"| `{endpoint.method} {endpoint.route}` | {endpoint.summary} |" for endpoint, _ in ROUTES
    )


def _alike(one: Field[Any], other: Field[Any] | None) -> bool:
    return other is not None and replace(one, note="") == replace(other, note="")


def _without(table: Table, names: Sequence[str]) -> Table:
    return {name: field for name, field in table.items() if name not in names}


def _section(title: str, table: Table) -> str:
    rows = "".join(_row(field) for field in table.values())
    return f"## {title}\n\n| field | takes | default | |\n|---|---|---|---|\n{rows}\n"


def _row(field: Field[Any]) -> str:
    note = field.note
    if field.support is Support.REFUSED:
        neutral = ", ".join(f"`{_json(value)}`" for value in field.neutral)
        passes = f" (null and {neutral} pass)" if neutral else ""
        return f"| `{field.name}` | refused{passes} | | {note} |\n"
    if field.support is Support.IGNORED:
        return f"| `{field.name}` | ignored | | {note} |\n"
    default = "required" if field.required else _default(field.default)
    return f"| `{field.name}` | {_words(field.kind.schema())} | {default} | {note} |\n"


def _default(value: Any) -> str:
    plain = value in (None, (), "") or isinstance(value, StreamOptions)
    return "" if plain else f"`{_json(value)}`"


def _json(value: Any) -> str:
    return encode(value).decode()


def _words(schema: Schema) -> str:
    """Say a JSON schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_words(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        items = "token id" if schema["items"] == TokenId().schema() else _words(schema["items"])
        return f"list ({items}){_bounds(schema, 'Items', ' items')}"
    if kind == "string":
        pattern = f" matching `{schema['pattern']}`" if "pattern" in schema else ""
        return f"string{_bounds(schema, 'Length', ' characters')}{pattern}"
    if kind in ("integer", "number"):
        above = schema.get("exclusiveMinimum")
        return (
            f"{kind}{f' above {above}' if above is not None else ''}{_bounds(schema, 'imum', '')}"
        )
    return str(kind)


def _bounds(schema: Schema, suffix: str, unit: str) -> str:
    low, high = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if low is None and high is None:
        return ""
    if unit and low == 1:
        return ", not empty" if high is None else f", 1 to {high:,}{unit}"
    if low is None or high is None:
        return f", at least {low:,}{unit}" if high is None else f", at most {high:,}{unit}"
    return f", {low:,} to {high:,}{unit}"


def _errors() -> str:
    every = (*TABLE.values(), INTERNAL, NOT_FOUND, METHOD_NOT_ALLOWED)
    rows = {(row.status, row.type, row.code or "") for row in every}
    return "\n".join(f"| {status} | {type} | {code} |" for status, type, code in sorted(rows))


if __name__ == "__main__":
    print(page(), end="")
