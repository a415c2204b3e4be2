"""A page of text, tables and plots in one file that opens without a network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go
import plotly.io as pio

from core.errors import SettingsError
from loadgen.report import write_file

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

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>"]
        self._figures = 0

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def paragraph(self, text: str, flag: bool = False) -> None:
        kind = ' class="flag"' if flag else ""
        self._parts.append(f"<p{kind}>{html.escape(text)}</p>")

    def text(self, text: str) -> None:
        self._parts.append(f"<pre>{html.escape(text)}</pre>")

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        head, *body = rows
        lines = [_row("th", head), *(_row("td", row) for row in body)]
        self._parts.append(f"<table>{''.join(lines)}</table>")

    def figure(self, figure: go.Figure) -> None:
        first = self._figures == 0
        self._parts.append(pio.to_html(figure, full_html=False, include_plotlyjs=first))
        self._figures += 1

    def write(self, path: Path) -> None:
        """Write all of the file or nothing.

        Raises:
            SettingsError: it cannot be written there.
        """
        text = _PAGE.format(title=html.escape(self._title), body="\n".join(self._parts))
        try:
            write_file(path, text)
        except OSError as error:
            raise SettingsError(f"cannot write {path}: {error.strerror}") from None


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def figure(title: str, x: str, y: str, log: bool = False) -> go.Figure:
    """Start a plot; `log` makes both axes logarithmic."""
    drawn = go.Figure()
    kind = "log" if log else None
    drawn.update_layout(
        title=title,
        xaxis={"title": x, "type": kind},
        yaxis={"title": y, "type": kind},
        template="plotly_white",
        colorway=COLOURS,
        height=420,
        showlegend=True,
    )
    return drawn


def line(drawn: go.Figure, name: str, x: Iterable[Any], y: Iterable[Any], **how: Any) -> None:
    drawn.add_trace(go.Scatter(name=name, x=list(x), y=list(y), **{"mode": "lines", **how}))


def bars(drawn: go.Figure, name: str, x: Iterable[Any], y: Iterable[Any], **how: Any) -> None:
    drawn.add_trace(go.Bar(name=name, x=list(x), y=list(y), **how))
