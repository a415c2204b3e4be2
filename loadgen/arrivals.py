"""When requests leave. Open loop: the schedule never waits for the server (`closed:N` aside)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """`a` is the coefficient of variation of gamma, the concurrency of closed, a ramp's start."""

    kind: str
    a: float = 0.0
    b: float = 0.0

    def times_s(self, rate: float, span_s: float, rng: random.Random) -> Iterator[float]:
        """Yield non-decreasing send times without end, in seconds from the start of the run.

        Every process is drawn at rate 1 and then stretched, so that runs at different rates share
        their randomness. `span_s` is how long a ramp takes; it stays at its end rate thereafter.
        """
        elapsed = 0.0
        while True:
            elapsed += self._unit_gap(rng)
            if self.kind == "closed":
                yield 0.0
            elif self.kind == "ramp":
                yield self._ramp_time_s(elapsed, span_s)
            else:
                yield elapsed / rate

    def _unit_gap(self, rng: random.Random) -> float:
        if self.kind == "constant":
            return 1.0
        if self.kind == "gamma":
            shape = 1.0 / self.a**2
            return rng.gammavariate(shape, 1.0 / shape)
        return rng.expovariate(1.0)

    def _ramp_time_s(self, arrivals: float, span_s: float) -> float:
        """Invert the expected number of arrivals by time t: a·t + (b − a)·t²/(2·span)."""
        in_ramp = (self.a + self.b) / 2 * span_s
        if arrivals >= in_ramp:
            return span_s + (arrivals - in_ramp) / self.b
        slope = (self.b - self.a) / span_s
        return 2 * arrivals / (self.a + math.sqrt(self.a**2 + 2 * slope * arrivals))


def parse_arrival(text: str) -> Arrival:
    """Read `poisson`, `constant`, `gamma:CV`, `ramp:A-B` or `closed:N`."""
    kind, _, rest = text.partition(":")
    try:
        if kind in ("poisson", "constant") and not rest:
            return Arrival(kind)
        if kind == "gamma" and float(rest) > 0:
            return Arrival(kind, float(rest))
        if kind == "closed" and int(rest) > 0:
            return Arrival(kind, int(rest))
        if kind == "ramp":
            start, end = map(float, rest.split("-"))
            if start >= 0 and end > 0:
                return Arrival(kind, start, end)
    except ValueError:
        pass  # said below, as for every other text that is none of these
    raise ValueError(f"{text!r} is not poisson, constant, gamma:CV, ramp:A-B or closed:N")
