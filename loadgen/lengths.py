"""How long prompts and outputs are: distributions over token counts. No text is made here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution over [lo, hi]. Normal and log-normal draws are rounded and clamped to it.

    `a` and `b` are mean and deviation of a normal; median, and deviation of the logarithm, of a
    log-normal.
    """

    kind: str
    lo: int
    hi: int
    a: float = 0.0
    b: float = 0.0

    def draw(self, rng: random.Random) -> int:
        if self.kind == "uniform":
            return rng.randint(self.lo, self.hi)
        normal = rng.gauss(0.0, 1.0)
        if self.kind == "norm":
            value = self.a + self.b * normal
        else:
            value = self.a * 2.718281828459045 ** (self.b * normal)
        return min(max(round(value), self.lo), self.hi)


def parse_lengths(text: str) -> Lengths:
    """Read `32-96`, `=64`, `norm:64,16,1,128` or `lognorm:64,0.5,1,512`."""
    try:
        if text.startswith("="):
            lengths = Lengths("uniform", int(text[1:]), int(text[1:]))
        elif text.startswith(("norm:", "lognorm:")):
            kind, _, numbers = text.partition(":")
            a, b, lo, hi = numbers.split(",")
            lengths = Lengths(kind, int(lo), int(hi), float(a), float(b))
        else:
            low, high = text.split("-")
            lengths = Lengths("uniform", int(low), int(high))
    except ValueError:
        raise ValueError(f"{text!r} is not like 32-96, =64 or norm:64,16,1,128") from None
    if lengths.lo < 1 or lengths.lo > lengths.hi:
        raise ValueError(f"{text!r}: a range runs from at least 1 upward")
    return lengths


def parse_map(text: str) -> dict[str, Lengths]:
    """Read `prompt:32-96,output:16-48`; either may be absent."""
    ranges = {}
    for part in text.split(","):
        name, _, span = part.partition(":")
        if name not in ("prompt", "output"):
            raise ValueError(f"{text!r} is not like prompt:32-96,output:16-48")
        ranges[name] = parse_lengths(span)
    return ranges


def map_by_rank(values: Sequence[int], onto: Lengths) -> list[int]:
    """Spread `values` evenly over `onto` by rank: order and ties survive, magnitudes do not."""
    ordered = sorted(set(values))
    rank = {value: i for i, value in enumerate(ordered)}
    steps = max(len(ordered) - 1, 1)
    return [onto.lo + round((onto.hi - onto.lo) * rank[value] / steps) for value in values]
