from __future__ import annotations

from typing import Any

import pytest

from core.errors import SettingsError
from loadgen.report.measure import Judgement
from loadgen.report.summary import Summary
from loadgen.report.sweep import Measure, search, sweep
from tests.unit.loadgen.summaries import summary_of


def measured(rate: float, met: bool | None = True, **more: Any) -> Summary:
    slos = [Judgement("ttft.p90=1s", 1.0, None, met)]
    return summary_of(slos=slos, mean_inflight=rate, **more)


@pytest.mark.parametrize("limit", [0.3, 1.0, 3.7, 40.0])
def test_search_closes_in_on_the_highest_passing_rate(limit: float) -> None:
    found = search(1.0, lambda rate: measured(rate, rate <= limit))
    assert found.failing is not None
    assert found.passing <= limit < found.failing
    assert found.failing / found.passing <= 1.05
    assert found.broken == ["ttft.p90=1s"]


def test_search_gives_up_where_requests_are_alone_and_still_too_slow() -> None:
    found = search(1.0, lambda rate: measured(rate, False))
    assert found.passing == 0.0
    assert len(found.runs) < 6


def test_search_stops_when_the_client_is_the_limit() -> None:
    found = search(1.0, lambda rate: measured(rate, True, valid=rate < 4))
    assert list(found.runs) == [1, 2, 4]


def test_one_busy_moment_of_the_client_does_not_end_a_search() -> None:
    moments = iter([False, True])

    def measure(rate: float) -> Summary:
        return measured(rate, rate <= 3, valid=next(moments, True))

    found = search(1.0, measure)
    assert found.runs[1.0].valid is True
    assert found.passing == pytest.approx(3, rel=0.05)


def test_errors_above_their_bound_fail_a_rate_too() -> None:
    found = search(1.0, lambda rate: measured(rate, True, exit_code=4 if rate > 2 else 0))
    assert found.passing == 2.0
    assert found.broken == ["--max-error-rate"]


def test_an_objective_that_cannot_be_judged_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"ttft\.p90=1s"):
        search(1.0, lambda rate: measured(rate, None))


def test_a_search_starts_no_run_that_would_end_after_its_time_limit() -> None:
    moments = iter([0.0, *(30.0 * n for n in range(20))])
    found = search(
        1.0, lambda rate: measured(rate), 100.0, lambda rate: 30.0, clock=lambda: next(moments)
    )
    assert list(found.runs) == [1, 2, 4], "90 s are gone, and 10 s are too few"
    assert found.passing == 4
    assert found.ended == "time limit: a run at 8/s takes 30 s, and 10 s are left"


@pytest.mark.parametrize(
    ("measure", "ended"),
    [
        (lambda rate: measured(rate, rate <= 3), "within 5% of the passing"),
        (lambda rate: measured(rate, False), "a lower rate cannot help"),
        (lambda rate: measured(rate), "16 runs"),
        (lambda rate: measured(rate, valid=False), "the client was the limit"),
        (lambda rate: measured(rate, interrupted=True), "interrupted"),
    ],
)
def test_a_search_says_why_it_stopped(measure: Measure, ended: str) -> None:
    assert ended in search(1.0, measure).ended


def test_a_sweep_ends_at_an_interrupt() -> None:
    runs = sweep([1, 2, 3], lambda rate: measured(rate, interrupted=rate == 2))
    assert list(runs) == [1, 2]
