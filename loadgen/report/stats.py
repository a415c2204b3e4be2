"""Percentiles that say how sure they are. Everything here is a pure function of samples."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
CONFIDENCE = 0.95

Weighted = tuple[float, int]  # a value and how many samples it stands for


@dataclass(frozen=True, slots=True)
class Percentile:
    """Units: milliseconds; infinite where a failure stands."""

    value: float
    lo: float | None  # the ends of the 95 % interval; None where the samples depend on each other
    hi: float | None


@dataclass(frozen=True, slots=True)
class Distribution:
    """What is shown of a metric's samples. A percentile is None where they are too few for it."""

    unit: str
    n: int  # how many samples
    mean: float | None
    p50: Percentile | None
    p90: Percentile | None
    p95: Percentile | None
    p99: Percentile | None

    def percentiles(self) -> dict[str, Percentile | None]:
        return {"p50": self.p50, "p90": self.p90, "p95": self.p95, "p99": self.p99}


@cache
def interval_ranks(n: int, quantile: float) -> tuple[int, int] | None:
    """Find the order statistics (1-based) between which the quantile lies with 95 % confidence.

    Samples below the quantile are binomial(n, quantile). Each tail gets half of the 5 %, unless
    one tail needs more to exist at all: then that bound is the extreme sample.
    Returns: None where n is too small for any such pair: below 6 for p50, 29 for p90, 59 for p95,
        299 for p99.
    Source: David and Nagaraja, Order Statistics, 3rd ed., section 7.1.
    """
    miss = 1 - CONFIDENCE
    all_below, all_above = quantile**n, (1 - quantile) ** n
    if all_below + all_above > miss:
        return None
    above = miss - all_above if all_above > miss / 2 else max(miss / 2, all_below)
    log_q, log_p, log_n = math.log(quantile), math.log1p(-quantile), math.lgamma(n + 1)
    mass = [
        math.exp(log_n - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_q + (n - k) * log_p)
        for k in range(n + 1)
    ]
    lo = bisect_right(list(accumulate(mass)), miss - above)
    hi = n + 1 - bisect_right(list(accumulate(reversed(mass))), above)
    return max(lo, 1), min(hi, n)


def percentile(samples: Sequence[Weighted], quantile: float) -> float:
    """Give the least sample with a share of at least `quantile` at or below it; sorted input."""
    ends = list(accumulate(weight for _, weight in samples))
    rank = max(math.ceil(quantile * ends[-1] - 1e-9), 1)
    return samples[bisect_right(ends, rank - 1)][0]


def each_once(values: Iterable[float]) -> list[Weighted]:
    return [(value, 1) for value in sorted(values)]


def summarise(samples: Sequence[Weighted], independent: bool) -> Distribution:
    """Summarise sorted samples, with intervals where they are independent."""
    n = sum(weight for _, weight in samples)
    mean = ms(sum(value * weight for value, weight in samples) / n) if n else None
    found: dict[str, Percentile | None] = {}
    for name, quantile in QUANTILES.items():
        ranks = interval_ranks(n, quantile)
        ends = ranks if ranks and independent else ()
        lo, hi = [ms(samples[rank - 1][0]) for rank in ends] or (None, None)
        found[name] = Percentile(ms(percentile(samples, quantile)), lo, hi) if ranks else None
    return Distribution("ms", n, mean, **found)


def ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
