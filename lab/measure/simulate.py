"""A load run at the floor: every step takes the least time that it could. No server is started."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from core.settings import Batching
from costmodel.sums import StepTotals
from lab.measure.subject import Subject


@dataclass(slots=True)
class Simulated:
    """One request."""

    prompt: int
    output: int
    computed: int = 0  # tokens with KV
    made: int = 0  # tokens that it has sampled

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

    First come, first served; running requests come before those that join.
    """
    waiting = deque(Simulated(*pair) for pair in lengths)
    running: list[Simulated] = []
    most = 1 if batching is Batching.NONE else batch
    elapsed_s = 0.0
    while waiting or running:
        if batching is not Batching.STATIC or not running:
            while waiting and len(running) < most:
                running.append(waiting.popleft())
        elapsed_s += subject.floor(_step(subject, running, budget)).s
        running = [request for request in running if request.made < request.output]
    return elapsed_s


def _step(subject: Subject, running: Sequence[Simulated], budget: int) -> StepTotals:
    """Run one step and give its work.

    Mutates: the requests that had room in it.
    """
    sums = subject.sums
    kv_bytes = flops = 0
    for request in running:
        tokens = min(request.pending, budget)
        if not tokens:
            break
        samples = tokens == request.pending
        work = sums.uniform_step(1, request.computed, tokens, rows=int(samples))
        kv_bytes, flops, budget = kv_bytes + work.kv_bytes, flops + work.flops, budget - tokens
        request.computed += tokens
        request.made += samples
    return StepTotals(weight_bytes=sums.least_weight_bytes, kv_bytes=kv_bytes, flops=flops)
