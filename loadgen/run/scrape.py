"""Readings of a server's /metrics, and the differences between two of them. It asks no server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Scrape:
    """One reading of /metrics. It is parsed when it is first asked for a number."""

    text: str
    t_s: float = 0.0

    @cached_property
    def _samples(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, labels, value in _SAMPLE.findall(self.text):
            samples.setdefault(name, []).append((dict(_LABEL.findall(labels)), float(value)))
        return samples

    def total(self, *names: str, **labels: str) -> float | None:
        """Sum the first name's samples that carry `labels`, or the next one's; None without any."""
        for name in names:
            samples = self._samples.get(name, ())
            if found := [value for own, value in samples if labels.items() <= own.items()]:
                return sum(found)
        return None

    def values(self, label: str, name: str) -> set[str]:
        """Name the values that one label has."""
        return {own[label] for own, _ in self._samples.get(name, ()) if label in own}


@dataclass(frozen=True, slots=True)
class ScrapeWindow:
    """Differences between two readings."""

    first: Scrape
    last: Scrape

    def grew(self, name: str, **labels: str) -> float | None:
        """Give a counter's increase; a label that the first reading lacks began at zero."""
        after = self.last.total(name, **labels)
        return None if after is None else after - (self.first.total(name, **labels) or 0.0)

    def mean(self, histogram: str, *kinds: str) -> float | None:
        """Give a histogram's mean over the window; with `kinds`, over those of its series."""
        each = [{"kind": kind} for kind in kinds] or [{}]
        whole, count = (
            sum(self.grew(f"{histogram}_{part}", **labels) or 0.0 for labels in each)
            for part in ("sum", "count")
        )
        return divide(whole, count)


def divide(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None
