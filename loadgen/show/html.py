"""`report.html`: one file that opens without a network. Draws what `run.json` and records hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from loadgen.report.join import FloorPoint
from loadgen.report.measure import PER_REQUEST, answered, pooled
from loadgen.report.summary import Summary
from loadgen.run.record import Record
from loadgen.show.page import COLOURS, Page, bars, figure, line
from loadgen.show.table import render_run


def run_page(summary: Summary, records: Sequence[Record]) -> Page:
    """Lay out one run: the table as text, then the plots."""
    plots = (over_time(records), ttft_over_time(records), ecdfs(records), bill_bars(summary))
    return Page("loadgen", render_run(summary), *plots)


def sweep_page(text: str, runs: Sequence[Summary], predicted: Sequence[FloorPoint]) -> Page:
    """Lay out a sweep: its table, then measured and predicted latency over throughput."""
    return Page("loadgen sweep", text, latency_throughput(runs, predicted))


def over_time(records: Sequence[Record]) -> go.Figure:
    drawn = figure("Offered, sent, completed", "seconds", "requests")
    series = {
        "offered": [record.intended_s for record in records],
        "sent": [record.sent_s for record in records],
        "completed": [record.end_s for record in answered(records)],
    }
    for name, times in series.items():
        line(drawn, name, sorted(times), range(1, len(times) + 1), line={"shape": "hv"})
    return drawn


def ttft_over_time(records: Sequence[Record]) -> go.Figure:
    drawn = figure("Time to first token", "intended start, seconds", "ms")
    good = answered(records)
    for metric in ("ttft", "ttft_send"):
        values_ms = ((PER_REQUEST[metric](record) or 0.0) * 1e3 for record in good)
        line(drawn, metric, (record.intended_s for record in good), values_ms, mode="markers")
    return drawn


def ecdfs(records: Sequence[Record]) -> go.Figure:
    """Draw distributions with 95 % bands.

    Source: Dvoretzky, Kiefer and Wolfowitz; the constant is Massart's (1990).
    """
    drawn = figure("Distributions, with 95 % bands", "ms", "share of answered requests")
    for metric, colour in zip(("ttft", "e2e", "tpot"), COLOURS, strict=False):
        values = [value * 1e3 for value, _ in pooled(metric, records)]
        n = len(values)
        reach = math.sqrt(math.log(2 / 0.05) / (2 * n)) if n else 0.0
        shares = [(k + 1) / n for k in range(n)]
        step = {"shape": "hv", "color": colour}
        edge = {"showlegend": False, "hoverinfo": "skip", "line": {**step, "width": 0}}
        band = {"fill": "tonexty", "fillcolor": f"{colour}33"}
        line(drawn, f"{metric} upper", values, (min(s + reach, 1) for s in shares), **edge)
        line(drawn, f"{metric} lower", values, (max(s - reach, 0) for s in shares), **edge | band)
        line(drawn, metric, values, shares, line=step)
    return drawn


def bill_bars(summary: Summary) -> go.Figure:
    """Draw each way of counting the tokens; bars of one group must be equal."""
    account = summary.bill
    usd = account.price and account.price.usd_per_million_tokens
    price = "" if usd is None else f" (USD {usd:.3g} per million)"
    drawn = figure(f"The bill: tokens{price}, counted by each side", "", "tokens")
    for way in ("client", "usage", "cost", "metrics"):
        counts = {name: ways.get(way) for name, ways in account.tokens.items()}
        if any(count is not None for count in counts.values()):
            bars(drawn, way, counts, counts.values())
    return drawn


def latency_throughput(runs: Sequence[Summary], predicted: Sequence[FloorPoint]) -> go.Figure:
    title = "Latency over throughput, and the cost model's floor"
    drawn = figure(title, "output tokens/s", "ITL, ms")
    for name in ("p50", "p90"):
        found = [(run.rates, run.metrics["itl"].percentiles()[name]) for run in runs]
        known = [(rates.output_tokens_per_s, itl.value) for rates, itl in found if itl]
        rates, latencies = [rate for rate, _ in known], [itl_ms for _, itl_ms in known]
        line(drawn, f"ITL {name}", rates, latencies, mode="lines+markers")
    if predicted:
        rates = [point.output_tokens_per_s for point in predicted]
        floors = [point.itl_ms for point in predicted]
        line(drawn, "predicted floor", rates, floors, line={"dash": "dash"})
    return drawn
