"""Experiment 6: fewer bytes a weight: decode gains, prefill does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from core.errors import SettingsError
from core.inputs.quantities import scaled
from costmodel.planning.sizes import Width
from lab.experiments.base import Bench, Experiment, decode_steps, together, with_median
from lab.experiments.prefill import whole_prompt
from lab.measure.outcome import LabRow
from lab.measure.server import Server, ServerStep

WIDTHS: Final = ("fp32", "fp16", "int8", "int4")  # the last two need the native kernels


class Widths(Experiment):
    number = 6
    title = "Weight width"
    question = "Fewer bytes a weight: what does decode gain, and what does prefill?"
    quantity = "times as fast as fp32"
    x_name = "weights"

    prompt, output = 256, 33

    @property
    def widths(self) -> tuple[str, ...]:
        return (WIDTHS[0], *self.others(self.short))

    @staticmethod
    def others(short: bool) -> tuple[str, ...]:
        """Name the widths that are held against fp32."""
        return WIDTHS[1:2] if short else WIDTHS[1:]

    def predict(self) -> list[LabRow]:
        return [
            LabRow(
                series=phase, x=width, predicted=self._ms(phase, "fp32") / self._ms(phase, width)
            )
            for phase in ("decode", "prefill")
            for width in self.widths
        ]

    def _ms(self, phase: str, width: str) -> float:
        subject = self.subject.stored_as(Width.parse(width))
        if phase == "decode":
            return subject.decode(1, self.prompt + self.output // 2).s * 1e3
        return subject.prefill(self.prompt).s * 1e3

    def measure(self, bench: Bench, rows: Sequence[LabRow]) -> list[LabRow]:
        """Measure each width on a server of its own; where none starts, its rows stay empty."""
        kv = ("--kv-dtype", self.subject.kv.name)
        timed: dict[tuple[str, str], LabRow] = {}
        for width in self.widths:
            budget = ("--max-num-batched-tokens", str(self.prompt))
            try:
                with bench.serve("--weights", width, *kv, *budget) as server:
                    timed |= {(row.series, width): row for row in self._timed(server, width)}
            except SettingsError:
                continue
            finally:
                bench.tick()  # a row of decode
                bench.tick()  # and one of prefill
        return [self._compared(row, timed) for row in rows]

    def _timed(self, server: Server, width: str) -> list[LabRow]:
        steps = [step for seed in (1, 2, 3) for step in self._steps(server, seed)]
        prefills = [step for step in steps if whole_prompt(step, self.prompt)]
        return [
            with_median(LabRow(series="decode", x=width, predicted=0.0), decode_steps(steps, 1)),
            with_median(LabRow(series="prefill", x=width, predicted=0.0), prefills),
        ]

    def _steps(self, server: Server, seed: int) -> list[ServerStep]:
        return server.load(together(1, self.prompt, self.output, seed=seed)).steps

    @staticmethod
    def _compared(row: LabRow, timed: dict[tuple[str, str], LabRow]) -> LabRow:
        base, own = timed.get((row.series, "fp32")), timed.get((row.series, str(row.x)))
        if not (base and own and base.measured and own.measured):
            return row
        return replace(row, measured=base.measured / own.measured, account=own.account)

    def facts(self, rows: Sequence[LabRow]) -> list[tuple[str, str, str]]:
        facts = []
        for width in self.widths:
            flops = self.subject.stored_as(Width.parse(width)).peaks.flops
            assert flops is not None
            facts.append((f"peak of the arithmetic for {width}", scaled(flops.per_s, "FLOP/s"), ""))
        return facts

    def read(self, rows: Sequence[LabRow]) -> str:
        known = [row for row in rows if row.measured and row.x != "fp32"]
        if not known:
            return "Nothing was measured."
        parts = [
            f"{row.series} in {row.x} {row.measured:.2f} × (predicted {row.predicted:.2f} ×"
            f"{'; ' + row.account.words() if row.account else ''})"
            for row in known
        ]
        return (
            "Decode reads every weight for each token, so that by prediction its gain is that of"
            " the bytes; a prompt's tokens share the read, so that prefill gains only what a"
            " narrower arithmetic has in peak."
            f" Against fp32: {', '.join(parts)}."
        )
