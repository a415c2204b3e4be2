"""A real Prometheus scrapes two live servers, one of them idle: every panel and rule has data.

The laws of time and of requests are read from /metrics alone.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml

from deploy.grafana.build import FOLDER
from deploy.grafana.queries import SCRAPE_INTERVAL_S, Prometheus, Window, panels, targets
from loadgen.run.scrape import Scrape
from tests.live import BIN, DEPLOY, Serve, end, prometheus_in
from tests.patience import PATIENCE_S

LOAD_S = 60
FLAGS = ["--model", "tinygpt", "--kv-memory", "64MiB", "--price-per-hour", "0.1"]
# No speed is judged here: a busy machine calibrates too low, is late, and waits for second threads.
SPEEDLESS = ["--peak-bandwidth", "1e12", "--peak-flops", "1e13", "--threads", "1"]
SPEEDLESS += ["--slo", "ttft=60s,itl=10s"]
DASHBOARD_PANELS = [
    pytest.param(panel, id=f"{path.stem}: {panel['title']}")
    for path in sorted(FOLDER.glob("*.json"))
    for panel in panels(path)
]
RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus installed"),
]


@dataclass(frozen=True, slots=True)
class Load:
    """How `loadgen` ended, and what it reported."""

    status: int
    report: str


@dataclass(frozen=True, slots=True)
class Run:
    """What is left when the load is over: the server and Prometheus still answer."""

    url: str
    prometheus: Prometheus
    window: Window
    load: Load
    scrapes: list[Scrape]  # taken through the load, and at its end


@pytest.fixture(scope="module")
def run(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Load a live server for a minute while Prometheus scrapes it."""
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        serve(*FLAGS, *SPEEDLESS) as server,
        serve(*FLAGS, *SPEEDLESS) as idle,
        prometheus_in(folder, server.url, idle.url) as prometheus,
    ):
        start_s = time.time()
        load, scrapes = put_under_load(server.url)
        window = Window(start_s, time.time())
        yield Run(server.url, prometheus, window, load, scrapes)


def put_under_load(url: str) -> tuple[Load, list[Scrape]]:
    """Send a minute of Poisson traffic; read /metrics meanwhile, and once it is over."""
    command = [str(BIN / "loadgen"), "--rate", "2", "--duration", f"{LOAD_S}s", "--quiet", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    scrapes = []
    try:
        while process.poll() is None:
            scrapes.append(scrape(url))
            time.sleep(SCRAPE_INTERVAL_S)
        scrapes.append(scrape(url))
        report = process.communicate()[0]
    finally:
        end(process)
    return Load(process.returncode, report), scrapes


def scrape(url: str) -> Scrape:
    return Scrape(httpx.get(f"{url}/metrics", timeout=PATIENCE_S).raise_for_status().text)


def test_the_load_was_served(run: Run) -> None:
    """3 says that this machine was too busy for the client's own times: none are judged here."""
    assert run.load.status in (0, 3), run.load.report
    assert len(run.scrapes) > LOAD_S / SCRAPE_INTERVAL_S / 2
    assert run.scrapes[-1].total("floorline_requests_total", outcome="length")


@pytest.mark.parametrize("panel", DASHBOARD_PANELS)
def test_every_query_of_a_panel_returns_data(run: Run, panel: dict[str, Any]) -> None:
    for target in targets(panel, run.window):
        series = run.prometheus.query_range(target.promql, run.window)
        values = [value for _, points in series for _, value in points]
        assert values, target.promql
        assert all(map(math.isfinite, values)), f"the idle server makes it NaN: {target.promql}"


def test_the_model_variable_finds_the_model(run: Run) -> None:
    for path in FOLDER.glob("*.json"):
        (variable,) = json.loads(path.read_text())["templating"]["list"]
        (metric, label) = variable["query"].removeprefix("label_values(").rstrip(")").split(", ")
        models = {labels[label] for labels, _ in run.prometheus.query(metric)}
        assert models == {"tinygpt"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_rule_compares_data_that_exists(run: Run, rule: dict[str, Any]) -> None:
    """With `bool` a comparison answers 0 or 1 instead of dropping what does not exceed it."""
    promql, comparisons = re.subn(r" (>|==) ", r" \1 bool ", rule["expr"])
    assert comparisons
    assert run.prometheus.query(promql), promql


def test_prometheus_evaluates_the_rules_and_none_fires(run: Run) -> None:
    (group,) = run.prometheus.get("rules")["groups"]
    assert {rule["name"]: rule["health"] for rule in group["rules"]} == {
        rule["alert"]: "ok" for rule in RULES
    }
    assert [rule["name"] for rule in group["rules"] if rule["alerts"]] == []


def test_useful_floor_and_lost_time_sum_to_the_wall_time(run: Run) -> None:
    for reading in run.scrapes:
        wall_s = reading.total("floorline_engine_wall_seconds_total")
        floor_s = reading.total("floorline_floor_seconds_total") or 0.0
        lost_s = reading.total("floorline_lost_seconds_total") or 0.0
        assert wall_s
        assert floor_s + lost_s == pytest.approx(wall_s, rel=0.01)


def test_every_request_received_is_live_or_has_ended(run: Run) -> None:
    for reading in run.scrapes:
        received = reading.total("floorline_requests_received_total") or 0
        ended = reading.total("floorline_requests_total") or 0
        running = reading.total("floorline_requests_running") or 0
        waiting = reading.total("floorline_requests_waiting") or 0
        assert received == ended + running + waiting


def test_the_load_leaves_nothing_behind(run: Run) -> None:
    last = run.scrapes[-1]
    assert last.total("floorline_requests_running") == 0
    assert last.total("floorline_kv_blocks", state="referenced") == 0
    assert last.total("floorline_floor_violations_total") == 0
    assert last.total("floorline_engine_up") == 1


def test_promtool_finds_nothing_wrong_with_the_metrics(run: Run) -> None:
    text = httpx.get(f"{run.url}/metrics", timeout=PATIENCE_S).text
    check = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr
