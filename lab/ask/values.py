"""One option's text into its value. A refusal says the limit and the notation; it knows no flag."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from core.errors import SettingsError
from core.inputs.objectives import parse_objectives
from core.inputs.quantities import MEMORY, real, whole
from costmodel.planning.scenario import Speculation
from costmodel.planning.sizes import WIDTHS, Width

MOST: Final = 10**15  # of anything counted: no product of a plan's counts leaves the floats
T = TypeVar("T")
_EXPONENTS: Final = {"k": 3, "m": 6, "b": 9, "t": 12}


def _whole(example: str) -> Callable[[str], int]:
    return whole(1, MOST, f"a whole number from 1 to 1e15, such as {example}")


def _positive(example: str) -> Callable[[str], float]:
    return real(math.ulp(0.0), MOST, f"a number above 0 and up to 1e15, such as {example}")


count: Final = _whole("32")  # written as 7e9 too
devices: Final = whole(1, 1024, "a whole number from 1 to 1024, such as 2")


def parameters(text: str) -> int:
    """Read a count of parameters, as people name models too: 135M, 7B, 1.5b, 1T."""
    match = re.fullmatch(r"([0-9.]+)([kmbt])", text, re.IGNORECASE)
    plain = f"{match[1]}e{_EXPONENTS[match[2].lower()]}" if match else text
    return _read(_whole("7e9 or 7B"), plain, text)


def prices(text: str) -> list[float]:
    """Read USD an hour, one or several between commas."""
    return [_positive("2.5")(part) for part in text.split(",")]


def rate(text: str) -> float:
    """Read tokens/s: 90, or 90tok/s."""
    plain = re.sub(r"\s*(tok(ens)?)?(/s)?$", "", text)
    return _read(_positive("90tok/s"), plain, text)


def goals(text: str) -> dict[str, float]:
    """Read the goals that a plan can be held against, in seconds by name."""
    return {goal.metric: goal.limit for goal in parse_objectives(text, ("itl", "ttft"))}


def memory(text: str) -> float:
    return MEMORY.read(text, "--memory")


def _read(read: Callable[[str], T], plain: str, text: str) -> T:
    """Read the plain number that a text stands for; a refusal shows the text."""
    with suppress(ValueError):
        return read(plain)
    return read(text)


def draft(text: str) -> Speculation:
    try:
        drafts, acceptance, cost_ratio = text.split(",")
        found = Speculation(int(drafts), float(acceptance), float(cost_ratio))
    except ValueError:
        found = Speculation(0, math.nan, math.nan)
    counted = 1 <= found.drafts <= MOST
    if not (counted and 0 <= found.acceptance <= 1 and 0 <= found.cost_ratio <= MOST):
        raise ValueError(
            f"{text!r} is not like 4,0.7,0.1: drafts from 1, their acceptance from 0 to 1,"
            " the cost of all from 0"
        )
    return found


def experts(text: str) -> tuple[int, int]:
    """Read 8/128: of 128 experts a token takes 8."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    top_k, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= top_k <= of:
        raise ValueError(f"{text!r} is not like 8/128: experts of a token, of so many in all")
    return top_k, of


def width(text: str, native: bool = False) -> str:
    """Check a width; its text stays, for `native` is read with the model."""
    if native and text == "native":
        return text
    try:
        Width.parse(text)
    except SettingsError as error:
        raise ValueError(f"{error}{', or native' if native else ''}") from None
    return text


WIDTH_NAMES: Final = ", ".join(WIDTHS)
