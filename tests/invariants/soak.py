"""The long form of the invariants: `python -m tests.invariants.soak [operations] [seed]`.

Worlds come in rounds of their own seed. Hypothesis remembers every choice of a run, so as never to
try a world twice: a single run of them all grows without end.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.invariants.machine import SchedulerMachine

WORLDS = 500  # of a round
ROUND = settings(
    max_examples=WORLDS,
    stateful_step_count=70,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
done: Counter[str] = Counter()


class CountedMachine(SchedulerMachine):
    """Adds what each world did to `done`."""

    def teardown(self) -> None:
        super().teardown()
        done.update(worlds=1, operations=self.executed, steps=self.world.steps)


def main(operations: str = "2_000_000", first_seed: str = "0") -> int:
    """Run rounds until enough operations were executed; a violation ends it with its example."""
    start_s, number = time.monotonic(), int(first_seed)
    while done["operations"] < int(operations):
        print(f"seed {number}: ", end="", flush=True)
        run_state_machine_as_test(seed(number)(CountedMachine), settings=ROUND)
        number += 1
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(
            f"{done['operations']:,} operations and {done['steps']:,} steps in {done['worlds']:,} "
            f"worlds, {time.monotonic() - start_s:,.0f} s ({time.process_time():,.0f} s of CPU), "
            f"peak memory {peak_bytes / 1e6:,.0f} MB",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
