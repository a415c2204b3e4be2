"""The table, what is made of it, and how much a scrape can grow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from core.request import RequestId
from core.settings import HttpSettings, TelemetrySettings
from docs.build.metrics_page import page
from server.contract.validation import Validator
from server.routes.routes import document
from telemetry.books.ledger import OTHER
from telemetry.series.catalog import METRICS, PREFIX, MetricKind, Needs
from telemetry.series.labels import ROUTES
from telemetry.series.registry import Instruments
from tests.unit.costmodel.models import piece
from tests.unit.telemetry.scripted import Scripted

ROOT = Path(__file__).parents[4]
ALL = TelemetrySettings(price_per_hour=1.0, slo="ttft=1s,itl=1s,e2e=1s")


def test_the_page_is_made_of_the_table() -> None:
    assert (ROOT / "docs/metrics.md").read_text("utf-8") == page()


@pytest.mark.parametrize("row", METRICS, ids=lambda row: row.name)
def test_a_row_keeps_the_naming_rules(row: object) -> None:
    metric = next(known for known in METRICS if known is row)
    assert re.fullmatch(r"[a-z][a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.help.endswith(".")
    assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert all(label.size for label in metric.labels)


def test_a_scrape_holds_every_metric_and_no_other() -> None:
    script = Scripted(ALL)
    key = script.receive("a")
    script.step(piece("a", length=8), admitted=(key,))
    script.telemetry.on_http_response("/health", 200)
    names = set(re.findall(r"^# TYPE (\S+)", script.scrape().text, re.MULTILINE))
    assert names == {PREFIX + row.name for row in METRICS}


def test_without_price_and_objectives_their_metrics_are_absent() -> None:
    scrape = Scripted().scrape()
    for row in METRICS:
        if row.needs:
            assert f"{PREFIX}{row.name}" not in scrape.text


def test_a_scrape_is_bounded_whatever_the_traffic() -> None:
    script = Scripted(ALL)
    for n in range(300):
        key = script.receive(f"r{n}", tenant=f"tenant {n}")
        script.telemetry.on_http_response(f"/{n}", 200 + n)
        script.step(piece(f"r{n}", length=8), piece(f"r{n}", start=1), admitted=(key,))
        script.fault(1, {}, kind=f"Error{n}")
    assert len(script.scrape().samples) <= sum(row.max_series for row in METRICS) < 1600


def test_the_routes_that_are_counted_are_those_of_the_api() -> None:
    paths = document(Validator(HttpSettings()), "0")["paths"]
    assert {*paths, OTHER} == set(ROUTES)


def test_a_label_value_outside_its_set_is_our_bug() -> None:
    make = Instruments(CollectorRegistry(), "tiny", frozenset(Needs), {})
    with pytest.raises(AssertionError, match="lost_seconds_total"):
        make.counter("lost_seconds_total", cause="weather")


def test_vllm_names_carry_our_numbers() -> None:
    script = Scripted(TelemetrySettings(metric_aliases="vllm"))
    a, b = script.receive("a"), script.receive("b")
    script.step(piece("a", length=32), piece("b", length=32), admitted=(a, b))
    script.step(piece("a", start=32), piece("b", start=32))
    script.receive("c")
    scrape = script.scrape()
    assert scrape("vllm:num_requests_waiting", model_name="tiny") == 3
    assert scrape("vllm:prompt_tokens_total") == 64
    assert scrape("vllm:generation_tokens_total") == 4
    assert scrape("vllm:time_to_first_token_seconds_count") == 2
    assert scrape("vllm:inter_token_latency_seconds_bucket", le="+Inf") == 2
    assert scrape("vllm:request_success_total", finished_reason="stop") == 0
    assert scrape("vllm:kv_cache_usage_perc") == 0
    assert scrape("vllm:num_requests_running") == 0
    assert scrape.has("vllm:e2e_request_latency_seconds_sum")


def test_vllm_names_are_absent_unless_asked_for() -> None:
    assert "vllm" not in Scripted().scrape().text


def test_no_series_names_a_request() -> None:
    script = Scripted(ALL)
    key = script.receive("cmpl-secret")
    script.step(piece("cmpl-secret", length=8), admitted=(RequestId(key),))
    assert "secret" not in script.scrape().text
