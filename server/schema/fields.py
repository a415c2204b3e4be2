"""Fields of a JSON object as a table, and strict reading by it. It knows no route.

The table is the one source: validation, `/openapi.json` and the tables of docs/api.md come from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar, overload

import msgspec

from core.errors import InvalidJson, MissingParameter, UnsupportedParameter
from server.limits.body_weight import check_weight
from server.schema.kinds import Anything, Schema, ValueKind, typed

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Support(Enum):
    BUILT = "supported"
    REFUSED = "refused"  # known, not built, and would change the output
    IGNORED = "ignored"  # changes no output here


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(Generic[T_co]):
    """One field. Absent and null mean `default`; a refused field's `neutral` values pass."""

    name: str
    kind: ValueKind[T_co]
    note: str
    default: T_co
    required: bool = False
    support: Support = Support.BUILT
    neutral: tuple[Any, ...] = ()


@overload
def built(name: str, kind: ValueKind[T], note: str) -> Field[T | None]: ...
@overload
def built(name: str, kind: ValueKind[T], note: str, default: T) -> Field[T]: ...
@overload
def built(name: str, kind: ValueKind[T], note: str, *, required: Literal[True]) -> Field[T]: ...
def built(
    name: str, kind: ValueKind[Any], note: str, default: Any = None, *, required: bool = False
) -> Field[Any]:
    return Field(name=name, kind=kind, note=note, default=default, required=required)


def refused(name: str, kind: ValueKind[Any], note: str, *neutral: Any) -> Field[Any]:
    return Field(
        name=name, kind=kind, note=note, default=None, support=Support.REFUSED, neutral=neutral
    )


def ignored(note: str, *names: str) -> list[Field[Any]]:
    return [
        Field(name=name, kind=Anything(), note=note, default=None, support=Support.IGNORED)
        for name in names
    ]


Table = Mapping[str, Field[Any]]


class FieldGroup:
    """Fields as attributes, in the order of the table: fields, lists of them, and other groups."""

    def __iter__(self) -> Iterator[Field[Any]]:
        for part in vars(self).values():
            yield from (part,) if isinstance(part, Field) else part

    @property
    def table(self) -> Table:
        return {field.name: field for field in self}


class Values:
    """What was read. A field is the key to its own value, which has the type of its kind."""

    def __init__(self, read: Mapping[str, Any], raw: Mapping[str, Any]) -> None:
        self._read, self._raw = read, raw

    def __getitem__(self, field: Field[T]) -> T:
        value: T = self._read[field.name]
        return value

    def sent(self, field: Field[Any]) -> Any:
        """Give what the client wrote; None where it wrote nothing."""
        return self._raw.get(field.name)

    def plain(self) -> dict[str, Any]:
        """Give every value by its field's name, for who passes the object on."""
        return dict(self._read)


def read_fields(table: Table, raw: Mapping[str, Any], prefix: str = "") -> Values:
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
    return Values(values, raw)


@dataclass(frozen=True, slots=True)
class Structure(Generic[T]):
    """An object with fields of its own; it reads as what `make` makes of their values."""

    table: Table
    make: Callable[[Values], T]

    def read(self, value: Any, path: str) -> T:
        raw = typed(value, dict, "an object", path)
        return self.make(read_fields(self.table, raw, f"{path}."))

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
            described["default"] = msgspec.to_builtins(field.default)
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
