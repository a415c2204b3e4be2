"""Where the time of requests went, and which of them were slow, by what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from telemetry.bill.entry import Entry
from telemetry.books.accounts import Booked
from telemetry.series.registry import NS, Instruments
from telemetry.why.explain import Explainer
from telemetry.why.verdict import SLOW_NS
from telemetry.why.window import Window, worse


class SlowSeries:
    """Judges each request once, when it has ended."""

    def __init__(self, make: Instruments, explainer: Explainer) -> None:
        self._explainer, self.window = explainer, Window()
        name = "slow_requests_total"
        self._time = make.counters("request_time_seconds_total", "cause", NS)
        self._slow = {
            (part, code): make.counter(name, part=part, code=code)
            for part in make.values(name, "part")
            for code in make.values(name, "code")
        }

    def take(self, bursts: Sequence[Booked]) -> None:
        for facts, accounts in bursts:
            steps = accounts.steps
            second = self.window.second(facts.reports[-1].end_ns)
            second.floor_ns += int(steps.useful_floor_ns.sum())
            for cause, lost_ns in steps.lost_ns.items():
                second.lost_ns[cause] += int(lost_ns.sum())
            self.ended(facts.ended)

    def ended(self, entries: Iterable[Entry]) -> None:
        """Count entries, which have ended."""
        for entry in entries:
            assert entry.ended_ns is not None
            took_ns, pieces = entry.ended_ns - entry.received_ns, entry.life.spent_ns()
            for piece, ns in pieces.items():
                self._time[piece].inc(ns)
            second = self.window.second(entry.ended_ns)
            second.ended += 1
            second.took_ns += took_ns
            second.pieces.update(pieces)
            if took_ns <= SLOW_NS and not self._explainer.has_goals:
                continue
            told = self._explainer.explain(entry)
            if told.slow:
                self._slow[told.part, told.code].inc(1)
                second.slow[told.code] += 1
                second.worst = worse(second.worst, told)
