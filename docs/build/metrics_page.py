"""Writes `docs/metrics.md` from its template and the table: `make pages`."""

from __future__ import annotations

from docs.build.template import filled
from telemetry.series.catalog import METRICS, MODEL, PREFIX, Metric, MetricKind
from telemetry.series.labels import Label


def page() -> str:
    """Give the whole page as text."""
    return filled(
        "metrics",
        {
            "prefix": PREFIX,
            "model": MODEL,
            "rows": "\n".join(map(_row, METRICS)),
            "bound": f"{sum(row.max_series for row in METRICS):,}",
            "buckets": "\n".join(
                _buckets(row) for row in METRICS if row.kind is MetricKind.HISTOGRAM
            ),
        },
    )


def _row(row: Metric) -> str:
    needs = f" Only with `{row.needs}`." if row.needs else ""
    names = "<br>".join(_label(label) for label in row.labels)
    return f"| `{row.name}` | {row.kind} | {names} | {row.help}{needs} |"


def _label(label: Label) -> str:
    return f"`{label.name}`: {', '.join(label.values) or f'at most {label.limit}'}"


def _buckets(row: Metric) -> str:
    return f"* `{row.name}`: {', '.join(f'{bound:g}' for bound in row.buckets)}"


if __name__ == "__main__":
    print(page(), end="")
