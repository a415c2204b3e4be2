"""Read a dashboard's panels and ask Prometheus what they would show. It draws nothing."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRAPE_INTERVAL_S = 5  # of ../prometheus.yml
MAX_POINTS = 400  # about the pixels of a panel that stand for a point each

Labels = dict[str, str]
Points = list[tuple[float, float]]  # unix seconds, value


@dataclass(frozen=True, slots=True)
class PanelTarget:
    """One query of a panel, its variables replaced."""

    promql: str
    legend: str


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time, as a dashboard's time picker gives it."""

    start_s: float
    end_s: float

    @property
    def step_s(self) -> int:
        """Space the points as Grafana's `$__interval` does."""
        return max(SCRAPE_INTERVAL_S, round((self.end_s - self.start_s) / MAX_POINTS))

    @property
    def rate_interval_s(self) -> int:
        """Give Grafana's `$__rate_interval`.

        Source: Grafana's documentation of the Prometheus data source, "$__rate_interval".
        """
        return max(self.step_s + SCRAPE_INTERVAL_S, 4 * SCRAPE_INTERVAL_S)


def panels(dashboard: Path) -> list[dict[str, Any]]:
    return list(json.loads(dashboard.read_text())["panels"])


def targets(panel: dict[str, Any], window: Window) -> list[PanelTarget]:
    """List a panel's queries, of all models, with `$__rate_interval` filled in."""
    variables = {"$__rate_interval": f"{window.rate_interval_s}s", "$model": ".*"}
    found = []
    for target in panel["targets"]:
        promql = target["expr"]
        for name, value in variables.items():
            promql = promql.replace(name, value)
        found.append(PanelTarget(promql, target["legendFormat"]))
    return found


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus, asked over its HTTP API."""

    url: str

    def query(self, promql: str) -> list[tuple[Labels, float]]:
        """Evaluate at this moment."""
        result = self.get("query", query=promql)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def query_range(self, promql: str, window: Window) -> list[tuple[Labels, Points]]:
        """Evaluate over a window, a point every `step_s`."""
        times = {"start": window.start_s, "end": window.end_s, "step": window.step_s}
        result = self.get("query_range", query=promql, **times)["result"]
        return [
            (series["metric"], [(float(t), float(v)) for t, v in series["values"]])
            for series in result
        ]

    def get(self, endpoint: str, **parameters: object) -> Any:
        """Call one endpoint of the API.

        Raises:
            OSError: it does not answer, or not with a 200.
        """
        words = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{endpoint}?{words}", timeout=30) as answer:
            return json.load(answer)["data"]
