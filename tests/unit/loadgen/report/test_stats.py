from __future__ import annotations

import math
import random

import pytest

from loadgen.report.stats import (
    Distribution,
    Percentile,
    each_once,
    interval_ranks,
    percentile,
    summarise,
)


@pytest.mark.parametrize(("quantile", "least"), [(0.5, 6), (0.9, 29), (0.95, 59), (0.99, 299)])
def test_a_percentile_needs_enough_samples(quantile: float, least: int) -> None:
    assert interval_ranks(least - 1, quantile) is None
    assert interval_ranks(least, quantile) is not None


def binomial(n: int, quantile: float, below: range) -> float:
    return sum(math.comb(n, k) * quantile**k * (1 - quantile) ** (n - k) for k in below)


@pytest.mark.parametrize("n", [29, 59, 100, 299, 1000])
@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99])
def test_an_interval_covers_at_least_95_percent_by_the_binomial(n: int, quantile: float) -> None:
    if ranks := interval_ranks(n, quantile):
        low, high = ranks
        assert binomial(n, quantile, range(low, high)) >= 0.95


def test_intervals_of_p90_hold_the_true_value_as_often_as_they_say() -> None:
    rng, true, held = random.Random(7), -math.log(0.1), 0
    for _ in range(5000):
        samples = each_once(rng.expovariate(1.0) for _ in range(100))
        p90 = summarise(samples, independent=True).p90
        assert p90 is not None
        assert p90.lo is not None
        assert p90.hi is not None
        held += p90.lo <= true * 1e3 <= p90.hi
    assert 0.94 < held / 5000 < 0.98


def test_a_percentile_is_the_least_sample_that_enough_lie_below() -> None:
    values = [(float(k), 1) for k in range(1, 101)]
    assert percentile(values, 0.9) == 90
    assert percentile(values, 0.5) == 50
    assert percentile([(1.0, 90), (5.0, 10)], 0.9) == 1.0
    assert percentile([(1.0, 89), (5.0, 11)], 0.9) == 5.0


def test_a_failure_is_an_endless_wait_and_says_so() -> None:
    summary = summarise([(0.1, 1)] * 80 + [(math.inf, 1)] * 20, independent=True)
    assert summary.p50 is not None
    assert summary.p90 is not None
    assert summary.p50.value == 100.0
    assert summary.p90.value == math.inf


def test_pooled_samples_get_no_interval() -> None:
    summary = summarise([(0.01, 50), (0.02, 50)], independent=False)
    assert summary.n == 100
    assert summary.mean == 15.0
    assert summary.p50 == Percentile(10.0, None, None)


def test_no_samples_are_na() -> None:
    assert summarise([], independent=True) == Distribution(
        unit="ms", n=0, mean=None, p50=None, p90=None, p95=None, p99=None
    )
