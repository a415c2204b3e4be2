"""Percentiles that say how sure they are. Everything here is a pure function of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

QUANTILES = (0.5, 0.9, 0.95, 0.99)
CONFIDENCE = 0.95

Weighted = tuple[float, int]  # a value and how many samples it stands for


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
    above = max(miss / 2, all_below)
    below = max(miss / 2, all_above)
    if above > miss / 2:
        below = miss - above
    elif below > miss / 2:
        above = miss - below
    log_q, log_p = math.log(quantile), math.log1p(-quantile)
    log_n = math.lgamma(n + 1)
    mass = [
        math.exp(log_n - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_q + (n - k) * log_p)
        for k in range(n + 1)
    ]
    lo = 0  # largest l with P(fewer than l below) within its tail
    for total in accumulate(mass):
        if total > below:
            break
        lo += 1
    hi = n + 1  # smallest u with P(u or more below) within its tail
    for total in accumulate(reversed(mass)):
        if total > above:
            break
        hi -= 1
    return max(lo, 1), min(hi, n)


def percentile(samples: Sequence[Weighted], quantile: float) -> float:
    """Give the least sample with a share of at least `quantile` at or below it; sorted input."""
    rank = max(math.ceil(quantile * sum(weight for _, weight in samples) - 1e-9), 1)
    seen = 0
    for value, weight in samples:
        seen += weight
        if seen >= rank:
            return value
    raise AssertionError("no samples")


def summarise(samples: Sequence[float]) -> dict[str, Any]:
    """Summarise independent samples, in milliseconds, each percentile with its interval."""
    values = sorted(samples)
    n = len(values)
    summary = _head([(value, 1) for value in values])
    for quantile in QUANTILES:
        ranks = interval_ranks(n, quantile)
        summary[name(quantile)] = ranks and {
            "value": ms(values[max(math.ceil(quantile * n - 1e-9), 1) - 1]),
            "lo": ms(values[ranks[0] - 1]),
            "hi": ms(values[ranks[1] - 1]),
        }
    return summary


def summarise_pooled(samples: Sequence[Weighted]) -> dict[str, Any]:
    """Summarise samples that share requests: no interval, for they are not independent."""
    ordered = sorted(samples)
    summary = _head(ordered)
    for quantile in QUANTILES:
        enough = interval_ranks(summary["n"], quantile)
        value = enough and percentile(ordered, quantile)
        summary[name(quantile)] = value and {"value": ms(value), "lo": None, "hi": None}
    return summary


def _head(samples: Sequence[Weighted]) -> dict[str, Any]:
    n = sum(weight for _, weight in samples)
    total = sum(value * weight for value, weight in samples)
    return {"unit": "ms", "n": n, "mean": ms(total / n) if n else None}


def name(quantile: float) -> str:
    return f"p{round(quantile * 100)}"


def ms(seconds: float) -> float | str:
    """Give milliseconds; "inf", which JSON has no number for, where a failure stands."""
    return "inf" if math.isinf(seconds) else round(seconds * 1e3, 3)
