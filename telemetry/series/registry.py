"""Holds every series of the table, and shows them to Prometheus at a scrape.

A series is a plain number behind a bound object: a step adds whole numbers, without a lock and
without rounding; `prometheus_client` writes the text, and nothing else. The registry is a
parameter: nothing here is global.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import add
from typing import Any, Final

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from costmodel.split import Floats, Ints
from telemetry.series.catalog import METRICS, MODEL, PREFIX, Metric, MetricKind, Needs

NS: Final = 1e-9  # the scale of a counter of nanoseconds


class Counter:
    """An exact whole number; `scale` turns it into base units at a scrape."""

    __slots__ = ("_scale", "total")

    def __init__(self, scale: float) -> None:
        self._scale, self.total = scale, 0

    def inc(self, amount: int) -> None:
        self.total += amount

    @property
    def value(self) -> float:
        return self.total * self._scale


class Gauge:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    """Counts observations by the first bound that they do not exceed."""

    __slots__ = ("_bounds", "_counts", "_edges", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0
        self._edges = np.array(bounds)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def observe_all(self, values: Floats | Ints) -> None:
        """Observe a column at once."""
        if not len(values):
            return
        places = np.searchsorted(self._edges, values)
        more = np.bincount(places, minlength=len(self._counts)).tolist()
        self._counts = list(map(add, self._counts, more))
        self._sum += float(values.sum())

    def show(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Write what was observed, each bucket with all below it."""
        names = (*map(floatToGoString, self._bounds), "+Inf")
        counts = accumulate(self._counts)
        family.add_metric(labels, list(zip(names, counts, strict=True)), self._sum)


class Instruments(Collector):
    """All metrics of one model in one registry.

    Invariant: a child's label values are in the table's sets; another value is our bug.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        model: str,
        have: frozenset[Needs],
        buckets: Mapping[str, tuple[float, ...]],
    ) -> None:
        self._model, self._buckets = model, buckets
        self._rows = {row.name: row for row in METRICS if row.needs in have | {Needs.NOTHING}}
        self._series: dict[str, dict[tuple[str, ...], Counter | Gauge | Histogram]] = {
            name: {} for name in self._rows
        }
        registry.register(self)

    def counter(self, name: str, scale: float = 1.0, **values: str) -> Counter:
        """Bind a counter that is added to in whole units of `scale`."""
        child = self._child(name, values, Counter(scale))
        assert isinstance(child, Counter), name
        return child

    def counters(self, name: str, label: str, scale: float = 1.0) -> dict[str, Counter]:
        """Bind a counter's children for every value of its one label."""
        return {
            value: self.counter(name, scale, **{label: value}) for value in self.values(name, label)
        }

    def gauge(self, name: str, **values: str) -> Gauge:
        child = self._child(name, values, Gauge())
        assert isinstance(child, Gauge), name
        return child

    def histogram(self, name: str, **values: str) -> Histogram:
        bounds = self._buckets.get(name, self._rows[name].buckets)
        child = self._child(name, values, Histogram(bounds))
        assert isinstance(child, Histogram), name
        return child

    def gauges(self, name: str, label: str) -> dict[str, Gauge]:
        return {value: self.gauge(name, **{label: value}) for value in self.values(name, label)}

    def histograms(self, name: str, label: str) -> dict[str, Histogram]:
        return {value: self.histogram(name, **{label: value}) for value in self.values(name, label)}

    def collect(self) -> Iterator[Family]:
        """Give every metric as it is now."""
        return map(self._family, self._rows.values())

    def samples(self, name: str) -> list[Sample]:
        """Read a metric as a scrape would see it."""
        samples: list[Sample] = self._family(self._rows[name]).samples
        return samples

    def clear(self, name: str) -> None:
        """Drop all children: their labels described an engine that is gone."""
        self._series[name].clear()

    def values(self, name: str, label: str) -> tuple[str, ...]:
        """Give the closed set of a label."""
        return next(known.values for known in self._rows[name].labels if known.name == label)

    def _child(
        self, name: str, values: Mapping[str, str], fresh: Counter | Gauge | Histogram
    ) -> Counter | Gauge | Histogram:
        """Find the series of these label values, or begin it."""
        labels = self._rows[name].labels
        assert values.keys() == {label.name for label in labels}, f"{name}: {values}"
        for label in labels:
            value = values[label.name]
            assert not label.values or value in label.values, f"{name}: {label.name}={value}"
        key = tuple(values[label.name] for label in labels)
        return self._series[name].setdefault(key, fresh)

    def _family(self, row: Metric) -> Family:
        name, names = PREFIX + row.name, (MODEL, *(label.name for label in row.labels))
        family: Any = _FAMILIES[row.kind](name, row.help, labels=names)
        for values, child in self._series[row.name].items():
            if isinstance(child, Histogram):
                child.show(family, (self._model, *values))
            else:
                family.add_metric((self._model, *values), child.value)
        shown: Family = family
        return shown


_FAMILIES: Final[Mapping[MetricKind, Any]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}
