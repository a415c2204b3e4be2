"""A plan in the making: what the step's token budget still holds. It chooses nobody."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.request import Phase, Request, RequestId
from core.step import Slice, StepPlan


@dataclass(slots=True)
class Draft:
    """What the step does so far.

    Units: `budget` is the tokens that it may still schedule.
    """

    budget: int
    slices: list[Slice] = field(default_factory=list)
    admitted: list[RequestId] = field(default_factory=list)
    preempted: list[RequestId] = field(default_factory=list)
    pressed: bool = False  # a running request found no block
    promised: set[bytes] = field(default_factory=set)  # keys of blocks that this step fills

    def schedule(self, request: Request) -> None:
        """Append as much of `request` as the budget holds."""
        length = min(request.pending_tokens, self.budget)
        samples = length == request.pending_tokens and request.max_tokens > 0
        scored = _scored(request, length)
        self.slices.append(Slice(request, request.computed_tokens, length, samples, scored))
        self.budget -= length
        if samples and request.phase is Phase.PREFILL:
            self.promised.update(request.block_keys[request.indexed_blocks :])

    def promises(self, request: Request, found_blocks: int) -> bool:
        """Whether others can find more of `request` once this step is done."""
        return not self.promised.isdisjoint(request.block_keys[found_blocks : found_blocks + 1])

    def plan(self) -> StepPlan:
        return StepPlan(tuple(self.slices), tuple(self.admitted), tuple(self.preempted))


def _scored(request: Request, length: int) -> range:
    """Give the positions in its next slice that score a prompt token and were not run before."""
    if request.sampling.prompt_logprobs is None:
        return range(0)
    first = max(request.computed_tokens, request.highest_computed_tokens)
    end = min(request.computed_tokens + length, len(request.prompt_ids) - 1)
    return range(first, max(first, end))
