"""Predicted bytes of a decode step against what a cache simulator counts.

    python -m bench.verify_bytes --driver BUILD/decode_driver [--markdown FILE] [--isa avx2]

No hardware counter can be read on most virtual machines, but cachegrind counts exactly: misses of
a last-level cache of at most half of those bytes, times its line, of a run of two steps minus a run
of one. The driver (`kernels/tools/decode_driver.cpp`, built by `cmake --build BUILD --target
decode_driver`) runs tinygpt's sizes. Fails where a step's simulated and predicted bytes differ by
more than 3 %. What a longer context adds is KV; so a step that is off shows in its ratio of KV or
in that of the rest, whichever it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench.command import Command, program, start
from core.errors import SettingsError
from core.formats import FILE_OWN, KVFormat, MatrixFormat, Storage
from core.request import RequestId
from core.wire import SliceRecord
from costmodel.sums import ModelSums
from engine.checkpoint.tinygpt import CONFIG

LINE_BYTES = 64
BLOCK_SIZE = 16  # of the driver
LIMIT = 0.03
BATCHES = (1, 8)
CONTEXTS = (72, 264)  # in the middle of a block, whose keys are read whole: neither best nor worst


@dataclass(frozen=True, slots=True)
class Step:
    """One decode step's bytes by both accounts. `kv_bytes` is of the prediction."""

    predicted_bytes: int
    kv_bytes: int
    simulated_bytes: int

    @property
    def ratio(self) -> float:
        return self.simulated_bytes / self.predicted_bytes

    @property
    def held(self) -> bool:
        return abs(self.ratio - 1) <= LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of decode step, after few and after many tokens of context."""

    weights: MatrixFormat
    kv: KVFormat
    batch: int
    short: Step
    long: Step

    @property
    def held(self) -> bool:
        return self.short.held and self.long.held

    @property
    def kv_ratio(self) -> float:
        """Simulated over predicted, of what the longer context adds."""
        simulated = self.long.simulated_bytes - self.short.simulated_bytes
        return simulated / (self.long.predicted_bytes - self.short.predicted_bytes)

    @property
    def rest_ratio(self) -> float:
        """Simulated over predicted of the rest: weights, the last block's slots, activations."""
        short = self.short
        simulated = short.simulated_bytes - self.kv_ratio * short.kv_bytes
        return simulated / (short.predicted_bytes - short.kv_bytes)

    def cells(self) -> list[str]:
        steps = [(f"{s.predicted_bytes:,}", f"{s.ratio:.4f}") for s in (self.short, self.long)]
        parts = (f"{self.kv_ratio:.4f}", f"{self.rest_ratio:.4f}")
        return [self.weights, self.kv, str(self.batch), *steps[0], *steps[1], *parts]


HEADS = (
    *("weights", "KV", "batch"),
    *(head for c in CONTEXTS for head in (f"bytes after {c} tokens", "simulated")),
    *("of KV", "of the rest"),
)


def kinds() -> list[tuple[MatrixFormat, KVFormat, int]]:
    """Name the cases. A file's own blocks meet one kind of KV store: what is read adds up."""
    return [
        (weights, kv, batch)
        for weights, kv, batch in product(MatrixFormat, KVFormat, BATCHES)
        if weights not in FILE_OWN or kv is KVFormat.FP16
    ]


def markdown(cases: Sequence[Case]) -> str:
    rows = [HEADS, ("---",) * len(HEADS), *(case.cells() for case in cases)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def predicted(weights: MatrixFormat, kv: KVFormat, context: int, batch: int) -> tuple[int, int]:
    """Ask the cost model for a step after `context` tokens: all of its bytes, and those of KV."""
    slices = [_slice(str(i), context) for i in range(batch)]
    sums = ModelSums.of(CONFIG, Storage(weights, panels=True), kv)
    work = sums.work(slices, shared=(), distinct_token_ids=batch)
    kv_bytes = work.kv_read_bytes + work.kv_write_bytes
    return int(work.bytes_total[0]), int(kv_bytes[0])


def _slice(name: str, start: int) -> SliceRecord:
    return SliceRecord(
        id=RequestId(name),
        start=start,
        length=1,
        rows=1,
        cached=0,
        recomputed=0,
        blocks=start // BLOCK_SIZE + 1,
    )


def last_level(step_bytes: int) -> str:
    """Size the simulated cache: it keeps activations from layer to layer, nothing to the next step.

    What a step reads comes back a step later: after twice the cache.
    """
    return f"{1 << ((step_bytes // 2).bit_length() - 1)},16,{LINE_BYTES}"


@dataclass(frozen=True, slots=True)
class Simulator:
    driver: Path
    isa: str

    def check(self) -> None:
        """Run the driver once as it is.

        Raises:
            SettingsError: it is another program, or does not run so; or there is no simulator.
        """
        command = [str(self.driver), "fp32", "fp32", str(CONTEXTS[0]), "1", "1", self.isa]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not re.fullmatch(r"\d+ \d+\n", done.stdout):
            told = (done.stderr.strip().splitlines() or ["it is no decode_driver"])[-1].strip()
            raise SettingsError(f"--driver {self.driver} --isa {self.isa}: {told}")
        if shutil.which("valgrind") is None:
            raise SettingsError("valgrind, which simulates the cache, is not installed")

    def case(self, weights: MatrixFormat, kv: KVFormat, batch: int) -> Case:
        short, long = (self._step(weights, kv, context, batch) for context in CONTEXTS)
        return Case(weights=weights, kv=kv, batch=batch, short=short, long=long)

    def _step(self, weights: MatrixFormat, kv: KVFormat, context: int, batch: int) -> Step:
        step_bytes, kv_bytes = predicted(weights, kv, context, batch)
        cache = last_level(step_bytes)
        begin = context - 1  # of the second step, which finds the caches as any step does
        one, two = (self._misses(cache, weights, kv, begin, batch, steps) for steps in (1, 2))
        return Step(step_bytes, kv_bytes, (two - one) * LINE_BYTES)

    def _misses(self, cache: str, *arguments: str | int) -> int:
        """Count last-level misses, reads and writes, of one run of the driver."""
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--LL={cache}"]
        command += ["--cachegrind-out-file=/dev/null", str(self.driver)]
        command += [*map(str, arguments), self.isa]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:  # an instruction that valgrind does not know
            raise SettingsError(f"--isa {self.isa}: status {done.returncode} under valgrind")
        found = re.search(r"LLd misses:\s+([\d,]+)", done.stderr)
        assert found is not None, done.stderr
        return int(found[1].replace(",", ""))


def options() -> Command:
    parser = Command("bench.verify_bytes", __doc__)
    driver = "the compiled decode_driver, which the simulator runs"
    parser.add_argument("--driver", type=program, required=True, metavar="PROGRAM", help=driver)
    isa = "its instruction set; valgrind 3.19 does not know AVX-512"
    parser.option("--isa", isa, default="avx2", metavar="ISA")
    parser.file("--markdown", "the table of docs/cost-model.md")
    return parser


def main() -> int:
    arguments = options().parse_args()
    simulator = Simulator(arguments.driver, arguments.isa)
    simulator.check()
    found = []
    print(" | ".join(HEADS))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for case in pool.map(lambda kind: simulator.case(*kind), kinds()):
            print(" | ".join(case.cells()), "ok" if case.held else "OFF", flush=True)
            found.append(case)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(found))
    return 0 if all(case.held for case in found) else 1


if __name__ == "__main__":
    start(main)
