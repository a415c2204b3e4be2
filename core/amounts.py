"""Amounts as people write them: `94e9`, `94G`, `94GB/s`, `500ms`. It knows no flag and no setting.

Prefixes are powers of ten, with an `i` powers of two. A bare number is in the unit itself; a goal
takes none, since 500 may be meant in ms or in s.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from core.errors import SettingsError

_EXPONENTS: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_AMOUNT: Final = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([kKMGTP]?)(i?)(.*)")
_TIME: Final = re.compile(r"([0-9]*\.?[0-9]+)\s*(us|ms|s|m|h|)")
_SECONDS: Final = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LEAST_GOAL_S: Final = 1e-6
_MOST_GOAL_S: Final = 1000 * 3600.0  # in ns it is far within the integers of the wire


@dataclass(frozen=True, slots=True)
class Notation:
    """How one kind of amount is written, and the least that is believed: below is a slip of unit.

    Case tells a `B` from a bit.
    """

    units: frozenset[str]  # what may follow the prefix
    least: float
    least_text: str
    example: str

    def read(self, text: str, name: str) -> float:
        """Read an amount of `name`, a flag or a key.

        Raises:
            SettingsError: not written so, or too small to be meant; names both.
        """
        value = self._value(text.strip())
        if not math.isfinite(value):
            raise SettingsError(f"{name}: {text!r} is not written like {self.example}")
        if value < self.least:
            raise SettingsError(
                f"{name}: {text!r} is below {self.least_text}: write it like {self.example}"
            )
        return value

    def _value(self, text: str) -> float:
        match = _AMOUNT.fullmatch(text)
        if match is None or match[4] not in self.units:
            return math.nan
        number, prefix, binary = match[1], match[2], match[3]
        if binary and not prefix:
            return math.nan
        return float(number) * (1024.0 if binary else 1000.0) ** _EXPONENTS[prefix]


BANDWIDTH: Final = Notation(frozenset({"", "B", "B/s"}), 1e6, "1 MB/s", "94GB/s or 94e9")
FLOPS: Final = Notation(
    frozenset({"", "FLOP/s", "FLOPs", "FLOPS"}), 1e6, "1 MFLOP/s", "989TFLOP/s or 989e12"
)
MEMORY: Final = Notation(frozenset({"", "B"}), 1e6, "1 MB", "24GB, 24GiB or 24e9")


def scaled(value: float) -> str:
    """Write three digits and a decimal prefix, to which a unit may be put."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def time_s(text: str) -> float:
    """Read 500ms, 2s, 5m or 1h. A bare number is seconds; what is no time is NaN."""
    match = _TIME.fullmatch(text.strip())
    return float(match[1]) * _SECONDS[match[2]] if match else math.nan


def goal_s(text: str, name: str) -> float:
    """Read the limit of the objective `name`, such as 500ms.

    Raises:
        SettingsError: no unit, or no such time; names both.
    """
    limit_s = time_s(text) if text.strip()[-1:].isalpha() else math.nan
    if not _LEAST_GOAL_S <= limit_s <= _MOST_GOAL_S:
        raise SettingsError(
            f"{name}: {text!r} is not a time from 1us to 1000h with its unit, such as 500ms or 10s"
        )
    return limit_s
