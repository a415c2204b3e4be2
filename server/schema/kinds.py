"""Kinds of JSON values: each reads strictly and says its JSON schema. It knows no fields."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from core.errors import InvalidTokenId, InvalidType, InvalidValue, RequestError

Schema = dict[str, Any]
Item = TypeVar("Item")
Read_co = TypeVar("Read_co", covariant=True)

INT64: Final = 2**63
MAX_IDS: Final = 2**20  # token ids in one field


class ValueKind(Protocol[Read_co]):
    """What a field's value may be, and what it reads as.

    Raises:
        InvalidType: (`read`) the value has another type; strings are never coerced.
        InvalidValue: (`read`) the value is out of the range that the message states.
    """

    def read(self, value: Any, path: str) -> Read_co:
        """Check a value that is not null; `path` names it in errors."""

    def schema(self) -> Schema: ...


def as_integer(value: Any) -> int | None:
    """Read a JSON number without fraction; None where it is anything else (a bool too)."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def typed(value: Any, kind: type, words: str, path: str) -> Any:
    """Return the value if it is a `kind`.

    Raises:
        InvalidType: it is none.
    """
    if not isinstance(value, kind):
        raise InvalidType(f"{path} must be {words}", path)
    return value


@dataclass(frozen=True, slots=True)
class Boolean:
    def read(self, value: Any, path: str) -> bool:
        return bool(typed(value, bool, "a boolean", path))

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Integer:
    low: int | None = None
    high: int | None = None

    def read(self, value: Any, path: str) -> int:
        number = as_integer(value)
        if number is None:
            raise InvalidType(f"{path} must be an integer", path)
        _check_range(number, self.low, self.high, path)
        return number

    def schema(self) -> Schema:
        return {"type": "integer", **_bounds(minimum=self.low, maximum=self.high)}


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number; `above_low` leaves out `low` itself."""

    low: float
    high: float
    above_low: bool = False

    def read(self, value: Any, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidType(f"{path} must be a number", path)
        if self.above_low and value == self.low:
            raise InvalidValue(f"{path} must be above {self.low} and at most {self.high}", path)
        _check_range(value, self.low, self.high, path)
        return float(value)

    def schema(self) -> Schema:
        low = "exclusiveMinimum" if self.above_low else "minimum"
        return {"type": "number", low: self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Text:
    least: int = 0
    most: int | None = None
    pattern: str | None = None

    def read(self, value: Any, path: str) -> str:
        text = str(typed(value, str, "a string", path))
        _check_size(len(text), self.least, self.most, "character", path)
        if self.pattern is not None and not re.fullmatch(self.pattern, text):
            raise InvalidValue(f"{path} must match {self.pattern}", path)
        return text

    def schema(self) -> Schema:
        anchored = f"^{self.pattern}$" if self.pattern is not None else None
        bounds = _bounds(minLength=self.least or None, maxLength=self.most, pattern=anchored)
        return {"type": "string", **bounds}


@dataclass(frozen=True, slots=True)
class OneOf:
    values: tuple[str, ...]

    def read(self, value: Any, path: str) -> str:
        text = str(typed(value, str, "a string", path))
        if text not in self.values:
            raise InvalidValue(f"{path} must be one of {', '.join(self.values)}", path)
        return text

    def schema(self) -> Schema:
        return {"type": "string", "enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class TokenId:
    """An id that some vocabulary may hold; which one is known later."""

    def read(self, value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidType(f"{path} must hold token ids", path)
        number = as_integer(value)
        if number is None or not 0 <= number < INT64:
            raise InvalidTokenId("a token id must be an integer of at least 0", path)
        return number

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": 0}


@dataclass(frozen=True, slots=True)
class ListOf(Generic[Item]):
    """`lone` takes an item without its list too. Errors in items name the list, and say which."""

    item: ValueKind[Item]
    most: int | None = None
    least: int = 0
    lone: bool = False

    def read(self, value: Any, path: str) -> tuple[Item, ...]:
        if self.lone and not isinstance(value, list):
            return (self.item.read(value, path),)
        items = typed(value, list, "a list", path)
        _check_size(len(items), self.least, self.most, "item", path)
        read: list[Item] = []
        for item in items:
            try:
                read.append(self.item.read(item, path))
            except RequestError as error:
                raise type(error)(f"{error.message} (item {len(read)})", error.param) from None
        return tuple(read)

    def schema(self) -> Schema:
        bounds = _bounds(minItems=self.least or None, maxItems=self.most)
        listed = {"type": "array", "items": self.item.schema(), **bounds}
        return {"anyOf": [self.item.schema(), listed]} if self.lone else listed


@dataclass(frozen=True, slots=True)
class Biases:
    """OpenAI's map from a token id, as text, to what is added to its logit."""

    most: int
    limit: float = 100.0

    def read(self, value: Any, path: str) -> tuple[tuple[int, float], ...]:
        biases = typed(value, dict, "an object", path)
        _check_size(len(biases), 0, self.most, "token id", path)
        bad = [key for key in biases if not (key.isascii() and key.isdigit() and len(key) < 19)]
        if bad:
            shown = ", ".join(repr(key[:40]) for key in bad[:10])
            raise InvalidValue(f"{path} must be keyed by token ids, not {shown}", path)
        amount = Number(-self.limit, self.limit)
        return tuple((int(key), amount.read(number, path)) for key, number in biases.items())

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]{1,18}$"},
            "additionalProperties": Number(-self.limit, self.limit).schema(),
            "maxProperties": self.most,
        }


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value, or any of the JSON type that `python_type` stands for."""

    python_type: type = object

    def read(self, value: Any, path: str) -> Any:
        names: Mapping[type, str] = {dict: "an object", list: "a list"}
        words = names.get(self.python_type, "a value")
        return typed(value, self.python_type, words, path)

    def schema(self) -> Schema:
        names: Mapping[type, Schema] = {dict: {"type": "object"}, list: {"type": "array"}}
        return names.get(self.python_type, {})


def _check_range(value: float, low: float | None, high: float | None, path: str) -> None:
    below = low is not None and not value >= low
    above = high is not None and not value <= high
    if below or above or (isinstance(value, float) and not math.isfinite(value)):
        bounds = [f"at least {low}" if low is not None else ""]
        bounds += [f"at most {high}" if high is not None else ""]
        raise InvalidValue(f"{path} must be {' and '.join(filter(None, bounds))}", path)


def _check_size(size: int, least: int, most: int | None, unit: str, path: str) -> None:
    if size < least or (most is not None and size > most):
        words, limit = ("least", least) if size < least else ("most", most)
        plural = "" if limit == 1 else "s"
        raise InvalidValue(f"{path} must hold at {words} {limit} {unit}{plural}", path)


def _bounds(**given: Any) -> Schema:
    return {name: value for name, value in given.items() if value is not None}
