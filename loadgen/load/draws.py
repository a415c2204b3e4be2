"""What is drawn for a load: when requests leave, how many tokens they have. No text is made here.

Open loop: the schedule never waits for the server (`closed:N` aside).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

MAX_VARIATION = 1e3  # of gamma; the least is its inverse. Far beyond, the shape overflows
MOST = 10**9  # of a count or a rate; the least rate is its inverse. So no sum overflows
MAX_EXPONENT = 700.0  # exp of more overflows


@dataclass(frozen=True, slots=True)
class ConstantArrival:
    """Requests that leave at equal distances."""


@dataclass(frozen=True, slots=True)
class GammaArrival:
    """Gaps of a gamma distribution."""

    variation: float = 1.0  # the coefficient of variation of the gaps; at 1 they are Poisson's


@dataclass(frozen=True, slots=True)
class ClosedArrival:
    """Each request leaves when one before it has ended."""

    concurrency: int  # requests in flight at once


@dataclass(frozen=True, slots=True)
class RampArrival:
    """A Poisson process whose rate goes from `start` to `end`, and then stays at `end`.

    Units: requests per second.
    """

    start: float
    end: float

    def time_s(self, arrivals: float, span_s: float) -> float:
        """Invert the expected number of arrivals by time t: start·t + (end − start)·t²/(2·span)."""
        in_ramp = (self.start + self.end) / 2 * span_s
        if arrivals >= in_ramp:
            return span_s + (arrivals - in_ramp) / self.end
        slope = (self.end - self.start) / span_s
        return 2 * arrivals / (self.start + math.sqrt(self.start**2 + 2 * slope * arrivals))


Arrival = ConstantArrival | GammaArrival | ClosedArrival | RampArrival


def send_times_s(
    arrival: Arrival, rate: float, span_s: float, rng: random.Random
) -> Iterator[float]:
    """Yield non-decreasing send times without end, in seconds from the start of the run.

    Every process is drawn at rate 1 and then stretched, so that runs at different rates share
    their randomness. `span_s` is how long a ramp takes.
    """
    shape = 1.0 / arrival.variation**2 if isinstance(arrival, GammaArrival) else 1.0
    arrivals = 0.0
    while True:
        constant = isinstance(arrival, ConstantArrival)
        arrivals += 1.0 if constant else rng.gammavariate(shape, 1.0 / shape)
        match arrival:
            case ClosedArrival():
                yield 0.0
            case RampArrival():
                yield arrival.time_s(arrivals, span_s)
            case _:
                yield arrivals / rate


def parse_arrival(text: str) -> Arrival:
    """Read `poisson`, `constant`, `gamma:CV`, `ramp:A-B` or `closed:N`."""
    kind, _, rest = text.partition(":")
    with suppress(ValueError):  # other texts are refused below
        if kind in ("poisson", "constant") and not rest:
            return GammaArrival() if kind == "poisson" else ConstantArrival()
        if kind == "gamma" and 1 / MAX_VARIATION <= float(rest) <= MAX_VARIATION:
            return GammaArrival(float(rest))
        if kind == "closed" and 1 <= int(rest) <= MOST:
            return ClosedArrival(int(rest))
        if kind == "ramp":
            start, end = map(float, rest.split("-"))
            if 0 <= start <= MOST and 1 / MOST <= end <= MOST:
                return RampArrival(start, end)
    raise ValueError(f"{text!r} is not poisson, constant, gamma:CV, ramp:A-B or closed:N")


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution over [lo, hi]. Normal and log-normal draws are rounded and clamped to it."""

    kind: str  # uniform, norm or lognorm
    lo: int
    hi: int
    a: float = 0.0  # the mean of a normal, the median of a log-normal
    b: float = 0.0  # the deviation of a normal; of the logarithm, of a log-normal

    def draw(self, rng: random.Random) -> int:
        if self.kind == "uniform":
            return rng.randint(self.lo, self.hi)
        deviation = self.b * rng.gauss(0.0, 1.0)
        if self.kind == "norm":
            value = self.a + deviation
        else:
            value = self.a * math.exp(min(deviation, MAX_EXPONENT))
        return round(min(max(value, self.lo), self.hi))


def parse_lengths(text: str) -> Lengths:
    """Read `32-96`, `=64`, `norm:64,16,1,128` or `lognorm:64,0.5,1,512`."""
    try:
        if text.startswith(("norm:", "lognorm:")):
            kind, _, numbers = text.partition(":")
            a, b, lo, hi = numbers.split(",")
            lengths = Lengths(kind, int(lo), int(hi), float(a), float(b))
        else:
            low, high = (text[1:], text[1:]) if text.startswith("=") else text.split("-")
            lengths = Lengths("uniform", int(low), int(high))
    except ValueError:
        raise ValueError(f"{text!r} is not like 32-96, =64 or norm:64,16,1,128") from None
    if not (math.isfinite(lengths.a) and 0 <= lengths.b < math.inf):
        raise ValueError(f"{text!r}: a mean is finite, and a deviation at least 0")
    if lengths.lo < 1 or lengths.lo > lengths.hi:
        raise ValueError(f"{text!r}: a range runs from at least 1 upward")
    return lengths


def parse_map(text: str) -> dict[str, Lengths]:
    """Read `prompt:32-96,output:16-48`; either may be absent."""
    parts = [part.partition(":") for part in text.split(",")]
    if not {name for name, _, _ in parts} <= {"prompt", "output"}:
        raise ValueError(f"{text!r} is not like prompt:32-96,output:16-48")
    return {name: parse_lengths(span) for name, _, span in parts}


def map_by_rank(values: Sequence[int], onto: Lengths | None) -> Sequence[int]:
    """Spread `values` evenly over `onto` by rank: order and ties survive, magnitudes do not.

    Without `onto` they stay as they are.
    """
    if onto is None:
        return values
    rank = {value: i for i, value in enumerate(sorted(set(values)))}
    steps = max(len(rank) - 1, 1)
    return [onto.lo + round((onto.hi - onto.lo) * rank[value] / steps) for value in values]
