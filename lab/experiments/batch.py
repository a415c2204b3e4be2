"""Experiment 4: how far batching is free, and what it costs beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lab.experiments.base import Bench, Experiment, steps_together, together, with_median
from lab.measure.outcome import LabRow, merged

FREE: Final = 1.25  # batching is free while the step takes at most so many times that of batch 1


class Batch(Experiment):
    number = 4
    title = "Batch size"
    question = "One read of the weights serves the whole batch: until when is a larger batch free?"
    quantity = "ITL, ms"
    x_name = "batch"
    log = True

    prompt, output = 128, 65  # so long that all still run when the last one is prefilled

    @property
    def batches(self) -> tuple[int, ...]:
        return (1, 4) if self.short else (1, 2, 4, 8, 16, 32)

    def predict(self) -> list[LabRow]:
        context = self.prompt + self.output // 2
        return [
            LabRow(series="ITL", x=batch, predicted=self.subject.decode(batch, context).s * 1e3)
            for batch in self.batches
        ]

    def measure(self, bench: Bench, rows: Sequence[LabRow]) -> list[LabRow]:
        done = []
        with bench.serve() as server:
            for row in rows:
                batch = int(row.x)
                plan = together(batch, self.prompt, self.output)
                done.append(with_median(row, steps_together(server, plan, batch)))
                bench.tick()
        return done

    def facts(self, rows: Sequence[LabRow]) -> list[tuple[str, str, str]]:
        return [
            (
                f"tokens/s at batch {row.x}",
                f"{float(row.x) / row.predicted * 1e3:,.0f}",
                "n/a" if not row.measured else f"{float(row.x) / row.measured * 1e3:,.0f}",
            )
            for row in rows
        ]

    def read(self, rows: Sequence[LabRow]) -> str:
        predicted = free_until([(int(row.x), row.predicted) for row in rows])
        known = [(int(row.x), row.measured) for row in rows if row.measured]
        if not known:
            return "Nothing was measured."
        accounts = [row.account for row in rows if row.account]
        first = self.subject.decode(1, self.prompt)
        regime = "memory" if first.memory_bound else "compute"
        last, widest = known[-1], rows[len(known) - 1]
        return (
            f"At batch 1 a step is bound by {regime}. Predicted, batching is free (a step takes at"
            f" most {FREE:g} × that of batch 1) up to batch {predicted}; measured, up to"
            f" {free_until(known)}. From batch 1 to {last[0]} the ITL grows"
            f" {widest.predicted / rows[0].predicted:.1f} × by prediction and"
            f" {last[1] / known[0][1]:.1f} × in truth: what a step costs whatever its size is"
            " shared by the batch as the weights are, so that batching gains more than bytes alone"
            f" explain where that part is large. Over all batches: {merged(accounts).words()}."
        )


def free_until(points: Sequence[tuple[int, float]]) -> int:
    """Find the largest batch of a rising run from the first whose time is still within FREE."""
    free = points[0][0]
    for batch, itl_ms in points:
        if itl_ms > FREE * points[0][1]:
            break
        free = batch
    return free
