"""Quantities as people write and read them: `94e9`, `94GB/s`, `24GiB`, `500ms`. It knows no flag.

A prefix is a power of ten, and with an `i` a power of two, in every option: 1 GB and 1 G are 10^9,
1 GiB and 1 Gi are 2^30. A bare number is in the unit itself. Nothing is rounded but by the writers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from core.errors import SettingsError

_EXPONENTS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_TIME: Final = re.compile(r"([0-9]*\.?[0-9]+)\s*(us|ms|s|m|h|)")
_SECONDS: Final = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def _pattern(units: str, flags: int = 0) -> re.Pattern[str]:
    """Compile number, prefix, `i` and one of `units`, or none."""
    return re.compile(rf"(.*?)\s*([kKMGTP]?)(i?)(?:{units})?", flags)


_BYTES: Final = _pattern("B", re.IGNORECASE)  # memory is never told in bits


@dataclass(frozen=True, slots=True)
class Notation:
    """How one kind of amount is written."""

    pattern: re.Pattern[str]
    least: float  # what is below it is a slip of the unit
    least_text: str
    example: str

    def read(self, text: str, name: str) -> float:
        """Read an amount of `name`, a flag or a key.

        Raises:
            SettingsError: not written so, or too small to be meant; names both.
        """
        value = _scaled_up(self.pattern, text)
        if not 0 <= value < math.inf:
            raise SettingsError(f"{name}: {text!r} is not written like {self.example}")
        if value < self.least:
            raise SettingsError(
                f"{name}: {text!r} is below {self.least_text}: write it like {self.example}"
            )
        return value


BANDWIDTH: Final = Notation(
    _pattern("B|B/s"), 1e6, "1 MB/s", "94GB/s or 94e9"
)  # a b would be a bit
FLOPS: Final = Notation(_pattern("FLOP/s|FLOPs|FLOPS"), 1e6, "1 MFLOP/s", "989TFLOP/s or 989e12")
MEMORY: Final = Notation(_BYTES, 1e6, "1 MB", "24GB, 24GiB or 24e9")


def _scaled_up(pattern: re.Pattern[str], text: str) -> float:
    """Read a number and its prefix; NaN if the text is not written so."""
    match = pattern.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        return math.nan
    base = 1024.0 if match[3] else 1000.0
    return number(match[1]) * base ** _EXPONENTS[match[2].upper()]


def parse_bytes(text: str, name: str) -> int:
    """Read a size in bytes, of any length: 512MB, 2GiB, 100.

    Raises:
        SettingsError: not a positive size; names the setting `name`.
    """
    size = _scaled_up(_BYTES, text)
    if not math.isfinite(size):
        raise SettingsError(f"{name}: {text!r} is not a size such as 512MB or 2GiB")
    if size < 1:
        raise SettingsError(f"{name}: {text!r} must be above zero")
    return int(size)


def number(text: str) -> float:
    """Read a number; NaN, which is in no range, if the text is not one."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def whole(least: float, most: float, words: str = "") -> Callable[[str], int]:
    """Make the reader of whole numbers in a range, which may be written as 7e9 too.

    The reader raises ValueError, and says what it takes: `words`, or the range.
    """

    def read(text: str) -> int:
        value: int | None
        try:
            value = int(text)
        except ValueError:
            wide = number(text)
            value = int(wide) if wide.is_integer() else None
        if value is None or not least <= value <= most:
            takes = words or f"a whole number from {least:,} to {most:,}"
            raise ValueError(f"{text!r} is not {takes}")
        return value

    return read


def real(least: float, most: float, words: str) -> Callable[[str], float]:
    """Make the reader of numbers in a range; the reader raises ValueError, and says `words`."""

    def read(text: str) -> float:
        value = number(text)
        if not least <= value <= most:
            raise ValueError(f"{text!r} is not {words}")
        return value

    return read


def time_s(text: str) -> float:
    """Read 500ms, 2s, 5m or 1h; a bare number is seconds. NaN if the text is not a time."""
    match = _TIME.fullmatch(text.strip())
    return float(match[1]) * _SECONDS[match[2]] if match else math.nan


def share(text: str) -> float:
    """Read 5% or 0.05.

    Raises:
        ValueError: not between 0 and 1.
    """
    value = number(text[:-1]) / 100 if text.endswith("%") else number(text)
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not a share between 0 and 1 (or 0% and 100%)")
    return value


def scaled(value: float | None, unit: str = "") -> str:
    """Write three digits and a decimal prefix; None is n/a."""
    if value is None:
        return "n/a"
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def ms(value: float | None) -> str:
    """Write milliseconds in three digits, and seconds from 1000 on."""
    if value is None:
        return "n/a"
    return f"{value:.3g} ms" if value < 1000 else f"{value / 1e3:,.3g} s"


def rate(value: float | None) -> str:
    """Write tokens/s: three digits, or whole numbers above."""
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def counted(number: float, noun: str) -> str:
    """Write `1 request` and `2,000 requests`; a fraction in three digits."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:.3g}"
    return f"{shown} {noun}" if shown == "1" else f"{shown} {noun}s"
