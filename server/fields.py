"""Strict reading of one decoded JSON object. It knows types and ranges, not what a field means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from core.errors import InvalidJson, InvalidType, InvalidValue, MissingParameter


def decode_object(body: bytes) -> dict[str, Any]:
    """Decode a JSON object; NaN, Infinity, bad UTF-8 and lone surrogates are not JSON.

    Raises:
        InvalidJson: the text is no JSON, or its value is no object.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJson(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    if not isinstance(value, dict):
        raise InvalidJson("the body must be a JSON object")
    return value


def as_integer(value: Any) -> int | None:
    """Read a JSON number without fraction; None where it is anything else (a bool too)."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class Fields:
    """One object of the request; every reader returns the default for an absent or null field.

    Raises:
        InvalidType: (every reader) the value has another type; strings are never coerced.
        InvalidValue: the value is out of the range that the message states.
    """

    def __init__(self, raw: Mapping[str, Any], prefix: str = "") -> None:
        self._raw, self._prefix = raw, prefix

    def path(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def get(self, name: str) -> Any:
        return self._raw.get(name)

    def required(self, name: str) -> Any:
        """Return a field that must be there and not be null.

        Raises:
            MissingParameter: it is absent or null.
        """
        value = self._raw.get(name)
        if value is None:
            raise MissingParameter(f"{self.path(name)} is required", self.path(name))
        return value

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self._typed(name, bool, "a boolean")
        return default if value is None else bool(value)

    def string(self, name: str) -> str | None:
        value = self._typed(name, str, "a string")
        return None if value is None else str(value)

    def object(self, name: str) -> Fields:
        return Fields(self._typed(name, dict, "an object") or {}, f"{self.path(name)}.")

    def integer(self, name: str, low: int | None = None, high: int | None = None) -> int | None:
        value = self._raw.get(name)
        if value is None:
            return None
        number = as_integer(value)
        if number is None:
            raise InvalidType(f"{self.path(name)} must be an integer", self.path(name))
        self._check(name, number, low, high)
        return number

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self._raw.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidType(f"{self.path(name)} must be a number", self.path(name))
        self._check(name, value, low, high)
        return float(value)

    def _typed(self, name: str, kind: type, words: str) -> Any:
        value = self._raw.get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidType(f"{self.path(name)} must be {words}", self.path(name))
        return value

    def _check(self, name: str, value: float, low: float | None, high: float | None) -> None:
        below = low is not None and not value >= low
        above = high is not None and not value <= high
        if below or above or (isinstance(value, float) and not math.isfinite(value)):
            bounds = [f"at least {low}" if low is not None else ""]
            bounds += [f"at most {high}" if high is not None else ""]
            message = f"{self.path(name)} must be {' and '.join(filter(None, bounds))}"
            raise InvalidValue(message, self.path(name))
