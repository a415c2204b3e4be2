"""A scheduler over a pool, driven step by step, with what came of each step."""

from __future__ import annotations

from collections import Counter

from core.request import Request
from core.settings import SchedulerSettings, Switch
from core.step import StepPlan
from core.wire import Ended
from kvcache.pool import BlockPool
from scheduler.scheduler import Scheduler
from tests.fakes import ScriptedRunner


class World:
    """Its runner says 7 to everything. `limits` are the scheduler's settings."""

    def __init__(self, blocks: int = 1_000, block_size: int = 4, **limits: object) -> None:
        settings = SchedulerSettings(**{"max_num_batched_tokens": 16, **limits})  # type: ignore[arg-type]
        self.pool = BlockPool(blocks, block_size, settings.kv_cache is Switch.ON)
        self.scheduler = Scheduler(self.pool, settings)
        self.runner = ScriptedRunner(rule=lambda request: 7)
        self.requests: dict[str, Request] = {}
        self.steps = 0
        self.served: Counter[str] = Counter()  # tokens that ran, by tenant
        self.preemptions: Counter[str] = Counter()
        self.discarded: Counter[str] = Counter()  # tokens that had KV, then lost to preemption
        self.ended_at: dict[str, int] = {}  # the step of each end
        self.ends: list[Ended] = []

    @property
    def unreferenced_blocks(self) -> int:
        return self.pool.free_blocks + self.pool.cached_blocks

    def add(self, *requests: Request) -> None:
        for each in requests:
            self.scheduler.add(each)
            self.requests[each.id] = each

    def step(self) -> StepPlan:
        had = {id: each.computed_tokens for id, each in self.requests.items()}
        plan = self.scheduler.plan()
        self.steps += 1
        self.preemptions.update(plan.preempted)
        self.discarded.update({id: had[id] for id in plan.preempted})
        for piece in plan.slices:
            self.served[piece.request.tenant] += piece.length
        ends = self.scheduler.commit(plan, self.runner.execute(plan))
        self.ended_at |= {end.id: self.steps for end in ends}
        self.ends += ends
        return plan

    def run(self) -> list[Ended]:
        """Run all that there is; give the ends that came meanwhile, in their order."""
        before = len(self.ends)
        for _ in range(100):
            if not self.scheduler.has_work:
                return self.ends[before:]
            self.step()
        raise AssertionError("no end in 100 steps")

    def admissions(self, steps: int = 100) -> list[str]:
        order: list[str] = []
        while self.scheduler.has_work and steps:
            order += self.step().admitted
            steps -= 1
        return order
