"""Several runs of one load: over given rates, or in search of the highest that meets the SLOs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from core.errors import SettingsError
from loadgen.report.join import FloorPoint, floor_curve
from loadgen.report.summary import Summary
from loadgen.report.verdict import Exit

NEARLY = 1.05  # the search ends when the failing rate is this close above the passing one
ALONE = 0.25  # mean requests in flight below which a lower rate cannot help
MAX_PROBES = 16

Measure = Callable[[float], Summary]


def sweep(rates: Iterable[float], measure: Measure) -> dict[float, Summary]:
    """Measure each rate, until interrupted."""
    runs: dict[float, Summary] = {}
    for rate in rates:
        runs[rate] = measure(rate)
        if runs[rate].interrupted:
            break
    return runs


@dataclass(slots=True)
class Search:
    """The state of a search. `broken` are the objectives that the lowest failing rate missed."""

    runs: dict[float, Summary] = field(default_factory=dict)
    passing: float = 0.0
    failing: float | None = None
    broken: list[str] = field(default_factory=list)
    ended: str = ""  # why the search stopped

    @property
    def last(self) -> Summary:
        return list(self.runs.values())[-1]

    @property
    def cut_short(self) -> bool:
        """Say whether the last run ended the search before its answer was found."""
        return self.last.interrupted or not self.last.valid

    def take(self, rate: float, summary: Summary) -> float | None:
        """Book a run: double until something breaks, halve until nothing does, then bisect.

        Returns: the rate to try next; None at the end.
        """
        self.runs[rate] = summary
        missed = [judged.slo for judged in summary.slos if not judged.met]
        if summary.exit_code == Exit.ERRORS:
            missed.append("--max-error-rate")
        if not missed:
            self.passing = max(self.passing, rate)
        elif self.failing is None or rate < self.failing:
            self.failing, self.broken = rate, missed
        if self.cut_short:
            self.ended = "interrupted" if self.last.interrupted else "the client was the limit"
        elif self.failing is None:
            return self.passing * 2
        elif not self.passing and summary.client.mean_inflight >= ALONE:
            return self.failing / 2
        elif not self.passing:
            self.ended = "requests were alone and still missed; a lower rate cannot help"
        elif self.failing / self.passing > NEARLY:
            return (self.passing + self.failing) / 2
        else:
            self.ended = f"the failing rate is within {NEARLY - 1:.0%} of the passing one"
        return None


def search(
    first: float,
    measure: Measure,
    limit_s: float = math.inf,
    lasts_s: Callable[[float], float] = lambda rate: 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> Search:
    """Find the highest rate at which every objective is met; end where the client is the limit.

    After the first run, none starts that would end later than `limit_s` from now; `lasts_s` says
    for how long a rate's load is sent.
    Raises:
        SettingsError: an objective could not be judged: too few samples, or a metric that the
            server does not let us know.
    """
    state, began_s = Search(), clock()
    rate: float | None = first
    while rate is not None:
        left_s = limit_s - (clock() - began_s)
        if state.runs and lasts_s(rate) > left_s:
            state.ended = (
                f"time limit: a run at {rate:g}/s takes {lasts_s(rate):.0f} s,"
                f" and {max(left_s, 0.0):.0f} s are left"
            )
            break
        if len(state.runs) == MAX_PROBES:
            state.ended = f"{MAX_PROBES} runs were made"
            break
        summary = measure(rate)
        if not (summary.valid or summary.interrupted):
            summary = measure(rate)  # one busy moment of this machine must not end the search
        unknown = [judged.slo for judged in summary.slos if judged.met is None]
        if unknown and not summary.interrupted:
            raise SettingsError(f"cannot judge {', '.join(unknown)}: n/a against this server")
        rate = state.take(rate, summary)
    return state


def predicted(runs: dict[float, Summary]) -> list[FloorPoint]:
    """Draw the floor curve from the last run that showed its work; empty where none did."""
    works = [summary.work for summary in runs.values() if summary.work]
    return floor_curve(works[-1], max(runs) * 1.25) if works else []
