"""Exports our numbers under vLLM's names too, for dashboards and autoscalers made for vLLM.

Nothing is counted twice: every alias is read from our own metric at the scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from telemetry.series.registry import Instruments

_LABELS: Final = ("model_name",)
_GAUGES: Final = {
    "vllm:num_requests_running": "requests_running",
    "vllm:num_requests_waiting": "requests_waiting",
}
_TOKENS: Final = {"vllm:prompt_tokens": "prompt", "vllm:generation_tokens": "generated"}
_HISTOGRAMS: Final = {
    "vllm:time_to_first_token_seconds": "time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds": "inter_token_latency_seconds",
    "vllm:e2e_request_latency_seconds": "request_duration_seconds",
}
_REASONS: Final = {"stop": "stop", "length": "length", "abort": "aborted"}


class VllmAliases(Collector):
    """Sums our series over the labels that vLLM does not have."""

    def __init__(self, registry: CollectorRegistry, source: Instruments, model: str) -> None:
        self._source, self._model = source, [model]
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        for alias, name in _GAUGES.items():
            gauge = GaugeMetricFamily(alias, f"Sum of floorline_{name}.", labels=_LABELS)
            gauge.add_metric(self._model, sum(s.value for s in self._source.samples(name)))
            yield gauge
        yield self._kv_usage()
        tokens = self._by_label("tokens_total", "kind")
        for alias, kind in _TOKENS.items():
            counter = CounterMetricFamily(alias, f"floorline_tokens_total, {kind}.", labels=_LABELS)
            counter.add_metric(self._model, tokens[kind])
            yield counter
        yield self._successes()
        for alias, name in _HISTOGRAMS.items():
            yield self._histogram(alias, name)

    def _kv_usage(self) -> GaugeMetricFamily:
        blocks = self._by_label("kv_blocks", "state")
        usage = blocks["referenced"] / (blocks.total() or 1.0)
        family = GaugeMetricFamily(
            "vllm:kv_cache_usage_perc", "Referenced / all blocks.", labels=_LABELS
        )
        family.add_metric(self._model, usage)
        return family

    def _successes(self) -> CounterMetricFamily:
        outcomes = self._by_label("requests_total", "outcome")
        family = CounterMetricFamily(
            "vllm:request_success",
            "floorline_requests_total.",
            labels=(*_LABELS, "finished_reason"),
        )
        for reason, outcome in _REASONS.items():
            family.add_metric([*self._model, reason], outcomes[outcome])
        return family

    def _histogram(self, alias: str, name: str) -> HistogramMetricFamily:
        buckets: Counter[str] = Counter()
        total = 0.0
        for sample in self._source.samples(name):
            if sample.name.endswith("_bucket"):
                buckets[sample.labels["le"]] += sample.value  # type: ignore[assignment]
            elif sample.name.endswith("_sum"):
                total += sample.value
        family = HistogramMetricFamily(alias, f"Sum of floorline_{name}.", labels=_LABELS)
        family.add_metric(self._model, buckets=list(buckets.items()), sum_value=total)
        return family

    def _by_label(self, name: str, label: str) -> Counter[str]:
        sums: Counter[str] = Counter()
        for sample in self._source.samples(name):
            sums[sample.labels[label]] += sample.value  # type: ignore[assignment]
        return sums
