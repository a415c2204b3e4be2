"""Experiment 2: no KV cache. Counting FLOPs says one thing, counting bytes another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costmodel.account import LostCause
from lab.experiments.base import Bench, Experiment, decode_steps, together
from lab.measure.outcome import Account, LabRow
from lab.measure.server import ServerStep, median_step


class KVCache(Experiment):
    number = 2
    title = "KV cache on and off"
    question = "Without stored keys and values each token computes all before it again: how slow?"
    quantity = "step without / with the cache"
    x_name = "context"
    log = True

    output = 9

    @property
    def contexts(self) -> tuple[int, ...]:
        return (64, 128) if self.short else (64, 128, 256, 512, 1024)

    def predict(self) -> list[LabRow]:
        return [
            LabRow(series="floor", x=context, predicted=self._ratio(context))
            for context in self.contexts
        ]

    def _ratio(self, context: int) -> float:
        known = context + self.output // 2
        return self.subject.prefill(known + 1).s / self.subject.decode(1, known).s

    def measure(self, bench: Bench, rows: Sequence[LabRow]) -> list[LabRow]:
        budget = ("--max-num-batched-tokens", str(max(self.contexts) + self.output))
        steps = {
            switch: self._steps(bench, switch, budget, tick=switch == "off")
            for switch in ("on", "off")
        }
        return [compared(row, steps["on"][int(row.x)], steps["off"][int(row.x)]) for row in rows]

    def _steps(
        self, bench: Bench, switch: str, flags: tuple[str, ...], tick: bool
    ) -> dict[int, list[ServerStep]]:
        """Measure every context on one server; give the steps that made a token after the first."""
        found = {}
        with bench.serve("--kv-cache", switch, *flags) as server:
            for context in self.contexts:
                steps = server.load(together(1, context, self.output)).steps
                again = [step for step in steps if recomputes(step, context)]
                found[context] = decode_steps(steps, 1) if switch == "on" else again
                if tick:
                    bench.tick()
        return found

    def facts(self, rows: Sequence[LabRow]) -> list[tuple[str, str, str]]:
        facts = []
        for row in rows:
            measured = "n/a" if row.measured is None else f"{row.measured:.2f} ×"
            for what, ratio in zip(("FLOPs", "bytes"), self.naive(int(row.x)), strict=True):
                facts.append((f"by {what} alone, context {row.x}", f"{ratio:.2f} ×", measured))
        return facts

    def naive(self, context: int) -> tuple[float, float]:
        """Give the slow-down that FLOPs alone predict, and the one that bytes alone do."""
        known = context + self.output // 2
        without, cached = (
            self.subject.sums.uniform_step(1, 0, known + 1),
            self.subject.sums.uniform_step(1, known, 1),
        )
        return without.flops / cached.flops, without.bytes / cached.bytes

    def read(self, rows: Sequence[LabRow]) -> str:
        known = [row for row in rows if row.measured]
        if not known:
            return "Nothing was measured."
        last = known[-1]
        by_flops, by_bytes = self.naive(int(last.x))
        account = f" Its time splits into {last.account.words()}." if last.account else ""
        return (
            f"At a context of {last.x} tokens counting FLOPs predicts a step {by_flops:.0f} × as"
            f" long without the cache, counting bytes {by_bytes:.2f} ×: either alone is wrong,"
            f" because one step is bound by bytes and the other by FLOPs. The floor, the larger"
            f" term of each, predicts {last.predicted:.1f} ×; measured were"
            f" {last.measured:.1f} ×.{account}"
        )


def recomputes(step: ServerStep, context: int) -> bool:
    """Whether a step ran a whole context again to make one more token."""
    return len(step.slices) == 1 and step.slices[0].start == 0 and step.slices[0].length > context


def compared(row: LabRow, cached: list[ServerStep], without: list[ServerStep]) -> LabRow:
    fast, slow = median_step(cached), median_step(without)
    if fast is None or slow is None:
        return row
    ratio = slow.duration_ms / fast.duration_ms
    return replace(row, measured=ratio, account=whole_floor(slow.account()))


def whole_floor(account: Account) -> Account:
    """Count recomputation as work: it is what is predicted here, not a loss."""
    lost = dict(account.lost_s)
    return Account(account.floor_s + lost.pop(LostCause.RECOMPUTE, 0.0), lost)
