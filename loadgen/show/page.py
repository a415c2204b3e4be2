"""A page of text, tables and plots in one file that opens without a network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go

from loadgen.report.summary import write_file

COLOURS: Final = ("#1f5fa8", "#c8553d", "#3a7d44", "#8a6fae", "#b8860b", "#4a4a4a")
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; color: #222; }}
pre {{ background: #f6f6f4; padding: 1em; overflow-x: auto; font-size: 12.5px; }}
table {{ border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25em .8em; border-bottom: 1px solid #ddd; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
.flag {{ border-left: 4px solid #c8553d; padding-left: .8em; }}
</style></head>
<body>
{body}
</body></html>
"""


class Page:
    """Collects parts in order. The plotting library is written once, before the first plot."""

    def __init__(self, title: str, text: str, *figures: go.Figure) -> None:
        self._title, self._parts, self._plots = title, [_element("h1", title)], False
        self._parts.append(_element("pre", text))
        for drawn in figures:
            self.figure(drawn)

    def heading(self, text: str) -> None:
        self._parts.append(_element("h2", text))

    def paragraph(self, text: str, flag: bool = False) -> None:
        self._parts.append(_element("p", text, ' class="flag"' if flag else ""))

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        tags = ("th", *("td" for _ in rows[1:]))
        cells = ("".join(_element(t, c) for c in row) for t, row in zip(tags, rows, strict=True))
        self._parts.append(f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>")

    def figure(self, figure: go.Figure) -> None:
        self._parts.append(figure.to_html(full_html=False, include_plotlyjs=not self._plots))
        self._plots = True

    def write(self, path: Path) -> None:
        """Write all of the file or nothing.

        Raises:
            SettingsError: it cannot be written there.
        """
        body = "\n".join(self._parts)
        write_file(path, _PAGE.format(title=html.escape(self._title), body=body))


def _element(tag: str, text: str, attributes: str = "") -> str:
    return f"<{tag}{attributes}>{html.escape(text)}</{tag}>"


def figure(title: str, x: str, y: str, log: bool = False) -> go.Figure:
    """Start a plot; `log` makes both axes logarithmic."""
    drawn = go.Figure(layout_title=title, layout_template="plotly_white", layout_colorway=COLOURS)
    drawn.update_layout(xaxis_title=x, yaxis_title=y, height=420, showlegend=True)
    if log:
        drawn.update_layout(xaxis_type="log", yaxis_type="log")
    return drawn


def line(drawn: go.Figure, name: str, x: Iterable[Any], y: Iterable[Any], **how: Any) -> None:
    drawn.add_trace(go.Scatter(name=name, x=list(x), y=list(y), **{"mode": "lines", **how}))


def bars(drawn: go.Figure, name: str, x: Iterable[Any], y: Iterable[Any], **how: Any) -> None:
    drawn.add_trace(go.Bar(name=name, x=list(x), y=list(y), **how))
