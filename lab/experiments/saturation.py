"""Experiment 8: offered rate against achieved rate, up to the knee and past it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.settings import SchedulerSettings
from lab.experiments.base import Bench, Experiment
from lab.measure.outcome import LabRow
from lab.measure.server import Server
from loadgen.load.spec import PlanSpec
from loadgen.run.scrape import divide

MAX_BATCH = SchedulerSettings().max_num_seqs
KEEPS_UP = 0.9  # achieved / offered above which a rate is sustained
SATURATED = 0.6  # below, a higher rate shows nothing new


class Saturation(Experiment):
    number = 8
    title = "Saturation"
    question = "At which rate of requests does the server stop keeping up?"
    quantity = "answered requests/s"
    x_name = "offered rate"
    log = True

    prompt, output = 64, 32  # the means of the default load

    @property
    def rates(self) -> tuple[float, ...]:
        return (4.0, 8.0) if self.short else (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

    @property
    def duration_s(self) -> float:
        return 2.0 if self.short else 12.0

    @property
    def knee(self) -> float:
        """Bound the rate: each request needs its prefill and its share of full decode steps."""
        prefill_s = self.subject.prefill(self.prompt).s
        decode_s = self.subject.decode(MAX_BATCH, self.prompt + self.output // 2).s / MAX_BATCH
        return 1 / (prefill_s + self.output * decode_s)

    def predict(self) -> list[LabRow]:
        rates = [
            LabRow(series="rate", x=rate, predicted=min(rate, self.knee)) for rate in self.rates
        ]
        return [*rates, LabRow(series="knee", x=round(self.knee, 1), predicted=self.knee)]

    def measure(self, bench: Bench, rows: Sequence[LabRow]) -> list[LabRow]:
        """Measure rate after rate until the server is far behind; later rows stay empty."""
        done: list[LabRow] = []
        with bench.serve("--max-num-seqs", str(MAX_BATCH)) as server:
            for row in rows[:-1]:
                done.append(row if done and far_behind(done[-1]) else self._at(server, row))
                bench.tick()
        bench.tick()
        return [*done, self._knee(rows[-1], done)]

    def _at(self, server: Server, row: LabRow) -> LabRow:
        rate = float(row.x)
        load = server.load(PlanSpec(rate=rate, requests=max(int(rate * self.duration_s), 4)))
        rates = load.summary.rates
        kept = divide(rates.achieved_per_s, rates.offered_per_s)
        measured = None if kept is None else min(kept, 1.0) * rate
        return replace(row, measured=measured, account=load.account(idle=True))

    @staticmethod
    def _knee(row: LabRow, done: Sequence[LabRow]) -> LabRow:
        """Take the most that was answered; without an overload no knee was seen."""
        known = [other for other in done if other.measured]
        if not known or (known[-1].measured or 0.0) >= KEEPS_UP * float(known[-1].x):
            return row
        best = max(known, key=lambda other: other.measured or 0.0)
        return replace(row, measured=best.measured, account=known[-1].account)

    def read(self, rows: Sequence[LabRow]) -> str:
        known = [row for row in rows[:-1] if row.measured and row.account]
        if not known:
            return "Nothing was measured."
        last, knee = known[-1], rows[-1]
        assert last.account is not None
        seen = f"no rate up to {last.x:g} was too high"
        if knee.measured is not None:
            seen = f"measured, at {knee.measured:.1f}"
        return (
            f"By the floor the knee lies at {self.knee:.1f} requests/s, with full batches of"
            f" {MAX_BATCH}; {seen}. At {last.x:g}/s offered, {last.measured:.1f}/s were answered,"
            f" and the engine's time splits into {last.account.words()}."
        )


def far_behind(row: LabRow) -> bool:
    """Whether a higher rate would show nothing new; a row left empty was beyond such a one."""
    return row.measured is None or row.measured < SATURATED * float(row.x)
