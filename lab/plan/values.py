"""One option's text into its value; an error names the flag, the limit and the notation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from core.errors import SettingsError
from core.inputs.options import named
from core.inputs.quantities import real, whole
from costmodel.planning.scenario import Speculation

MOST: Final = 10**15  # of anything counted: no product of a plan's counts leaves the floats
T = TypeVar("T")
_EXPONENTS: Final = {"k": 3, "m": 6, "b": 9, "t": 12}


def _whole(example: str) -> Callable[[str], int]:
    return whole(1, MOST, f"a whole number from 1 to 1e15, such as {example}")


def _positive(example: str) -> Callable[[str], float]:
    return real(math.ulp(0.0), MOST, f"a number above 0 and up to 1e15, such as {example}")


def count(text: str, flag: str) -> int:
    """Read a whole number above zero, written as 7e9 too."""
    return named(_whole("32"), flag)(text)


def parameters(text: str, flag: str) -> int:
    """Read a count of parameters, as people name models too: 135M, 7B, 1.5b, 1T."""
    match = re.fullmatch(r"([0-9.]+)([kmbt])", text, re.IGNORECASE)
    plain = f"{match[1]}e{_EXPONENTS[match[2].lower()]}" if match else text
    return _read(_whole("7e9 or 7B"), plain, text, flag)


def price(text: str, flag: str) -> float:
    return named(_positive("2.5"), flag)(text)


def rate(text: str, flag: str) -> float:
    """Read tokens/s: 90, or 90tok/s."""
    plain = re.sub(r"\s*(tok(ens)?)?(/s)?$", "", text)
    return _read(_positive("90tok/s"), plain, text, flag)


def _read(read: Callable[[str], T], plain: str, text: str, flag: str) -> T:
    """Read the plain number that a text stands for; a refusal shows the text."""
    with suppress(ValueError):
        return read(plain)
    return named(read, flag)(text)


def draft(text: str, flag: str) -> Speculation:
    try:
        drafts, acceptance, cost_ratio = text.split(",")
        found = Speculation(int(drafts), float(acceptance), float(cost_ratio))
    except ValueError:
        found = Speculation(0, math.nan, math.nan)
    counted = 1 <= found.drafts <= MOST
    if not (counted and 0 <= found.acceptance <= 1 and 0 <= found.cost_ratio <= MOST):
        raise SettingsError(
            f"{flag}: {text!r} is not like 4,0.7,0.1: drafts from 1, their acceptance from 0 to 1,"
            " the cost of all from 0"
        )
    return found
