"""The clock, the price and the sums of the last seconds, each alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import HistogramMetricFamily

from costmodel.slices import ints
from telemetry.bill.money import TimePrice
from telemetry.engine.clock import EngineClock, Spans
from telemetry.series.recent_sums import RecentSums
from telemetry.series.registry import Histogram


def test_time_between_records_is_idle_only_where_the_engine_said_so() -> None:
    clock = EngineClock()
    clock.start(100)
    assert clock.record(130, 150) == Spans(idle=30, gap=0, wall=50)
    assert clock.record(150, 160) == Spans(0, 0, 10)
    assert clock.rest(165) == Spans(idle=0, gap=5, wall=5)
    assert clock.extend(200) == Spans(idle=35, gap=0, wall=35)
    assert clock.record(200, 210) == Spans(0, 0, 10)
    assert clock.extend(500) == Spans(0, 0, 0), "a busy engine reports for itself"


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))))
def test_scrapes_never_make_time_out_of_nothing(turns: list[tuple[int, int, int]]) -> None:
    """Each turn idles, is scraped meanwhile, idles on, and steps."""
    clock, now, booked, wall = EngineClock(), 0, 0, 0
    clock.start(0)
    for idle, more, step in turns:
        scraped, start = now + idle, now + idle + more
        end = start + step
        for spans in (clock.extend(scraped), clock.record(start, end), clock.rest(end)):
            assert min(spans) >= 0
            booked += spans.idle + spans.gap
            wall += spans.wall
        booked += step
        now = end
    assert booked == wall == now


@given(st.integers(0, 10**11), st.lists(st.integers(0, 10**10)))
def test_spans_cost_together_what_their_sum_costs(price: int, spans: list[int]) -> None:
    time_price = TimePrice(price)
    assert sum(map(time_price.of_next, spans)) == sum(spans) * price // 3_600_000_000_000


def test_time_without_a_price_costs_nothing() -> None:
    assert TimePrice(None).of_next(10**12) == 0


def test_a_window_forgets_what_is_older() -> None:
    window, second = RecentSums(10, 2), 1_000_000_000
    window.record(0, (1, 2))
    window.record(second // 2, (1, 0))
    window.record(5 * second, (10, 0))
    assert window.sums(9 * second) == [12, 2]
    assert window.sums(10 * second) == [10, 0]
    assert window.sums(60 * second) == [0, 0]


def test_moments_may_be_recorded_out_of_their_order() -> None:
    window, second = RecentSums(10, 1), 1_000_000_000
    for moment in (*range(50), 48, 45, 3):
        window.record(moment * second, (1,))
    assert window.sums(49 * second) == [10 + 2]


def test_a_column_of_moments_adds_to_a_window_as_each_of_them_does() -> None:
    moments, second = (0, 400_000_000, 1_700_000_000, 1_800_000_000), 1_000_000_000
    column, each = RecentSums(10, 2), RecentSums(10, 2)
    column.record_all(ints(moments), np.array([[1, 2, 3, 4], [0.5, 0.25, 0.0, 1.0]]))
    column.record_all(ints([]), np.empty((2, 0)))
    for moment, *values in zip(moments, (1, 2, 3, 4), (0.5, 0.25, 0.0, 1.0), strict=True):
        each.record(moment, values)
    for now_ns in (9 * second, 10 * second, 11 * second):
        assert column.sums(now_ns) == each.sums(now_ns)


def test_a_column_is_observed_as_each_of_its_values_is() -> None:
    values = [0.5, 1.0, 1.5, 2.0, 9.0, 1.0]
    shown = []
    for observe in (
        lambda h: h.observe_all(np.array(values)),
        lambda h: list(map(h.observe, values)),
    ):
        histogram = Histogram((1.0, 2.0))
        observe(histogram)
        family = HistogramMetricFamily("seconds", "")
        histogram.show(family, ())
        shown.append([(sample.labels, sample.value) for sample in family.samples])
    assert shown[0] == shown[1]
    assert [value for _, value in shown[0]] == [3, 5, 6, 6, 15.0]
