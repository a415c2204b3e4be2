"""`report.html`: one file that opens without a network. Draws what `run.json` and records hold."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from loadgen.measure import answered, samples_of
from loadgen.observe import Record
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
    text: str, runs: Iterable[dict[str, Any]], predicted: Sequence[dict[str, float]]
) -> str:
    """Lay out a sweep: its table, then measured and predicted latency over throughput."""
    return _page("loadgen sweep", text, [latency_throughput(runs, predicted)])


def _page(title: str, text: str, figures: Sequence[go.Figure]) -> str:
    parts = [f"<pre>{html.escape(text)}</pre>"]
    for n, figure in enumerate(figures):
        parts.append(pio.to_html(figure, full_html=False, include_plotlyjs=n == 0))
    return PAGE.format(title=title, body="\n".join(parts))


def _figure(title: str, x: str, y: str) -> go.Figure:
    layout = go.Layout(title=title, template="plotly_white", height=420, colorway=COLOURS)
    return go.Figure(layout=layout).update_xaxes(title=x).update_yaxes(title=y)


def _line(figure: go.Figure, name: str, x: Iterable[float], y: Iterable[float], **how: Any) -> None:
    how = {"mode": "lines", "line": {"shape": "hv"}, **how}
    figure.add_scatter(name=name, x=list(x), y=list(y), **how)


def over_time(records: Sequence[Record]) -> go.Figure:
    figure = _figure("Offered, sent, completed", "seconds", "requests")
    series = {
        "offered": [record.intended_s for record in records],
        "sent": [record.sent_s for record in records],
        "completed": [record.end_s for record in answered(records)],
    }
    for name, times in series.items():
        _line(figure, name, sorted(times), range(1, len(times) + 1))
    return figure


def ttft_over_time(records: Sequence[Record]) -> go.Figure:
    figure = _figure("Time to first token", "intended start, seconds", "ms")
    starts = [record.intended_s for record in answered(records)]
    for metric in ("ttft", "ttft_send"):
        values = (value * 1e3 for value in samples_of(metric, records))
        _line(figure, metric, starts, values, mode="markers")
    return figure


def ecdfs(records: Sequence[Record]) -> go.Figure:
    """Draw distributions with 95 % bands.

    Source: Dvoretzky, Kiefer and Wolfowitz; the constant is Massart's (1990).
    """
    figure = _figure("Distributions, with 95 % bands", "ms", "share of answered requests")
    for metric, colour in zip(("ttft", "e2e", "tpot"), COLOURS, strict=False):
        values = sorted(value * 1e3 for value in samples_of(metric, records))
        n = len(values)
        reach = math.sqrt(math.log(2 / 0.05) / (2 * n)) if n else 0.0
        shares = [(k + 1) / n for k in range(n)]
        step = {"shape": "hv", "color": colour}
        edge = {"showlegend": False, "hoverinfo": "skip", "line": {**step, "width": 0}}
        band = {"fill": "tonexty", "fillcolor": f"{colour}33"}
        _line(figure, f"{metric} upper", values, (min(s + reach, 1) for s in shares), **edge)
        _line(figure, f"{metric} lower", values, (max(s - reach, 0) for s in shares), **edge | band)
        _line(figure, metric, values, shares, line=step)
    return figure


def bill_bars(summary: dict[str, Any]) -> go.Figure:
    """Draw each way of counting the tokens; bars of one group must be equal."""
    account = summary["bill"]
    usd = account.get("usd_per_million_tokens")
    price = "" if usd is None else f" (USD {usd:.3g} per million)"
    figure = _figure(f"The bill: tokens{price}, counted by each side", "", "tokens")
    for way in ("client", "usage", "cost", "metrics"):
        counts = {name: ways.get(way) for name, ways in account["tokens"].items()}
        if any(count is not None for count in counts.values()):
            figure.add_bar(name=way, x=list(counts), y=list(counts.values()))
    return figure


def latency_throughput(
    runs: Iterable[dict[str, Any]], predicted: Sequence[dict[str, float]]
) -> go.Figure:
    title = "Latency over throughput, and the cost model's floor"
    figure = _figure(title, "output tokens/s", "ITL, ms")
    measured = [(run["rates"]["output_tokens_per_s"], run["metrics"]["itl"]) for run in runs]
    for name in ("p50", "p90"):
        shown = [(rate, itl[name]["value"]) for rate, itl in measured if itl[name]]
        x, y = [rate for rate, _ in shown], [value for _, value in shown]
        _line(figure, f"ITL {name}", x, y, mode="lines+markers", line={})
    if predicted:
        rates = [point["output_tokens_per_s"] for point in predicted]
        floors = [point["itl_ms"] for point in predicted]
        _line(figure, "predicted floor", rates, floors, line={"dash": "dash"})
    return figure
