"""Compose the dashboards' PromQL from the metric names of docs/metrics.md; it sends no query.

Every selector is narrowed to the dashboard's `$model`; a label's value is a regular expression.
"""

from __future__ import annotations

PREFIX = "floorline_"
WINDOW = "[$__rate_interval]"


def select(name: str, **labels: str) -> str:
    """Write a selector: `select("kv_blocks", state="free")`."""
    matchers = "".join(f', {label}=~"{value}"' for label, value in labels.items())
    return f'{PREFIX}{name}{{model=~"$model"{matchers}}}'


def now(gauge: str, *by: str, **labels: str) -> str:
    """Sum a gauge over everything but the labels `by`."""
    return f"sum{_by(by)} ({select(gauge, **labels)})"


def rate(counter: str, *by: str, **labels: str) -> str:
    """Give a counter's growth per second."""
    return f"sum{_by(by)} (rate({select(counter, **labels)}{WINDOW}))"


def mean(histogram: str, *by: str, **labels: str) -> str:
    """Give the exact mean of a histogram's observations: no bucket is read."""
    total = rate(f"{histogram}_sum", *by, **labels)
    return f"{total} / {rate(f'{histogram}_count', *by, **labels)}"


def quantile(q: float, histogram: str, **labels: str) -> str:
    """Interpolate a quantile inside the histogram's buckets."""
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', 'le', **labels)})"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
