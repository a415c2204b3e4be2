"""A plan in the making: what the step may still carry. It chooses nobody."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.request import Phase, Request, RequestId
from core.step import Slice, StepPlan
from scheduler.pace import Load, Pace
from scheduler.shares import Shares


@dataclass(slots=True)
class Draft:
    """What the step does so far.

    Units: `budget` is the tokens that it may still schedule, `load` what it carries.
    """

    budget: int
    shares: Shares
    pace: Pace | None = None
    slices: list[Slice] = field(default_factory=list)
    admitted: list[RequestId] = field(default_factory=list)
    preempted: list[RequestId] = field(default_factory=list)
    load: Load = field(default_factory=Load)
    pressed: bool = False  # a running request found no block
    promised: set[bytes] = field(default_factory=set)  # keys of blocks that this step fills

    def __post_init__(self) -> None:
        if self.pace:
            self.load = self.pace.load()

    def room(self, pending: int, start: int) -> int:
        """Count the tokens that a request may run of its `pending` ones, from `start` on."""
        most = min(pending, self.budget)
        if self.pace is None or pending == 1:
            return most
        return min(most, self.pace.prompt_tokens(self.load, start))

    def schedule(self, request: Request, length: int) -> None:
        """Append the next `length` tokens of `request`, and charge its tenant for them."""
        start, whole = request.computed_tokens, length == request.pending_tokens
        samples = whole and request.max_tokens > 0
        self.slices.append(Slice(request, start, length, samples, _scored(request, length)))
        self.budget -= length
        self.shares.charge(request.tenant, length)
        if self.pace is not None:
            self.load.add(start, length)
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
