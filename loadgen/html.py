"""`report.html`: one file that opens without a network. Draws what `run.json` and records hold."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from loadgen.measure import PER_REQUEST
from loadgen.observe import OK, Record
from loadgen.table import render

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; color: #222; }}
pre {{ background: #f6f6f4; padding: 1em; overflow-x: auto; font-size: 12.5px; }}
</style></head>
<body><h1>{title}</h1>
{body}
</body></html>
"""
COLOURS = ("#1f5fa8", "#c8553d", "#3a7d44", "#8a6fae")


def run_page(summary: dict[str, Any], records: Sequence[Record]) -> str:
    """Lay out one run: the table as text, then the plots."""
    figures = [over_time(records), ttft_over_time(records), ecdfs(records), bill_bars(summary)]
    return _page("loadgen", render(summary), figures)


def sweep_page(
    text: str, points: Sequence[dict[str, Any]], predicted: Sequence[dict[str, float]]
) -> str:
    """Lay out a sweep: its table, then measured and predicted latency over throughput."""
    return _page("loadgen sweep", text, [latency_throughput(points, predicted)])


def _page(title: str, text: str, figures: Sequence[go.Figure]) -> str:
    parts = [f"<pre>{html.escape(text)}</pre>"]
    for n, figure in enumerate(figures):
        parts.append(pio.to_html(figure, full_html=False, include_plotlyjs=n == 0))
    return PAGE.format(title=title, body="\n".join(parts))


def _figure(title: str, x: str, y: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        title=title, xaxis_title=x, yaxis_title=y, template="plotly_white", height=420
    )
    return figure


def _line(figure: go.Figure, name: str, x: Any, y: Any, **how: Any) -> None:
    figure.add_trace(go.Scatter(name=name, x=list(x), y=list(y), mode="lines", **how))


def over_time(records: Sequence[Record]) -> go.Figure:
    figure = _figure("Offered, sent, completed", "seconds", "requests")
    series = {
        "offered": sorted(record.intended_s for record in records),
        "sent": sorted(record.sent_s for record in records),
        "completed": sorted(record.end_s for record in records if record.outcome == OK),
    }
    for (name, times), colour in zip(series.items(), COLOURS, strict=False):
        shape = {"shape": "hv", "color": colour}
        _line(figure, name, times, range(1, len(times) + 1), line=shape)
    return figure


def ttft_over_time(records: Sequence[Record]) -> go.Figure:
    figure = _figure("Time to first token", "intended start, seconds", "ms")
    answered = [record for record in records if record.outcome == OK]
    for metric, colour in zip(("ttft", "ttft_send"), COLOURS, strict=False):
        values = [(PER_REQUEST[metric](record) or 0.0) * 1e3 for record in answered]
        starts = [record.intended_s for record in answered]
        dots = go.Scatter(name=metric, x=starts, y=values, mode="markers", marker={"color": colour})
        figure.add_trace(dots)
    return figure


def ecdfs(records: Sequence[Record]) -> go.Figure:
    """Draw distributions with 95 % bands.

    Source: Dvoretzky, Kiefer and Wolfowitz; the constant is Massart's (1990).
    """
    figure = _figure("Distributions, with 95 % bands", "ms", "share of answered requests")
    answered = [record for record in records if record.outcome == OK]
    for metric, colour in zip(("ttft", "e2e", "tpot"), COLOURS, strict=False):
        known = (PER_REQUEST[metric](record) for record in answered)
        values = sorted(value * 1e3 for value in known if value is not None)
        n = len(values)
        if not n:
            continue
        reach = math.sqrt(math.log(2 / 0.05) / (2 * n))
        shares = [(k + 1) / n for k in range(n)]
        upper, lower = [min(s + reach, 1) for s in shares], [max(s - reach, 0) for s in shares]
        edge = {"shape": "hv", "color": colour, "width": 0}
        quiet = {"showlegend": False, "hoverinfo": "skip", "line": edge}
        _line(figure, f"{metric} upper", values, upper, **quiet)
        _line(
            figure,
            f"{metric} lower",
            values,
            lower,
            fill="tonexty",
            fillcolor=f"{colour}33",
            **quiet,
        )
        _line(figure, metric, values, shares, line={"shape": "hv", "color": colour})
    return figure


def bill_bars(summary: dict[str, Any]) -> go.Figure:
    """Draw each way of counting the tokens; bars of one group must be equal."""
    figure = _figure("The bill: tokens, counted by each side", "", "tokens")
    rows = summary["bill"]["tokens"]
    figure.update_xaxes(categoryorder="array", categoryarray=list(rows))
    for way, colour in zip(("client", "usage", "cost", "metrics"), COLOURS, strict=True):
        counts = {name: ways[way] for name, ways in rows.items() if ways.get(way) is not None}
        if counts:
            bars = go.Bar(
                name=way, x=list(counts), y=list(counts.values()), marker={"color": colour}
            )
            figure.add_trace(bars)
    per_million = summary["bill"].get("usd_per_million_tokens")
    if per_million is not None:
        figure.update_layout(title=f"The bill: USD {per_million:.3g} per million tokens")
    return figure


def latency_throughput(
    points: Sequence[dict[str, Any]], predicted: Sequence[dict[str, float]]
) -> go.Figure:
    figure = _figure(
        "Latency over throughput, and the cost model's floor", "output tokens/s", "ITL, ms"
    )
    for name, colour in zip(("p50", "p90"), COLOURS, strict=False):
        shown = [
            (run["rates"]["output_tokens_per_s"], run["metrics"]["itl"][name]["value"])
            for run in points
            if run["metrics"]["itl"][name]
        ]
        x, y = zip(*shown, strict=True) if shown else ((), ())
        figure.add_trace(
            go.Scatter(name=f"ITL {name}", x=x, y=y, mode="lines+markers", line={"color": colour})
        )
    if predicted:
        rates = [point["output_tokens_per_s"] for point in predicted]
        floors = [point["itl_ms"] for point in predicted]
        _line(figure, "predicted floor", rates, floors, line={"dash": "dash", "color": COLOURS[2]})
    return figure
