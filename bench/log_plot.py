"""Draws lines over two logarithmic axes as SVG, several plots side by side. Nothing is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10

SOLID, DASHED, DOTTED = "", "7 4", "1 4"  # of a stroke, as SVG writes them
WIDTH, HEIGHT = 480, 400  # of a plot
LEFT, RIGHT, TOP, BOTTOM = 44, 452, 70, 360  # of its axes
ROW = 18  # of the legend
STEPS = (1, 2, 5)  # of the ticks of time


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, seconds) by rising x."""

    name: str
    points: tuple[tuple[int, float], ...]
    colour: str
    dashes: str
    marked: bool

    def __str__(self) -> str:
        return f"{self.name:28s}" + "".join(f"  {x}: {s * 1e3:.2f} ms" for x, s in self.points)

    @property
    def stroke(self) -> str:
        pen = f'stroke="{self.colour}" stroke-width="1.6" stroke-dasharray="{self.dashes}"'
        return f'fill="none" {pen}'


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    across: str  # what the horizontal axis counts
    lines: tuple[Line, ...]


def svg(title: str, plots: Sequence[Plot]) -> str:
    """Draw plots over one range of time, with the first plot's lines as legend below."""
    times_ms = [s * 1e3 for plot in plots for line in plot.lines for _, s in line.points]
    up = _Scale(min(times_ms), max(times_ms), BOTTOM, TOP)
    legend = list(_legend(plots[0].lines, WIDTH * len(plots)))
    width, height = WIDTH * len(plots), HEIGHT + ROW * (len(plots[0].lines) // 3 + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="26" font-size="15">{title}</text>',
    ]
    for number, plot in enumerate(plots):
        parts += [f'<g transform="translate({WIDTH * number} 0)">', *_plot(plot, up), "</g>"]
    return "\n".join([*parts, *legend, "</svg>\n"])


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a value lies between two ends of an axis."""

    low: float
    high: float
    start: int
    end: int

    def at(self, value: float) -> float:
        share = log10(value / self.low) / log10(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        powers = range(floor(log10(self.low)), floor(log10(self.high)) + 1)
        ticks = [step * 10.0**power for power in powers for step in STEPS]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def _plot(plot: Plot, up: _Scale) -> Iterator[str]:
    places = sorted({x for line in plot.lines for x, _ in line.points})
    across = _Scale(places[0], places[-1], LEFT, RIGHT)
    yield f'<text x="{LEFT}" y="50" font-size="13">{plot.title}</text>'
    for tick in up.ticks():
        yield f'<path d="M{LEFT} {up.at(tick):.1f}H{RIGHT}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 6}" y="{up.at(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
    for x in places:
        yield f'<path d="M{across.at(x):.1f} {TOP}V{BOTTOM}" stroke="#eee"/>'
        where = f'x="{across.at(x):.1f}" y="{BOTTOM + 16}" text-anchor="middle"'
        yield f"<text {where}>{x:,}</text>"
    where = f'x="{(LEFT + RIGHT) // 2}" y="{BOTTOM + 34}" text-anchor="middle"'
    yield f"<text {where}>{plot.across}</text>"
    for line in plot.lines:
        spots = [(across.at(x), up.at(s * 1e3)) for x, s in line.points]
        yield f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in spots)}" {line.stroke}/>'
        if line.marked:
            for cx, cy in spots:
                yield f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="2.5" fill="{line.colour}"/>'


def _legend(lines: Sequence[Line], width: int) -> Iterator[str]:
    """Set names in rows of three."""
    for number, line in enumerate(lines):
        x, y = LEFT + (number % 3) * (width - LEFT) // 3, HEIGHT + ROW * (number // 3 + 1)
        yield f'<path d="M{x} {y - 4}h26" {line.stroke}/>'
        yield f'<text x="{x + 34}" y="{y}">{line.name}</text>'
