"""A real Prometheus over recorded replicas, one idle, one without a price: what panels then say."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from deploy.grafana.build import FOLDER
from deploy.grafana.queries import SCRAPE_INTERVAL_S, Prometheus, Window, panels, targets
from tests.live import prometheus_in

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus installed"
)

DASHBOARD_PANELS = [
    pytest.param(panel, id=f"{path.stem}: {panel['title']}")
    for path in sorted(FOLDER.glob("*.json"))
    for panel in panels(path)
]
SPAN_S = 200
Counts = dict[str, float]  # a counter's growth per second, or a gauge's value
BUSY_A: Counts = {
    'cost_usd_total{tenant="t",component="prefill"}': 2e-6,
    'cost_usd_total{tenant="t",component="decode"}': 5.9e-6,
    'cost_usd_total{tenant="_shared",component="idle"}': 7.9e-6,
    'tokens_total{kind="prompt"}': 20,
    'tokens_total{kind="generated"}': 10,
    'floor_seconds_total{kind="decode"}': 0.5,
    "checkpoint_floor_seconds_total": 0.4,
    'lost_seconds_total{cause="host"}': 0.3,
    'lost_seconds_total{cause="idle"}': 0.2,
    "engine_wall_seconds_total": 1,
    'step_duration_seconds_sum{kind="decode"}': 0.8,
    'step_duration_seconds_count{kind="decode"}': 8,
    'step_floor_seconds_sum{kind="decode"}': 0.5,
    "bandwidth_utilization_ratio": 0.6,
    'peak_bytes_per_second{level="dram"}': 1e9,
    "price_usd_per_hour": 0.1,
    "telemetry_seconds_total": 0.02,
}
BUSY_B = BUSY_A | {
    'cost_usd_total{tenant="t",component="decode"}': 8.8e-6,
    'tokens_total{kind="generated"}': 20,
    'step_duration_seconds_sum{kind="decode"}': 0.4,
    'step_duration_seconds_count{kind="decode"}': 2,
    "bandwidth_utilization_ratio": 0.3,
}
IDLE = dict.fromkeys(BUSY_A, 0.0) | {
    'lost_seconds_total{cause="idle"}': 1,
    "engine_wall_seconds_total": 1,
    'peak_bytes_per_second{level="dram"}': 1e9,
    "price_usd_per_hour": 0.1,
    'kv_headroom_requests{size="p50"}': math.nan,
}
WITHOUT_PRICE: Counts = {'tokens_total{kind="generated"}': 1000}
GAUGES = ("utilization_ratio", "peak_", "price_", "headroom")


def recorded(instance: str, rates: Counts, start_s: int) -> Iterator[str]:
    """Write what one server would have shown at each scrape, as OpenMetrics with times."""
    for name, value in rates.items():
        series, _, labels = name.rstrip("}").partition("{")
        named = ",".join(filter(None, (f'instance="{instance}",model="m"', labels)))
        is_gauge = any(word in series for word in GAUGES)
        for t_s in range(0, SPAN_S, SCRAPE_INTERVAL_S):
            shown = value if is_gauge else value * t_s
            yield f"floorline_{series}{{{named}}} {shown} {start_s + t_s}"


@dataclass(frozen=True, slots=True)
class Fleet:
    prometheus: Prometheus
    window: Window

    def values(self, title: str) -> dict[str, float]:
        """Give the last value of each series of one panel."""
        (panel,) = (
            p for path in FOLDER.glob("*.json") for p in panels(path) if p["title"] == title
        )
        found = {}
        for target in targets(panel, self.window):
            for labels, points in self.prometheus.query_range(target.promql, self.window):
                found[re.sub(r"{{(\w+)}}", r"{\1}", target.legend).format(**labels)] = points[-1][1]
        return found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Ask a Prometheus that recorded two busy servers, an idle one and one without a price."""
    folder, start_s = tmp_path_factory.mktemp("fleet"), int(time.time()) - 2 * SPAN_S
    servers = {"a": BUSY_A, "b": BUSY_B, "idle": IDLE, "free": WITHOUT_PRICE}
    lines = [line for name, rates in servers.items() for line in recorded(name, rates, start_s)]
    (folder / "recorded").write_text("\n".join([*lines, "# EOF\n"]))
    blocks = ["tsdb", "create-blocks-from", "openmetrics", "recorded", "data"]
    subprocess.run(["promtool", *blocks], cwd=folder, check=True, capture_output=True)
    with prometheus_in(folder) as prometheus:
        yield Fleet(prometheus, Window(start_s + SPAN_S / 2, start_s + SPAN_S - 5))


def test_replicas_are_a_sum_over_a_sum(fleet: Fleet) -> None:
    """One output token of `a` is 0.59 USD a million, of `b` 0.44; the sum of both is no price."""
    usd = fleet.values("USD per million tokens")
    assert usd["output, usage"] == pytest.approx((5.9 + 8.8) / 30)
    assert usd["input, usage"] == pytest.approx(4 / 40)
    paid, unpaid = 2 + 5.9 + 2 + 8.8, 2 * 7.9
    assert usd["output, allocation"] == pytest.approx(14.7 / 30 * (paid + unpaid) / paid)
    assert fleet.values("Utilisation of the peaks")["memory bandwidth"] == pytest.approx(
        (0.6 * 0.8 + 0.3 * 0.4) / 1.2
    )
    assert fleet.values("Efficiency")["Efficiency"] == pytest.approx(1.0 / 1.2)
    assert fleet.values("Step time: measured, and its floor")["decode"] == pytest.approx(1.2 / 10)
    assert fleet.values("What telemetry costs")["telemetry"] == pytest.approx(0.04 / 3)
    assert fleet.values("Bytes moved, by component")["peak"] == 3e9
    every = fleet.values("Where every second goes")
    assert every == pytest.approx(
        {"useful floor": 0.8 / 3, "format": 0.2 / 3, "host": 0.2, "idle": 1.4 / 3}
    )
    assert sum(every.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("panel", DASHBOARD_PANELS)
def test_an_idle_replica_puts_no_nan_into_a_panel(fleet: Fleet, panel: dict[str, Any]) -> None:
    for target in targets(panel, fleet.window):
        for promql in (target.promql, target.promql.replace('model=~".*"', 'instance="idle"')):
            for _, points in fleet.prometheus.query_range(promql, fleet.window):
                assert all(math.isfinite(value) for _, value in points), promql
