"""One option's text into its value; an error names the flag, the limit and the notation."""

from __future__ import annotations

import math
import re
from typing import Final

from core.errors import SettingsError
from core.inputs.quantities import number
from costmodel.planning.scenario import Speculation

MOST: Final = 10**15  # of anything counted: no product of a plan's counts leaves the floats
_EXPONENTS: Final = {"k": 3, "m": 6, "b": 9, "t": 12}


def count(text: str, flag: str) -> int:
    """Read a whole number above zero, written as 7e9 too."""
    return _whole(text, f"{flag} {text!r}", "32")


def parameters(text: str, flag: str) -> int:
    """Read a count of parameters, as people name models too: 135M, 7B, 1.5b, 1T."""
    match = re.fullmatch(r"([0-9.]+)([kmbt])", text, re.IGNORECASE)
    plain = f"{match[1]}e{_EXPONENTS[match[2].lower()]}" if match else text
    return _whole(plain, f"{flag} {text!r}", "7e9 or 7B")


def price(text: str, flag: str) -> float:
    return _positive(text, f"{flag} {text!r}", "2.5")


def rate(text: str, flag: str) -> float:
    """Read tokens/s: 90, or 90tok/s."""
    plain = re.sub(r"\s*(tok(ens)?)?(/s)?$", "", text)
    return _positive(plain, f"{flag} {text!r}", "90tok/s")


def draft(text: str, flag: str) -> Speculation:
    try:
        drafts, acceptance, cost_ratio = text.split(",")
        found = Speculation(int(drafts), float(acceptance), float(cost_ratio))
    except ValueError:
        found = Speculation(0, math.nan, math.nan)
    counted = 1 <= found.drafts <= MOST
    if not (counted and 0 <= found.acceptance <= 1 and 0 <= found.cost_ratio <= MOST):
        raise SettingsError(
            f"{flag} {text!r} is not like 4,0.7,0.1: drafts from 1, their acceptance from 0 to 1,"
            " the cost of all from 0"
        )
    return found


def _whole(text: str, given: str, example: str) -> int:
    value = number(text)
    if not (1 <= value <= MOST and value.is_integer()):
        raise SettingsError(f"{given} is not a whole number from 1 to 1e15, such as {example}")
    return int(value)


def _positive(text: str, given: str, example: str) -> float:
    value = number(text)
    if not 0 < value <= MOST:
        raise SettingsError(f"{given} is not a number above 0 and up to 1e15, such as {example}")
    return value
