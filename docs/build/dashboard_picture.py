"""Picture a dashboard without a Grafana: `python -m docs.build.dashboard_picture --help`.

It runs the dashboard's own queries on a Prometheus and lays the panels out as the JSON says.
"""

from __future__ import annotations

import argparse
import datetime
import html
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from deploy.grafana.queries import Prometheus, Window, panels, targets
from docs.build.dashboard_draw import Series, draw, name_of

COLUMNS = 24
WIDTH, CELL, GAP = 1600, 30, 8  # pixels
HEAD, FOOT, TITLE = 56, 34, 34
STYLE = """
body { margin: 0; background: #111217; color: #CCCCDC; font: 14px Inter, "DejaVu Sans", sans-serif }
header { position: absolute; left: 16px; right: 16px; top: 0; line-height: 56px; font-size: 18px }
header b { font-weight: 600 } header span { color: #8E8F9B; font-size: 14px; margin-left: 18px }
footer { position: absolute; left: 16px; color: #8E8F9B; font-size: 13px; line-height: 34px }
section { position: absolute; background: #181B1F; border: 1px solid #25272D; border-radius: 3px;
          box-sizing: border-box; overflow: hidden }
h2 { font-size: 14px; font-weight: 500; margin: 8px 10px 0; line-height: 20px }
.number { font-size: 34px; font-weight: 500; text-align: center; line-height: 46px }
.spark { position: absolute; bottom: 0; left: 0; right: 0 }
.legend { padding: 0 12px; line-height: 22px; font-size: 12px }
.legend span { margin-right: 16px; white-space: nowrap } .legend i { display: inline-block;
          width: 16px; margin-right: 6px; vertical-align: middle }
"""
CHROMIUM = [
    "chromium",
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--hide-scrollbars",
    "--virtual-time-budget=20000",  # the page's scripts run to their end before the picture
    *(f"--disable-{what}" for what in ("gpu", "quic", "sync", "background-networking")),
    "--disable-component-update",
]


def page(dashboard: Path, prometheus: Prometheus, window: Window) -> tuple[str, int]:
    """Give the dashboard as one HTML page, and the page's height in pixels."""
    found = panels(dashboard)
    body = "".join(_panel(panel, prometheus, window) for panel in found)
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in found)
    foot = HEAD + rows * (CELL + GAP)
    title = html.escape(json.loads(dashboard.read_text())["title"])
    start, end = (
        datetime.datetime.fromtimestamp(t, datetime.UTC).strftime("%H:%M:%S")
        for t in (window.start_s, window.end_s)
    )
    header = f"<header><b>{title}</b><span>{_models(prometheus)}</span>"
    header += f"<span>{start} to {end} UTC</span></header>"
    caption = (
        "Drawn by docs/build/dashboard_picture.py from the dashboard's own queries, "
        "asked of a Prometheus that scraped this run."
    )
    footer = f'<footer style="top:{foot}px">{caption}</footer>'
    script = f"<script>{get_plotlyjs()}</script>"
    head = f'<meta charset="utf-8"><style>{STYLE}</style>{script}'
    return f"<!doctype html><head>{head}</head>{header}{body}{footer}", foot + FOOT


def _models(prometheus: Prometheus) -> str:
    names = {labels["model"] for labels, _ in prometheus.query("floorline_engine_up")}
    return html.escape(", ".join(sorted(names)))


def _panel(panel: dict[str, Any], prometheus: Prometheus, window: Window) -> str:
    series = [
        Series(name_of(target.legend, labels), labels, points)
        for target in targets(panel, window)
        for labels, points in prometheus.query_range(target.promql, window)
    ]
    place = panel["gridPos"]
    column = (WIDTH - GAP) / COLUMNS
    left, top = GAP + place["x"] * column, HEAD + place["y"] * (CELL + GAP)
    width, height = place["w"] * column - GAP, place["h"] * (CELL + GAP) - GAP
    box = f"left:{left:.0f}px;top:{top}px;width:{width:.0f}px;height:{height}px"
    inside = draw(panel, series, window, height - TITLE)
    return f'<section style="{box}"><h2>{html.escape(panel["title"])}</h2>{inside}</section>'


def shoot(document: str, height: int, out: Path) -> None:
    """Let a headless Chromium take the page's picture.

    Raises:
        subprocess.CalledProcessError: Chromium failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "dashboard.html"
        source.write_text(document)
        flags = [f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{height}"]
        flags += [f"--screenshot={out.resolve()}", source.as_uri()]
        subprocess.run([*CHROMIUM, *flags], check=True, capture_output=True, timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dashboard", type=Path, help="JSON of deploy/grafana/dashboards")
    parser.add_argument("out", type=Path, help="PNG to write")
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", metavar="URL")
    parser.add_argument("--last", type=float, default=900, metavar="S", help="seconds to show")
    given = parser.parse_args()
    now = time.time()
    window = Window(now - given.last, now)
    document, height = page(given.dashboard, Prometheus(given.prometheus), window)
    shoot(document, height, given.out)


if __name__ == "__main__":
    main()
