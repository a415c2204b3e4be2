"""A plan in the making: what the step's token budget still holds. It chooses nobody."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.request import Request, RequestId
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

    def schedule(self, request: Request) -> None:
        """Append as much of `request` as the budget holds."""
        length = min(request.pending_tokens, self.budget)
        samples = length == request.pending_tokens and request.max_tokens > 0
        scored = _scored(request, length)
        self.slices.append(Slice(request, request.computed_tokens, length, samples, scored))
        self.budget -= length

    def plan(self) -> StepPlan:
        return StepPlan(tuple(self.slices), tuple(self.admitted), tuple(self.preempted))


def _scored(request: Request, length: int) -> range:
    """Give the positions in its next slice that score a prompt token and were not run before."""
    if request.sampling.prompt_logprobs is None:
        return range(0)
    first = max(request.computed_tokens, request.highest_computed_tokens)
    end = min(request.computed_tokens + length, len(request.prompt_ids) - 1)
    return range(first, max(first, end))
