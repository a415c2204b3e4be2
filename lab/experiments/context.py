"""Experiment 5: how the context's keys and values grow into a step."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.planning.capacity import crossover_tokens
from lab.experiments.base import Bench, Experiment, steps_together, together, with_median
from lab.measure.outcome import LabRow, merged


class Context(Experiment):
    number = 5
    title = "Context length"
    question = "When do keys and values weigh as much as the weights?"
    quantity = "ITL, ms"
    x_name = "context"
    log = True

    output = 33  # so long, in so large steps, that all still run when the last one is prefilled
    flags = ("--kv-memory", "768MiB", "--max-num-batched-tokens", "8192")

    @property
    def cells(self) -> tuple[tuple[int, int], ...]:
        contexts = (64, 256) if self.short else (64, 256, 1024, 4096)
        batches = (1, 2) if self.short else (1, 16)
        return tuple((batch, context) for batch in batches for context in contexts)

    def predict(self) -> list[LabRow]:
        return [
            LabRow(
                series=f"batch {batch}",
                x=context,
                predicted=self.subject.decode(batch, context + self.output // 2).s * 1e3,
            )
            for batch, context in self.cells
        ]

    def measure(self, bench: Bench, rows: Sequence[LabRow]) -> list[LabRow]:
        done = []
        with bench.serve(*self.flags) as server:
            for (batch, context), row in zip(self.cells, rows, strict=True):
                plan = together(batch, context, self.output)
                done.append(with_median(row, steps_together(server, plan, batch)))
                bench.tick()
        return done

    def kv_share(self, batch: int, context: int) -> float:
        work = self.subject.sums.uniform_step(batch, context, 1)
        return work.kv_bytes / work.bytes

    def facts(self, rows: Sequence[LabRow]) -> list[tuple[str, str, str]]:
        return [
            (
                f"share of KV in a step's bytes, batch {batch}, context {context}",
                f"{self.kv_share(batch, context):.1%}",
                "",
            )
            for batch, context in self.cells
        ]

    def read(self, rows: Sequence[LabRow]) -> str:
        shares = [self.kv_share(*cell) for cell in self.cells]
        growth = []
        for series in dict.fromkeys(row.series for row in rows):
            own = [row for row in rows if row.series == series and row.measured]
            if len(own) > 1 and own[0].measured and own[-1].measured:
                growth.append(
                    f"at {series} from context {own[0].x} to {own[-1].x} the ITL grows"
                    f" {own[-1].predicted / own[0].predicted:.2f} × by prediction and"
                    f" {own[-1].measured / own[0].measured:.2f} × in truth"
                )
        if not growth:
            return "Nothing was measured."
        accounts = [row.account for row in rows if row.account]
        return (
            f"KV is {min(shares):.1%} to {max(shares):.1%} of a step's bytes here:"
            f" {'; '.join(growth)}. The crossover, where KV passes the weights, is at context ×"
            f" batch = {self.crossover():,} tokens. Over all cells: {merged(accounts).words()}."
        )

    def crossover(self) -> int:
        sums = self.subject.sums
        return crossover_tokens(sums.stored_bytes, sums.kv_token_bytes)
