"""Predicted bytes of a decode step against what a cache simulator counts.

    python -m bench.verify_bytes --driver BUILD/decode_driver [--json FILE] [--isa avx2]

No hardware counter can be read on most virtual machines, but cachegrind counts exactly: misses of
a last-level cache of at most half of those bytes, times its line, of a run with steps minus a run
with fewer. The driver (`cmake --build BUILD --target decode_driver`) runs tinygpt's sizes. Fails
where a step's simulated and predicted bytes differ by more than 3 %.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from core.formats import KVFormat, MatrixFormat, Storage
from core.request import RequestId
from core.wire import SliceRecord
from costmodel.work import Arithmetic, Work
from engine.checkpoint.tinygpt import CONFIG

LINE_BYTES = 64
BLOCK_SIZE = 16  # of the driver
FEW, MANY = 1, 5  # steps of the two runs; their difference is what a step costs
LIMIT = 0.03
CONTEXTS, BATCHES = (64, 512), (1, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of decode step, and its bytes by both accounts."""

    weights: str
    kv: str
    context: int
    batch: int
    predicted_bytes: int
    simulated_bytes: int

    @property
    def ratio(self) -> float:
        return self.simulated_bytes / self.predicted_bytes

    @property
    def held(self) -> bool:
        return abs(self.ratio - 1) <= LIMIT

    def __str__(self) -> str:
        return (
            f"{self.weights:9s} kv {self.kv}  context {self.context:4d}  batch {self.batch}"
            f"  predicted {self.predicted_bytes:9,d}  simulated {self.simulated_bytes:9,d}"
            f"  {self.ratio:6.4f}  {'ok' if self.held else 'OFF'}"
        )


def predicted(weights: MatrixFormat, kv: KVFormat, context: int, batch: int) -> Work:
    """Ask the cost model for the mean step of a run: contexts grow by one a step."""
    middle = context + (FEW + MANY) // 2
    slices = [_slice(str(i), middle) for i in range(batch)]
    arithmetic = Arithmetic(CONFIG, Storage(weights, panels=True), kv)
    return arithmetic.work(slices, shared=(), distinct_token_ids=batch)


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


def simulated_misses(driver: Path, isa: str, cache: str, *arguments: str | int) -> int:
    """Count last-level misses, reads and writes, of one run of the driver."""
    with tempfile.NamedTemporaryFile() as out:
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--LL={cache}"]
        command += [f"--cachegrind-out-file={out.name}", str(driver), *map(str, arguments), isa]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"LLd misses:\s+([\d,]+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1].replace(",", ""))


def cases(driver: Path, isa: str) -> Iterator[Case]:
    for weights, kv, context, batch in product(MatrixFormat, KVFormat, CONTEXTS, BATCHES):
        work = predicted(weights, kv, context, batch)
        cache = last_level(work.bytes_total)
        few, many = (
            simulated_misses(driver, isa, cache, weights, kv, context, batch, steps)
            for steps in (FEW, MANY)
        )
        yield Case(
            weights=weights,
            kv=kv,
            context=context,
            batch=batch,
            predicted_bytes=work.bytes_total,
            simulated_bytes=(many - few) * LINE_BYTES // (MANY - FEW),
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--driver", type=Path, required=True)
    parser.add_argument("--isa", default="avx2", help="valgrind 3.19 does not know AVX-512")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = []
    for case in cases(arguments.driver, arguments.isa):
        print(case, flush=True)
        found.append(case)
    if arguments.json:
        rows = [asdict(case) | {"held": case.held} for case in found]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(case.held for case in found) else 1


if __name__ == "__main__":
    sys.exit(main())
