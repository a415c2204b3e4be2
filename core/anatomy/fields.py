"""Read the fields of a `config.json` that nobody vouches for: each in its range, or one clear line.

No family lives here.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from core.errors import ModelError

MOST_LAYERS: Final = 1_000  # several times what is published, as all limits here
MOST_HEADS: Final = 10_000
MOST_WIDTH: Final = 1_000_000
MOST_EXPERTS: Final = 100_000
MOST_WORDS: Final = 100_000_000
MOST_TOKENS: Final = 10**12
_MOST_BYTES: Final = 16 * 2**20  # of a file; a published one has some kilobytes
_SHOWN: Final = 40  # characters of a bad value


def read_fields(path: Path) -> Fields:
    """Read a file of JSON.

    Raises:
        ModelError: not there, no regular file, too long, or no JSON object.
    """
    where = str(path)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ModelError(f"{where}: is no regular file")
        if found.st_size > _MOST_BYTES:
            raise ModelError(f"{where}: {found.st_size:,} bytes, more than {_MOST_BYTES:,}")
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{where}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{where}: is not JSON") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{where}: is no JSON object")
    return Fields(raw, where)


class Fields:
    """An object's fields. Where several names are given, the first that is there counts.

    A field that is null counts as absent, as its writers mean it.
    """

    def __init__(self, raw: Mapping[str, object], where: str) -> None:
        self._raw, self.where = raw, where

    def wrong(self, name: str, wanted: str) -> ModelError:
        shown = repr(self._raw.get(name))
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        return ModelError(f"{self.where}: {name}: {shown} is not {wanted}")

    def has(self, name: str) -> bool:
        return self._raw.get(name) is not None

    def optional(self, *names: str, most: int, least: int = 1) -> int | None:
        """Read a whole number, None where no name is there."""
        name = next(filter(self.has, names), None)
        return None if name is None else self._whole(name, self._raw[name], least, most)

    def count(self, *names: str, most: int, least: int = 1, default: int | None = None) -> int:
        """Read a whole number.

        Raises:
            ModelError: out of its range, or absent where there is no default.
        """
        found = self.optional(*names, most=most, least=least)
        found = default if found is None else found
        if found is None:
            raise ModelError(f"{self.where}: {' or '.join(names)} is missing")
        return found

    def counts(self, name: str, length: int, most: int) -> tuple[int, ...]:
        """Read a number for each layer, or one for all."""
        value = self._raw.get(name)
        if not isinstance(value, list):
            return (self.count(name, most=most),) * length
        if len(value) != length:
            raise ModelError(f"{self.where}: {name}: {len(value)} values for {length} layers")
        return tuple(self._whole(name, each, 1, most) for each in value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def word(self, name: str) -> str | None:
        value = self._raw.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def words(self, name: str) -> Sequence[str] | None:
        value = self._raw.get(name)
        if value is None:
            return None
        if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            raise self.wrong(name, "a list of texts")
        return value

    def places(self, name: str, layers: int) -> frozenset[int]:
        """Read the numbers of some layers."""
        value = self._raw.get(name)
        if value is None:
            return frozenset()
        if not isinstance(value, list):
            raise self.wrong(name, "a list of layers")
        return frozenset(self._whole(name, each, 0, layers - 1) for each in value)

    def part(self, name: str) -> Fields | None:
        """Give an object inside this one."""
        value = self._raw.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "a JSON object")
        return Fields(value, f"{self.where}: {name}")

    def _whole(self, name: str, value: object, least: int, most: int) -> int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and isinstance(value, int) and least <= value <= most):
            raise self.wrong(name, f"a whole number from {least:,} to {most:,}")
        return value
