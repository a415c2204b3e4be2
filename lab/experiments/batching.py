"""Experiment 3: no batching, static and continuous batching under the same load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from core.settings import Batching as Mode
from lab.experiments.base import Bench, Experiment
from lab.measure.outcome import LabRow
from lab.measure.server import LoadResult
from lab.measure.simulate import makespan_s
from loadgen.load.plan import make_plan
from loadgen.load.spec import PlanSpec

MODES = (Mode.NONE, Mode.STATIC, Mode.CONTINUOUS)


class BatchingModes(Experiment):
    number = 3
    title = "Batching"
    question = "One after another, a batch at a time, or whoever comes: what does each gain?"
    quantity = "times as fast as without batching"
    x_name = "batching"

    batch, budget = 8, 128

    @property
    def plan(self) -> PlanSpec:
        """All requests wait from the start, so that no mode is short of work."""
        requests = 8 if self.short else 48
        return PlanSpec(arrival=f"closed:{requests}", requests=requests)

    @cached_property
    def at_floor_s(self) -> dict[Mode, float]:
        requests = make_plan(self.plan).requests
        lengths = [(planned.prompt_tokens, planned.output_tokens) for planned in requests]
        return {
            mode: makespan_s(self.subject, lengths, mode, self.batch, self.budget) for mode in MODES
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen: dict[str, tuple[float, float | None]] = {}  # seconds, and mean TTFT in ms

    def predict(self) -> list[LabRow]:
        floors = self.at_floor_s
        return [
            LabRow(series="all answered", x=mode.value, predicted=floors[Mode.NONE] / floors[mode])
            for mode in MODES
        ]

    def measure(self, bench: Bench, rows: Sequence[LabRow]) -> list[LabRow]:
        loads: dict[str, LoadResult] = {}
        for mode in MODES:
            flags = ("--batching", mode.value, "--max-num-seqs", str(self.batch))
            budget = ("--max-num-batched-tokens", str(self.budget))
            with bench.serve(*flags, *budget) as server:
                loads[mode.value] = server.load(self.plan)
            bench.tick()
        self._seen = {
            mode: (load.summary.rates.window_s, load.summary.metrics["ttft"].mean)
            for mode, load in loads.items()
        }
        return [
            replace(
                row,
                measured=self._seen[Mode.NONE.value][0] / self._seen[str(row.x)][0],
                account=loads[str(row.x)].account(),
            )
            for row in rows
        ]

    def facts(self, rows: Sequence[LabRow]) -> list[tuple[str, str, str]]:
        facts = []
        for mode in MODES:
            took_s, ttft_ms = self._seen.get(mode.value, (None, None))
            shown = "n/a" if took_s is None else f"{took_s:.3g}"
            facts.append((f"seconds, {mode.value}", f"{self.at_floor_s[mode]:.3g}", shown))
            if ttft_ms is not None:
                facts.append((f"mean TTFT, {mode.value}", "", f"{ttft_ms:,.0f} ms"))
        return facts

    def read(self, rows: Sequence[LabRow]) -> str:
        known = [row for row in rows if row.measured]
        if len(known) < len(rows):
            return "Nothing was measured."
        none, static, continuous = known
        assert continuous.measured
        assert static.measured
        assert none.account
        assert continuous.account
        return (
            f"Up to {self.batch} requests share a step. Against one request after another, static"
            f" batching is {static.measured:.1f} × as fast (predicted {static.predicted:.1f} ×) and"
            f" continuous batching {continuous.measured:.1f} × (predicted"
            f" {continuous.predicted:.1f} ×): a static batch waits for its longest answer, a"
            f" continuous one refills its places, which is worth another"
            f" {continuous.measured / static.measured:.2f} ×. Without batching the time splits into"
            f" {none.account.words()}; with continuous batching into {continuous.account.words()}."
        )
