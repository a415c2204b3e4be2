"""A load run at the floor: every step takes the least time that it could. No server is started."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.settings import Batching
from costmodel.totals import StepTotals
from lab.subject import Subject


@dataclass(slots=True)
class Job:
    """One request. `computed` counts its tokens with KV, `made` those that it has sampled."""

    prompt: int
    output: int
    computed: int = field(default=0)
    made: int = field(default=0)

    @property
    def pending(self) -> int:
        return self.prompt + self.made - self.computed


def makespan_s(
    subject: Subject,
    lengths: Sequence[tuple[int, int]],
    batching: Batching,
    batch: int,
    budget: int,
) -> float:
    """Time (prompt, output) requests that all wait from the start, in steps of `budget` tokens.

    First come, first served; those who run already come before those who join.
    """
    waiting = deque(Job(*pair) for pair in lengths)
    running: list[Job] = []
    most = 1 if batching is Batching.NONE else batch
    elapsed_s = 0.0
    while waiting or running:
        if batching is not Batching.STATIC or not running:
            while waiting and len(running) < most:
                running.append(waiting.popleft())
        elapsed_s += subject.floor(_step(subject, running, budget)).s
        running = [job for job in running if job.made < job.output]
    return elapsed_s


def _step(subject: Subject, running: Sequence[Job], budget: int) -> StepTotals:
    """Run one step and give its work.

    Mutates: the jobs that had room in it.
    """
    totals = subject.totals
    kv_bytes = flops = 0
    for job in running:
        tokens = min(job.pending, budget)
        if not tokens:
            break
        samples = tokens == job.pending
        work = totals.work(1, job.computed, tokens, rows=int(samples))
        kv_bytes, flops, budget = kv_bytes + work.kv_bytes, flops + work.flops, budget - tokens
        job.computed += tokens
        job.made += samples
    return StepTotals(weight_bytes=totals.step_weight_bytes, kv_bytes=kv_bytes, flops=flops)
