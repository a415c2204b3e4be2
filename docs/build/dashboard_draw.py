"""Draw one panel as HTML the way its JSON says: a number, lines, a stack, a heat map.

It asks Prometheus nothing; the series come in.
"""

from __future__ import annotations

import datetime
import html
import itertools
import math
import re
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from deploy.grafana.queries import Labels, Points, Window

PALETTE = ("#73BF69", "#5794F2", "#FF9830", "#B877D9", "#FADE2A", "#5AC8C8", "#F2495C", "#7B8087")
GRID, TEXT, PANEL = "#2A2D34", "#CCCCDC", "#181B1F"
UNITS = {  # Grafana's unit → d3 format, prefix, suffix
    "percentunit": (".2~p", "", ""),
    "s": (".2~s", "", "s"),
    "Bps": (".2~s", "", "B/s"),
    "reqps": (".2~f", "", " req/s"),
    "currencyUSD": (".3~f", "$", ""),
    "short": (".3~s", "", ""),
    "none": (".0f", "", ""),
}
SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    labels: Labels
    points: Points


def name_of(legend: str, labels: Labels) -> str:
    """Fill a legend's {{label}} places."""
    return re.sub(r"{{\s*(\w+)\s*}}", lambda place: labels.get(place[1], ""), legend)


def draw(panel: dict[str, Any], series: list[Series], window: Window, height: int) -> str:
    """Give a panel's inside as HTML, `height` pixels high, its time axis `window` long."""
    if all(math.isnan(value) for one in series for _, value in one.points):
        return '<div class="number">No data</div>'
    if panel["type"] == "stat":
        return _number(panel, series, height)
    if panel["type"] == "heatmap":
        return _html(_heat(panel, series), window, height)
    legend_height = 22 * (1 + sum(len(s.name) + 5 for s in series) // 105)
    figure, swatches = _graph(panel, series)
    return _html(figure, window, height - legend_height) + _legend(series, swatches)


def _graph(panel: dict[str, Any], series: list[Series]) -> tuple[go.Figure, list[str]]:
    figure, defaults = _figure(), panel["fieldConfig"]["defaults"]
    swatches, palette = [], itertools.cycle(PALETTE)
    for one in series:
        custom = {f"custom.{key}": value for key, value in defaults["custom"].items()}
        custom |= _overrides(panel, one.name)
        color = custom.get("color", {}).get("fixedColor") or next(palette)
        stacked = custom.get("custom.stacking", {}).get("mode") == "normal"
        dashed = "custom.lineStyle" in custom
        swatches.append(f"border-top: 3px {'dashed' if dashed else 'solid'} {color}")
        figure.add_scatter(
            x=[_moment(t) for t, _ in one.points],
            y=[None if math.isnan(v) else v for _, v in one.points],
            mode="lines",
            line={"color": color, "width": 2 if dashed or not stacked else 1,
                  "dash": "6px,4px" if dashed else "solid"},
            stackgroup="all" if stacked else None,
            fillcolor=_faded(color) if stacked else None,
        )  # fmt: skip
    pattern, prefix, suffix = UNITS[defaults["unit"]]
    axis = {"tickformat": pattern, "tickprefix": prefix, "ticksuffix": suffix, "nticks": 6}
    if defaults["custom"].get("scaleDistribution", {}).get("type") == "log":
        axis |= _log_axis([v for one in series for _, v in one.points if v > 0], defaults["unit"])
    else:
        axis["rangemode"] = "tozero"
    figure.update_yaxes(**axis)
    return figure, swatches


def _overrides(panel: dict[str, Any], name: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for override in panel["fieldConfig"]["overrides"]:
        pattern, kind = override["matcher"]["options"], override["matcher"]["id"]
        hit = re.fullmatch(pattern, name) if kind == "byRegexp" else pattern == name
        if hit:
            properties |= {item["id"]: item["value"] for item in override["properties"]}
    return properties


def _log_axis(values: list[float], unit: str) -> dict[str, Any]:
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1
    decades = range(math.floor(low), math.ceil(high) + 1)
    ticks = [m * 10.0**e for e in decades for m in (1, 2, 5) if low <= math.log10(m) + e <= high]
    sparse = ticks if len(ticks) <= 8 else [t for t in ticks if f"{t:e}".startswith("1")]
    texts = [_short(tick, unit, 0) for tick in sparse]
    return {"type": "log", "range": [low, high], "tickvals": sparse, "ticktext": texts}


def _heat(panel: dict[str, Any], series: list[Series]) -> go.Figure:
    """Turn cumulative buckets into counts per bucket, one row a bucket."""
    rows = sorted(series, key=lambda one: float(one.labels["le"]))
    moments = sorted({t for one in rows for t, _ in one.points})
    below = dict.fromkeys(moments, 0.0)
    cells = []
    for one in rows:
        here = dict(one.points)
        cells.append([here.get(t, 0.0) - below[t] or None for t in moments])
        below |= here
    figure = _figure()
    bounds = [one.labels["le"] for one in rows]
    percent = panel["options"]["yAxis"]["unit"] == "percentunit"
    figure.add_heatmap(
        x=[_moment(t) for t in moments],
        y=[f"{float(b):.0%}" if percent and math.isfinite(float(b)) else b for b in bounds],
        z=cells, colorscale="Viridis", showscale=False, xgap=1, ygap=1,
    )  # fmt: skip
    figure.update_yaxes(type="category", nticks=10)
    return figure


def _number(panel: dict[str, Any], series: list[Series], height: int) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    points = [(t, v) for one in series for t, v in one.points if not math.isnan(v)]
    latest = points[-1][1]
    color = [
        step["color"] for step in defaults["thresholds"]["steps"]
        if step["value"] is None or latest >= step["value"]
    ][-1]  # fmt: skip
    figure = _figure()
    figure.add_scatter(
        x=[_moment(t) for t, _ in points], y=[v for _, v in points], mode="lines",
        line={"color": color, "width": 1.5}, fill="tozeroy", fillcolor=_faded(color, 0.15),
    )  # fmt: skip
    figure.update_layout(margin={"l": 0, "r": 0, "t": 0, "b": 0})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, rangemode="tozero")
    text = _short(latest, defaults["unit"], int(defaults["decimals"]))
    spark = _html(figure, None, height // 2)
    return f'<div class="number" style="color:{color}">{text}</div><div class="spark">{spark}</div>'


def _short(value: float, unit: str, decimals: int) -> str:
    if unit == "percentunit":
        return f"{value:.{decimals}%}"
    scale, letter = next(((s, x) for s, x in SI if abs(value) >= s), (1.0, ""))
    if unit == "none" and scale < 1:
        scale, letter = 1.0, ""
    return f"{value / scale:.{decimals}f} {letter}{UNITS[unit][2].strip()}".strip()


def _legend(series: list[Series], swatches: list[str]) -> str:
    entries = (
        f'<span><i style="{swatch}"></i>{html.escape(one.name)}</span>'
        for one, swatch in zip(series, swatches, strict=True)
    )
    return f'<div class="legend">{"".join(entries)}</div>'


def _figure() -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        paper_bgcolor=PANEL, plot_bgcolor=PANEL, showlegend=False, autosize=True,
        margin={"l": 64, "r": 14, "t": 6, "b": 24}, font={"color": TEXT, "size": 12},
    )  # fmt: skip
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID}
    figure.update_xaxes(**axis, tickformat="%H:%M:%S", nticks=7)
    figure.update_yaxes(**axis)
    return figure


def _html(figure: go.Figure, window: Window | None, height: int) -> str:
    if window is not None:
        figure.update_xaxes(range=[_moment(window.start_s), _moment(window.end_s)])
    return str(
        figure.to_html(
            include_plotlyjs=False, full_html=False, default_height=f"{height}px",
            config={"staticPlot": True, "responsive": True},
        )
    )  # fmt: skip


def _faded(color: str, opacity: float = 0.65) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _moment(unix_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC)
