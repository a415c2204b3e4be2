"""Compose the dashboards' PromQL from the metric names of docs/metrics.md; it sends no query.

A number of several replicas is a sum, or a sum over a sum.

Every selector is narrowed to the dashboard's `$model`; a label's value is a regular expression.
"""

from __future__ import annotations

PREFIX = "floorline_"
WINDOW = "[$__rate_interval]"
REPLICA = ("instance", "model")


def select(name: str, **labels: str) -> str:
    """Write a selector: `select("kv_blocks", state="free")`."""
    matchers = "".join(f', {label}=~"{value}"' for label, value in labels.items())
    return f'{PREFIX}{name}{{model=~"$model"{matchers}}}'


def now(gauge: str, *by: str, **labels: str) -> str:
    """Sum a gauge over everything but the labels `by`; NaN of a replica is left out."""
    return f"sum{_by(by)} ({select(gauge, **labels)} >= 0)"


def ratio(top: str, bottom: str) -> str:
    """Divide, where there is something to divide by: an idle window has no value, not NaN."""
    return f"{top} / ({bottom} > 0)"


def share(tops: str, bottom: str) -> str:
    """Divide several series by one number."""
    return f"{tops} / on () group_left () ({bottom} > 0)"


def busy_mean(gauge: str) -> str:
    """Average a ratio of the busy time over the replicas, each by how busy it was."""
    busy = rate("step_duration_seconds_sum", *REPLICA)
    own = f"max by ({', '.join(REPLICA)}) ({select(gauge)})"
    return ratio(f"sum ({own} * {busy})", f"sum ({busy})")


def rate(counter: str, *by: str, **labels: str) -> str:
    """Give a counter's growth per second."""
    return f"sum{_by(by)} (rate({select(counter, **labels)}{WINDOW}))"


def mean(histogram: str, *by: str, **labels: str) -> str:
    """Give the exact mean of a histogram's observations: no bucket is read."""
    total = rate(f"{histogram}_sum", *by, **labels)
    return ratio(total, rate(f"{histogram}_count", *by, **labels))


def quantile(q: float, histogram: str, **labels: str) -> str:
    """Interpolate a quantile inside the histogram's buckets; none without observations."""
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', 'le', **labels)}) >= 0"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
