"""Several runs of one load: over given rates, or in search of the highest that meets the SLOs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from core.errors import SettingsError
from loadgen.predict import Work, curve
from loadgen.verdict import Exit, exit_code

NEARLY = 1.05  # the search ends when the failing rate is this close above the passing one
ALONE = 0.25  # mean requests in flight below which a lower rate cannot help
MAX_PROBES = 16


@dataclass(frozen=True, slots=True)
class Measured:
    """One rate: the run's summary, and the work it showed."""

    rate: float
    summary: dict[str, Any]
    work: Work | None

    @property
    def interrupted(self) -> bool:
        return bool(self.summary["interrupted"])

    def missed(self) -> list[str]:
        """Name what does not hold at this rate, the error bound included."""
        missed = [verdict["slo"] for verdict in self.summary["slos"] if not verdict["met"]]
        if self.summary["exit_code"] == Exit.ERRORS:
            missed.append("--max-error-rate")
        return missed


Measure = Callable[[float], Measured]


def sweep(rates: Iterable[float], measure: Measure) -> list[Measured]:
    """Measure each rate, until interrupted."""
    points: list[Measured] = []
    for rate in rates:
        points.append(measure(rate))
        if points[-1].interrupted:
            break
    return points


@dataclass(slots=True)
class Search:
    """The state of a search. `broken` are the objectives that the lowest failing rate missed."""

    points: list[Measured] = field(default_factory=list)
    passing: float = 0.0
    failing: float | None = None
    broken: list[str] = field(default_factory=list)

    @property
    def over(self) -> bool:
        if self.points and (self.points[-1].interrupted or not self.points[-1].summary["valid"]):
            return True
        if self.failing is None:
            return False
        if not self.passing:
            return bool(self.points[-1].summary["client"]["mean_inflight"] < ALONE)
        return self.failing / self.passing <= NEARLY

    def next_rate(self, first: float) -> float:
        """Double until something breaks, halve until nothing does, then bisect."""
        if self.failing is None:
            return self.passing * 2 or first
        return (self.passing + self.failing) / 2 if self.passing else self.failing / 2

    def take(self, point: Measured) -> None:
        self.points.append(point)
        missed = point.missed()
        if not missed:
            self.passing = max(self.passing, point.rate)
        elif self.failing is None or point.rate < self.failing:
            self.failing, self.broken = point.rate, missed


def search(first: float, measure: Measure) -> Search:
    """Find the highest rate at which every objective is met; end where the client is the limit.

    Raises:
        SettingsError: an objective could not be judged: too few samples, or a metric that the
            server does not let us know.
    """
    state = Search()
    while not state.over and len(state.points) < MAX_PROBES:
        rate = state.next_rate(first)
        point = measure(rate)
        if not (point.summary["valid"] or point.interrupted):
            point = measure(rate)  # one busy moment of this machine must not end the search
        unknown = [verdict["slo"] for verdict in point.summary["slos"] if verdict["met"] is None]
        if unknown and not point.interrupted:
            raise SettingsError(f"cannot judge {', '.join(unknown)}: n/a against this server")
        state.take(point)
    return state


def combined_exit(points: Iterable[Measured]) -> Exit:
    return exit_code({Exit(point.summary["exit_code"]) for point in points})


def predicted(points: list[Measured]) -> list[dict[str, float]]:
    """Draw the floor curve from the last run that showed its work; empty where none did."""
    works = [point.work for point in points if point.work]
    return curve(works[-1], max(point.rate for point in points) * 1.25) if works else []


ROW = "{:>9} {:>9} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7} {:>7}"
HEAD = ("rate/s", "achieved", "tokens/s", "ttft p50", "ttft p90", "itl p50", "itl p90")


def render(points: Iterable[Measured]) -> str:
    lines = [ROW.format(*HEAD, "efficiency", "failed", "valid")]
    return "\n".join([*lines, *map(render_row, points)])


def render_row(point: Measured) -> str:
    summary, metrics = point.summary, point.summary["metrics"]

    def cell(value: Any, form: str) -> str:
        return "n/a" if value is None else f"{value:{form}}"

    latencies = [
        cell((metrics[metric][name] or {}).get("value"), ".1f")
        for metric in ("ttft", "itl")
        for name in ("p50", "p90")
    ]
    rates = summary["rates"]
    return ROW.format(
        f"{point.rate:.3g}",
        cell(rates["achieved_per_s"], ".3g"),
        cell(rates["output_tokens_per_s"], ".1f"),
        *latencies,
        cell(summary["server"].get("efficiency"), ".3f"),
        summary["failed"],
        "yes" if summary["valid"] else "NO",
    )
