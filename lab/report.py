"""The lab's outcomes as text, as JSON and as one page. No number is computed here."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from lab.measure.columns import table
from lab.measure.outcome import LabResult, LabRow
from loadgen.show.page import COLOURS, Page, bars, figure, line

WIDTH: Final = 98


def page_of(title: str, conditions: str, outcomes: Sequence[LabResult]) -> Page:
    page = Page(title, conditions)
    for outcome in outcomes:
        page.heading(f"{outcome.number}. {outcome.title}")
        page.paragraph(outcome.question)
        page.figure(rows_figure(outcome))
        page.table(rows_table(outcome))
        if any(row.account for row in outcome.rows):
            page.figure(account_figure(outcome))
        if outcome.facts:
            page.table([("", "predicted", "measured"), *outcome.facts])
        page.paragraph(outcome.reading)
        if outcome.flag:
            page.paragraph(outcome.flag, flag=True)
    return page


def text_of(outcome: LabResult) -> str:
    lines = [f"{outcome.number}. {outcome.title}: {outcome.question}", ""]
    lines += table(rows_table(outcome))
    if outcome.facts:
        lines += ["", *table([("", "predicted", "measured"), *outcome.facts])]
    lines += ["", *_wrapped(outcome.reading)]
    if outcome.flag:
        lines += ["", *_wrapped(f"FLAG: {outcome.flag}")]
    return "\n".join(lines)


def prediction_text(title: str, quantity: str, rows: Sequence[LabRow]) -> str:
    """Say what is expected, before anything is measured."""
    told = ", ".join(f"{row.series} {_x(row)}: {row.predicted:.3g}" for row in rows)
    return "\n".join([f"{title}: predicted {quantity}", *_wrapped(told)])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def rows_table(outcome: LabResult) -> list[tuple[str, ...]]:
    head = ("", outcome.x_name, f"predicted, {outcome.quantity}", "measured", "off by")
    return [head, *(_cells(row) for row in outcome.rows)]


def _cells(row: LabRow) -> tuple[str, ...]:
    measured = "n/a" if row.measured is None else f"{row.measured:.3g}"
    miss = "n/a" if row.miss is None else f"{row.miss:.2f} ×"
    return (row.series, _x(row), f"{row.predicted:.3g}", measured, miss)


def _x(row: LabRow) -> str:
    return f"{row.x:g}" if isinstance(row.x, int | float) else row.x


def rows_figure(outcome: LabResult) -> go.Figure:
    """Draw predicted and measured over x: lines where x is a number, else bars."""
    drawn = figure(outcome.title, outcome.x_name, outcome.quantity, log=outcome.log)
    names = dict.fromkeys(row.series for row in outcome.rows)
    for series, colour in zip(names, COLOURS * 2, strict=False):
        own = [row for row in outcome.rows if row.series == series]
        for what, values in (
            ("predicted", [row.predicted for row in own]),
            ("measured", [row.measured for row in own]),
        ):
            add, how = _trace(own, what, colour)
            add(drawn, f"{series}, {what}", [row.x for row in own], values, **how)
    return drawn


def _trace(rows: Sequence[LabRow], what: str, colour: str) -> tuple[Any, dict[str, Any]]:
    predicted = what == "predicted"
    if any(isinstance(row.x, str) for row in rows):
        return bars, {"marker": {"color": colour, "opacity": 0.4 if predicted else 1.0}}
    dash = {"color": colour, "dash": "dash" if predicted else "solid"}
    return line, {"mode": "lines+markers", "line": dash}


def account_figure(outcome: LabResult) -> go.Figure:
    """Stack where the time of each measured row went, as shares."""
    drawn = figure("Where the time went", "", "share")
    rows = [row for row in outcome.rows if row.account]
    names = [f"{row.series}, {row.x}" for row in rows]
    shares = [dict(row.account.shares()) for row in rows if row.account]
    causes = dict.fromkeys(cause for own in shares for cause in own)
    for cause, colour in zip(causes, COLOURS * 2, strict=False):
        heights = [own.get(cause, 0.0) for own in shares]
        if max(heights) > 0:
            bars(drawn, cause.replace("_", " "), names, heights, marker={"color": colour})
    drawn.update_layout(barmode="stack", yaxis={"range": [0, 1]})
    return drawn
