"""Experiment 7: prefill, where FLOPs rule."""

from __future__ import annotations

from collections.abc import Sequence

from lab.experiments.base import Bench, Experiment, together, with_median
from lab.measure.outcome import LabRow, merged
from lab.measure.server import ServerSlice, ServerStep

OUTPUT_TOKENS = 4  # one alone may be a special token: it has no text, and is taken for no answer


class Prefill(Experiment):
    number = 7
    title = "Prefill length"
    question = "All tokens of a prompt share one read of the weights: when do FLOPs take over?"
    quantity = "step, ms"
    x_name = "prompt tokens"
    log = True

    repeats = 5

    @property
    def lengths(self) -> tuple[int, ...]:
        return (16, 128) if self.short else (8, 16, 32, 64, 128, 256, 512, 1024, 2048)

    def predict(self) -> list[LabRow]:
        return [
            LabRow(series="prefill", x=length, predicted=self.subject.prefill(length).s * 1e3)
            for length in self.lengths
        ]

    def measure(self, bench: Bench, rows: Sequence[LabRow]) -> list[LabRow]:
        done = []
        with bench.serve("--max-num-batched-tokens", str(max(self.lengths))) as server:
            for row in rows:
                length = int(row.x)
                steps = []
                for seed in range(self.repeats):
                    plan = together(1, length, OUTPUT_TOKENS, seed=100 * length + seed)
                    load = server.load(plan)
                    steps += [step for step in load.steps if whole_prompt(step, length)]
                done.append(with_median(row, steps))
                bench.tick()
        return done

    def read(self, rows: Sequence[LabRow]) -> str:
        balance = next(
            (int(row.x) for row in rows if not self.subject.prefill(int(row.x)).memory_bound), None
        )
        known = [row for row in rows if row.measured]
        if not known:
            return "Nothing was measured."
        turn = f"from {balance} tokens on FLOPs make the floor" if balance else "bytes rule it all"
        first, last = known[0], known[-1]
        flops = self.subject.sums.uniform_step(1, 0, int(last.x)).flops
        assert last.measured is not None
        accounts = [row.account for row in known if row.account]
        return (
            f"By prediction {turn}. The floor is {self._reached(first)} of the measured step at"
            f" {first.x} tokens and {self._reached(last)} at {last.x}, where the engine reaches"
            f" {flops / last.measured / 1e6:.1f} GFLOP/s. Over all lengths:"
            f" {merged(accounts).words()}."
        )

    @staticmethod
    def _reached(row: LabRow) -> str:
        assert row.measured is not None
        return f"{row.predicted / row.measured:.0%}"


def whole_prompt(step: ServerStep, length: int) -> bool:
    return step.slices == [ServerSlice(start=0, length=length)]
