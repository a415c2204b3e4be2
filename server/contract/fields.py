"""Fields of a JSON object as a table, and strict reading by it. It knows no route.

The table is the one source: validation, `/openapi.json` and the tables of docs/api.md come from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from core.errors import InvalidJson, MissingParameter, UnsupportedParameter
from server.contract.kinds import Anything, Kind, Schema, typed
from server.limits.body_weight import check_weight


class Support(Enum):
    BUILT = "supported"
    REFUSED = "refused"  # known, not built, and would change the output
    IGNORED = "ignored"  # changes no output here


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field. Absent and null mean `default`; a refused field's `neutral` values pass."""

    name: str
    kind: Kind
    note: str
    default: Any = None
    required: bool = False
    support: Support = Support.BUILT
    neutral: tuple[Any, ...] = ()


def built(name: str, kind: Kind, note: str, default: Any = None, required: bool = False) -> Field:
    return Field(name=name, kind=kind, note=note, default=default, required=required)


def refused(name: str, kind: Kind, note: str, *neutral: Any) -> Field:
    return Field(name=name, kind=kind, note=note, support=Support.REFUSED, neutral=neutral)


def ignored(names: Iterable[str], note: str) -> list[Field]:
    return [Field(name=name, kind=Anything(), note=note, support=Support.IGNORED) for name in names]


Table = Mapping[str, Field]


def table_of(fields: Iterable[Field]) -> Table:
    return {field.name: field for field in fields}


def read_fields(table: Table, raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Read what the table knows, in its order; other keys are ignored.

    Raises:
        MissingParameter: a required field is absent or null.
        InvalidType, InvalidValue: what its kind says of a value, refused fields' too.
        UnsupportedParameter: a value asks for what is not built.
    """
    values: dict[str, Any] = {}
    for field in table.values():
        path, given = f"{prefix}{field.name}", raw.get(field.name)
        if given is None and field.required:
            raise MissingParameter(f"{path} is required", path)
        if field.support is Support.BUILT:
            values[field.name] = field.default if given is None else field.kind.read(given, path)
        elif field.support is Support.REFUSED and given is not None:
            field.kind.read(given, path)
            if given not in field.neutral:
                raise UnsupportedParameter(f"{path} is not supported", path)
    return values


@dataclass(frozen=True, slots=True)
class Structure:
    """An object with fields of its own; it reads as a dict with every built field."""

    table: Table

    def read(self, value: Any, path: str) -> dict[str, Any]:
        return read_fields(self.table, typed(value, dict, "an object", path), f"{path}.")

    def schema(self) -> Schema:
        return object_schema(self.table)


def object_schema(table: Table) -> Schema:
    """Describe a request's body; a refused field takes its neutral values only."""
    properties: dict[str, Schema] = {}
    for field in table.values():
        described = field.kind.schema() if field.support is not Support.IGNORED else {}
        if field.support is Support.REFUSED:
            described = {"enum": [*field.neutral, None]}
        elif described and not field.required:
            described = {"anyOf": [described, {"type": "null"}]}
        if field.default is not None and field.support is Support.BUILT:
            described["default"] = field.default
        properties[field.name] = {**described, "description": field.note}
    required = [field.name for field in table.values() if field.required]
    described = {"type": "object", "properties": properties}
    return {**described, "required": required} if required else described


_CONTAINERS: Final = (dict, list)


def decode_object(body: bytes, max_depth: int) -> dict[str, Any]:
    """Decode a JSON object; NaN, Infinity, bad UTF-8 and lone surrogates are not JSON.

    Raises:
        InvalidJson: the text is no JSON, its value is no object, or it is nested too deeply.
        InvalidValue: it holds too many keys or values.
    """
    check_weight(body)
    too_deep = InvalidJson(f"the body is nested more than {max_depth} levels deep")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJson(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise too_deep from None
    if not isinstance(value, dict):
        raise InvalidJson("the body must be a JSON object")
    level: list[Any] = [value]
    for _ in range(max_depth):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise too_deep


def _inside(container: Any) -> Iterable[Any]:
    items = container.values() if isinstance(container, dict) else container
    return (item for item in items if isinstance(item, _CONTAINERS))
