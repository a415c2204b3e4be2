"""Objectives as operators write them."""

from __future__ import annotations

import pytest

from core.errors import SettingsError
from core.inputs.objectives import Objective, parse_objectives


def test_a_goal_needs_its_unit_and_a_length_that_can_be_meant() -> None:
    def limit_s(text: str) -> float:
        (goal,) = parse_objectives(f"itl={text}", ("ttft", "itl"))
        return goal.limit

    assert limit_s("1us") == pytest.approx(1e-6)
    assert limit_s("1000h") == pytest.approx(3.6e6)
    for text in ("20", "20.", "0.9us", "1001h", "ms", "20 000ms", "1e3ms"):
        with pytest.raises(SettingsError, match=f"^--slo: itl: '{text}' is not a time from 1us to"):
            limit_s(text)


def test_objectives_have_quantiles_and_errors_only_where_the_reader_takes_them() -> None:
    metrics = ("ttft", "errors")
    found = parse_objectives(" ttft.p95=2s, ttft=5s,errors=1% ", metrics, quantiles=True)
    assert found == (
        Objective("ttft", 0.95, 2.0, "ttft.p95=2s"),
        Objective("ttft", None, 5.0, "ttft=5s"),
        Objective("errors", None, 0.01, "errors=1%"),
    )
    for text in ("ttft.p95=2s", "errors=1%", "ttft=1s,ttft=2s", "ttft=1s,", ""):
        with pytest.raises(SettingsError, match=r"^--slo: .* is not one of ttft with a limit"):
            parse_objectives(text, ("ttft",))
    for text in ("errors.p95=1%", "ttft.p5=1s", "ttft.p955=1s", "itl=1s"):
        with pytest.raises(SettingsError, match=f"^--slo: '{text}' is not one of ttft, errors"):
            parse_objectives(text, metrics, quantiles=True)
    with pytest.raises(SettingsError, match=r"^--slo: errors: '2' is not a share between 0 and 1"):
        parse_objectives("errors=2", metrics, quantiles=True)
