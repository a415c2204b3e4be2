"""Makes Prometheus metrics of the table, and hands out children that are bound once.

The registry is a parameter: nothing here is global but the switch that leaves `_created` out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.samples import Sample

from telemetry.catalog import METRICS, MODEL, PREFIX, Kind, Metric, Needs


class Tally:
    """A counter's exact whole number; Prometheus sees it when a scrape flushes it.

    Adding is one integer addition: no lock, no rounding. `scale` turns it into base units.
    """

    __slots__ = ("_child", "_pending", "_scale")

    def __init__(self, child: Counter, scale: float) -> None:
        self._child, self._scale, self._pending = child, scale, 0

    def add(self, amount: int) -> None:
        self._pending += amount

    def flush(self) -> None:
        if self._pending:
            self._child.inc(self._pending * self._scale)
            self._pending = 0


class Instruments:
    """All metrics of one model in one registry.

    Invariant: a child's label values are in the table's sets; anything else is our bug.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        model: str,
        have: frozenset[Needs],
        buckets: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._model = model
        self._rows = {row.name: row for row in METRICS if row.needs in have | {Needs.NOTHING}}
        self._metrics = {
            name: _make(row, registry, buckets.get(name, row.buckets))
            for name, row in self._rows.items()
        }
        self._tallies: list[Tally] = []

    def tally(self, name: str, scale: float = 1.0, **values: str) -> Tally:
        """Bind a counter that is added to in whole units of `scale`."""
        child = self._child(name, values)
        assert isinstance(child, Counter), name
        self._tallies.append(tally := Tally(child, scale))
        return tally

    def tallies(self, name: str, label: str, scale: float = 1.0) -> dict[str, Tally]:
        """Bind a counter's children for every value of its one label."""
        return {
            value: self.tally(name, scale, **{label: value}) for value in self.values(name, label)
        }

    def flush(self) -> None:
        """Show Prometheus what was tallied so far."""
        for tally in self._tallies:
            tally.flush()

    def gauge(self, name: str, **values: str) -> Gauge:
        child = self._child(name, values)
        assert isinstance(child, Gauge), name
        return child

    def histogram(self, name: str, **values: str) -> Histogram:
        child = self._child(name, values)
        assert isinstance(child, Histogram), name
        return child

    def gauges(self, name: str, label: str) -> dict[str, Gauge]:
        return {value: self.gauge(name, **{label: value}) for value in self.values(name, label)}

    def histograms(self, name: str, label: str) -> dict[str, Histogram]:
        return {value: self.histogram(name, **{label: value}) for value in self.values(name, label)}

    def samples(self, name: str) -> list[Sample]:
        """Read a metric as a scrape would see it."""
        return [sample for family in self._metrics[name].collect() for sample in family.samples]

    def clear(self, name: str) -> None:
        """Drop all children: their labels described an engine that is gone."""
        self._metrics[name].clear()

    def values(self, name: str, label: str) -> tuple[str, ...]:
        """Give the closed set of a label."""
        return next(known.values for known in self._rows[name].labels if known.name == label)

    def _child(self, name: str, values: Mapping[str, str]) -> Counter | Gauge | Histogram:
        for label in self._rows[name].labels:
            value = values[label.name]
            assert not label.values or value in label.values, f"{name}: {label.name}={value}"
        child: Counter | Gauge | Histogram = self._metrics[name].labels(
            **{MODEL: self._model}, **values
        )
        return child


def _make(
    row: Metric, registry: CollectorRegistry, buckets: tuple[float, ...]
) -> Counter | Gauge | Histogram:
    name, names = PREFIX + row.name, (MODEL, *(label.name for label in row.labels))
    match row.kind:
        case Kind.COUNTER:
            return Counter(name, row.help, names, registry=registry)
        case Kind.GAUGE:
            return Gauge(name, row.help, names, registry=registry)
        case Kind.HISTOGRAM:
            return Histogram(name, row.help, names, registry=registry, buckets=buckets)
