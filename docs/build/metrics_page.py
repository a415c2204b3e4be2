"""Writes docs/metrics.md from its table: `python -m docs.build.metrics_page > docs/metrics.md`."""

from __future__ import annotations

from telemetry.series.catalog import METRICS, MODEL, PREFIX, Metric, MetricKind
from telemetry.series.labels import Label

_HEAD = f"""# Metrics

Made from `telemetry/series/catalog.py:METRICS` by `python -m docs.build.metrics_page`; a test
keeps the two equal. Every name starts with `{PREFIX}`, every series carries the label
`{MODEL}`. Units are base units. A series that the code cannot make non-zero is not exported.
With `--metric-aliases vllm` the names that vLLM's dashboards know come as well
(`telemetry/series/aliases.py:VllmAliases`).

| name | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Give the whole page as text."""
    bound = sum(row.max_series for row in METRICS)
    buckets = "\n".join(_buckets(row) for row in METRICS if row.kind is MetricKind.HISTOGRAM)
    return (
        _HEAD
        + "".join(_row(row) for row in METRICS)
        + f"\nA scrape has at most {bound:,} lines of series, whatever the traffic.\n"
        + f"\n## Buckets\n\n`--metric-buckets` sets others.\n\n{buckets}\n"
    )


def _row(row: Metric) -> str:
    needs = f" Only with `{row.needs}`." if row.needs else ""
    names = "<br>".join(_label(label) for label in row.labels)
    return f"| `{row.name}` | {row.kind} | {names} | {row.help}{needs} |\n"


def _label(label: Label) -> str:
    return f"`{label.name}`: {', '.join(label.values) or f'at most {label.limit}'}"


def _buckets(row: Metric) -> str:
    return f"* `{row.name}`: {', '.join(f'{bound:g}' for bound in row.buckets)}"


if __name__ == "__main__":
    print(page(), end="")
