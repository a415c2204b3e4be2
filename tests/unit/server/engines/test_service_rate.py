"""Predicting how long a backlog takes, from what ended."""

from __future__ import annotations

import pytest

from server.engines.service_rate import MEMORY_S, ServiceRate


def test_nothing_is_predicted_before_anything_ended() -> None:
    rate = ServiceRate()
    rate.observe(5.0, [])
    assert rate.seconds_for(1, 0) is None


def test_a_backlog_takes_as_long_as_the_scarcer_of_requests_and_tokens() -> None:
    rate = ServiceRate()
    rate.observe(2.0, [100, 300])  # a request and 200 prompt tokens a second
    assert rate.seconds_for(3, 0) == pytest.approx(3)
    assert rate.seconds_for(3, 200) == pytest.approx(3)
    assert rate.seconds_for(3, 2_000) == pytest.approx(10)


def test_old_work_is_forgotten() -> None:
    rate = ServiceRate()
    rate.observe(10.0, [1] * 1_000)
    for _ in range(10):
        rate.observe(MEMORY_S, [1] * 30)
    assert rate.seconds_for(10, 0) == pytest.approx(10, rel=0.01)
