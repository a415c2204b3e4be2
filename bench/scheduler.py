"""What a step's bookkeeping costs against its size: plan and commit alone, the model is a fake.

The record of what a plan reads is counted with it.

`python -m bench.scheduler [--steps 200] [--json FILE]` prints one line per figure. The goal is
1 ms per 100 running requests for plan and commit together, whatever waits and whatever is free.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.command import Command, start
from core.request import Request, RequestId
from core.settings import SchedulerSettings
from core.step import StepResult
from kvcache.pool import BlockPool
from scheduler.scheduler import Scheduler

GOAL_MS_PER_100 = 1.0
BLOCKS, BLOCK_SIZE, PROMPT_TOKENS, FOREVER, TENANTS = 100_000, 16, 32, 1_000, 16


def scheduler_with(running: int, waiting: int, blocks: int, shared: bool = False) -> Scheduler:
    """A scheduler whose `running` requests are in decode and whose `waiting` ones find no slot.

    Prompts are all the same where `shared`, else no two begin alike.
    """
    limits = SchedulerSettings(max_num_seqs=running, max_num_batched_tokens=running * PROMPT_TOKENS)
    scheduler = Scheduler(BlockPool(blocks, BLOCK_SIZE), limits)
    for number in range(running + waiting):
        first = 0 if shared else number * PROMPT_TOKENS
        scheduler.add(
            Request(
                id=RequestId(str(number)),
                prompt_ids=tuple(range(first, first + PROMPT_TOKENS)),
                max_tokens=FOREVER,
                tenant="all" if shared else str(number % TENANTS),
            )
        )
    return scheduler


def timed_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    start_ns = time.thread_time_ns()  # of the processor: other programs do not stretch it
    value = work()
    return (time.thread_time_ns() - start_ns) / 1e6, value


def step_costs(running: int, waiting: int, blocks: int, steps: int, shared: bool) -> dict[str, Any]:
    scheduler = scheduler_with(running, waiting, blocks, shared)
    plan_ms, commit_ms, preempted = [], [], 0
    for _ in range(steps):
        planned_ms, plan = timed_ms(scheduler.plan)
        recorded_ms, _ = timed_ms(partial(scheduler.record, plan))
        result = StepResult({piece.request.id: 7 for piece in plan.slices if piece.samples})
        committed_ms, _ = timed_ms(partial(scheduler.commit, plan, result))
        plan_ms.append(planned_ms + recorded_ms)
        commit_ms.append(committed_ms)
        preempted += len(plan.preempted)
    both_ms = [sum(pair) for pair in zip(plan_ms, commit_ms, strict=True)]
    return {
        "running": running,
        "waiting": waiting,
        "blocks": blocks,
        "shared": shared,
        "preempted": preempted,
        "plan_p50_ms": statistics.median(plan_ms),
        "commit_p50_ms": statistics.median(commit_ms),
        "both_p50_ms_per_100": statistics.median(both_ms) * 100 / running,
        "both_p99_ms_per_100": statistics.quantiles(both_ms, n=100)[98] * 100 / running,
    }


def abort_costs(waiting: int) -> dict[str, Any]:
    """Abort the queue from its middle outwards, where a list would have to search."""
    scheduler = scheduler_with(1, waiting, BLOCKS)
    scheduler.plan()
    ids = sorted(range(1, waiting + 1), key=lambda number: abs(number - waiting // 2))
    total_ms, _ = timed_ms(lambda: [scheduler.abort(RequestId(str(number))) for number in ids])
    return {"waiting": waiting, "abort_us": total_ms * 1e3 / waiting}


def options() -> Command:
    parser = Command("bench.scheduler", __doc__)
    parser.count("--steps", 200, "steps that each figure is taken from", least=2)
    parser.file("--json", "the figures")
    return parser


def main() -> None:
    chosen = options().parse_args()
    steps = []
    for running in (10, 100, 1_000):
        tight = running * 4  # blocks for 64 tokens each: decode runs into the limit and preempts
        cases = (0, BLOCKS, False), (10_000, BLOCKS, False), (10_000, BLOCKS, True)
        for waiting, blocks, shared in (*cases, (10_000, tight, False)):
            figure = step_costs(running, waiting, max(blocks, 80), chosen.steps, shared)
            steps.append(figure)
            print(" ".join(f"{name}={value:.5g}" for name, value in figure.items()), flush=True)
    aborts = [abort_costs(waiting) for waiting in (100, 10_000)]
    for figure in aborts:
        print(" ".join(f"{name}={value:.5g}" for name, value in figure.items()), flush=True)
    worst = max(figure["both_p50_ms_per_100"] for figure in steps if figure["running"] >= 100)
    print(f"worst median at 100 running or more: {worst:.3f} ms per 100 (goal {GOAL_MS_PER_100})")
    if chosen.json:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        record = {"machine": machine, "steps": steps, "aborts": aborts}
        chosen.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    start(main)
