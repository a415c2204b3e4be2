"""What a model can do on a device that nobody has rented yet: floors, limits, the curve.

All is arithmetic at the floor: no real server is faster, most are slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from core.anatomy.parts import Anatomy
from core.machine import MemoryLevel
from costmodel.floor import Floor
from costmodel.planning.capacity import requests_that_fit, speculation_tokens_per_pass
from costmodel.planning.datasheet import Device
from costmodel.planning.sizes import Size, Width, sums_of
from costmodel.sums import ModelSums, StepTotals

_UNLIMITED: int = 2**20  # a batch that no device meets; ends the search where nothing else does


class Binding(StrEnum):
    """What stops a batch from growing."""

    MEMORY = "memory"  # no further request's KV fits
    BANDWIDTH = "bandwidth"  # one more would miss the goal, by its bytes
    COMPUTE = "compute"  # or by its FLOPs
    LINK = "link"  # or by what the devices tell each other


@dataclass(frozen=True, slots=True)
class PlanFloor(Floor):
    """A floor of one of several devices that share the work: what it tells the others, too.

    The terms may overlap at best, so the floor is the largest, not their sum.
    """

    link_s: float = 0.0

    @property
    def s(self) -> float:
        return max(self.memory_s, self.compute_s, self.link_s)

    @property
    def memory_bound(self) -> bool:
        return self.memory_s >= max(self.compute_s, self.link_s)

    @property
    def term(self) -> str:
        """Name the largest term."""
        if self.link_s > max(self.memory_s, self.compute_s):
            return "link"
        return "memory" if self.memory_bound else "compute"


@dataclass(frozen=True, slots=True)
class Speculation:
    """`cost_ratio` is what all drafts of a pass cost together, as a share of the target's pass."""

    drafts: int
    acceptance: float
    cost_ratio: float

    @property
    def tokens_per_pass(self) -> float:
        return speculation_tokens_per_pass(self.drafts, self.acceptance)


@dataclass(frozen=True, slots=True)
class Decoding:
    """Steady decode at one batch. `itl_s` is a request's time per token."""

    batch: int
    floor: PlanFloor
    work: StepTotals
    itl_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.batch / self.itl_s

    def usd_per_million_tokens(self, usd_per_hour: float) -> float:
        return usd_per_hour / 3600 / self.tokens_per_s * 1e6


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """The largest batch within a goal; 0 where not even one request meets it."""

    batch: int
    binding: Binding | None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A model at its widths, on a device, with requests of `context` tokens of known text.

    `shared` of each request's context is the same for all: held once, read once, prefilled once.
    A floor counts the fewest experts that a step can take; with `spread` those that it takes if
    its tokens choose all experts alike.
    """

    model: Anatomy | Size
    weights: Width
    kv: Width
    device: Device
    context: int
    shared: int = 0
    speculation: Speculation | None = None
    arithmetic: str = "bf16"
    spread: bool = False

    @cached_property
    def sums(self) -> ModelSums:
        return sums_of(self.model, self.weights, self.kv)

    @property
    def kv_known(self) -> bool:
        """Whether a context has a size; without one every decode is the weights' alone."""
        return self.sums.kv_token_bytes + self.sums.state_bytes > 0

    @property
    def flops_known(self) -> bool:
        return math.isfinite(self.device.flops_per_s)

    @property
    def memory_bytes(self) -> float:
        """Size the memory of all devices together."""
        return self.device.count * self.device.memory_bytes

    @cached_property
    def kv_copies(self) -> float:
        """Count how often each key is held: devices beyond the kv-heads hold what others do."""
        model = self.model
        if isinstance(model, Size):
            heads = model.kv_heads
        else:
            heads = max((store.kv_heads for store in model.stores), default=0)
        return max(self.device.count / max(heads, 1), 1.0)

    @property
    def weights_fit(self) -> bool:
        return self.sums.stored_bytes <= self.memory_bytes

    @property
    def requests_that_fit(self) -> int | None:
        """Count requests of this length beside the weights; None where that is not known."""
        if not self.weights_fit:
            return 0
        sums, held = self.sums, self.shared * self.sums.kv_token_bytes * self.kv_copies
        own = (self.context - self.shared) * sums.kv_token_bytes * self.kv_copies
        own += sums.state_bytes
        if math.isinf(self.memory_bytes) or not self.kv_known:
            return None
        if not own:
            return _UNLIMITED if sums.stored_bytes + held <= self.memory_bytes else 0
        return requests_that_fit(self.memory_bytes, sums.stored_bytes + held, own)

    def fits(self, batch: int) -> bool | None:
        """Say whether the memory holds `batch` requests; None where that is not known."""
        fit = self.requests_that_fit
        return None if fit is None else batch <= fit

    def weights_alone(self) -> PlanFloor:
        """Floor one token at batch 1 as if there were no context: the line everybody quotes."""
        sums = self.sums
        flops = sums.linear_flops_per_token + sums.lm_head_flops_per_row
        return self._floor(StepTotals(weight_bytes=sums.least_weight_bytes, flops=flops), 1)

    def decode(self, batch: int) -> Decoding:
        """Floor the decode of `batch` requests; with speculation a pass checks all drafts too."""
        tokens, spec = 1 + (self.speculation.drafts if self.speculation else 0), self.speculation
        work = self._step(batch, self.context, tokens, tokens, self.shared)
        floor = self._floor(work, batch * tokens)
        itl_s = floor.s * (1 + spec.cost_ratio) / spec.tokens_per_pass if spec else floor.s
        return Decoding(batch, floor, work, itl_s)

    def prefill(self, requests: int = 1) -> PlanFloor:
        """Floor the prompts of `requests` that come at once: the last one's time to first token."""
        known = self.shared if self.shared < self.context else self.context - 1
        work = self._step(requests, known, self.context - known, 1, known)
        return self._floor(work, requests * (self.context - known))

    def _step(self, requests: int, context: int, tokens: int, rows: int, shared: int) -> StepTotals:
        work = self.sums.uniform_step(requests, context, tokens, rows, shared)
        experts = self.sums.experts if self.spread else None
        if experts is None:
            return work
        more = experts.spread_bytes(requests * tokens)
        return replace(work, weight_bytes=work.weight_bytes + more)

    def largest_batch(self, itl_s: float) -> BatchLimit:
        """Find the largest batch whose ITL is within `itl_s`; more requests never lower it."""
        fit, most = self.requests_that_fit, self._most
        if not self.weights_fit:
            return BatchLimit(0, Binding.MEMORY)
        batch = _last(most, lambda batch: self.decode(batch).itl_s <= itl_s)
        if batch == most:
            return BatchLimit(batch, None if fit is None else Binding.MEMORY)
        term = self.decode(batch + 1).floor.term
        return BatchLimit(batch, Binding.BANDWIDTH if term == "memory" else Binding(term))

    def prompts_within(self, ttft_s: float) -> int:
        """Count the prompts that fit, may come at once and all have their first token in time."""
        return _last(self._most, lambda requests: self.prefill(requests).s <= ttft_s)

    @property
    def _most(self) -> int:
        fit = self.requests_that_fit
        return _UNLIMITED if fit is None else min(fit, _UNLIMITED)

    def _floor(self, work: StepTotals, tokens: int) -> PlanFloor:
        """Divide what one of the devices moves, computes and sends by its rates."""
        device, count = self.device, self.device.count
        kv_bytes = work.kv_bytes * self.kv_copies
        bytes_ = (work.weight_bytes + work.state_bytes + kv_bytes) / count
        flops = work.flops / count
        sent_s = 0.0
        if device.link_bytes_per_s:
            sent_s = self.sent_bytes(tokens) / device.link_bytes_per_s
        memory_s, compute_s = bytes_ / device.bytes_per_s, flops / device.rate(self.arithmetic)
        return PlanFloor(memory_s, compute_s, MemoryLevel.DRAM, sent_s)

    def sent_bytes(self, tokens: int) -> float:
        """Size what each device sends: two all-reduces a layer of 16-bit hidden states.

        Each number leaves a device at least 2 (n − 1) / n times.
        Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", theorem 1.
        """
        model, count = self.model, self.device.count
        if isinstance(model, Size):
            layers, hidden = model.layers, model.hidden
        else:
            layers, hidden = model.layers, model.hidden_size
        return 2 * layers * tokens * hidden * 2 * 2 * (count - 1) / count


def _last(most: int, holds: Callable[[int], bool]) -> int:
    """Find the largest n of 1..most that holds, where all below one that holds do; 0 for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def curve(scenario: Scenario, through: int) -> list[Decoding]:
    """Sample decode at powers of two, at `through`, and at the most that fit.

    Empty where nothing fits, and where no batch is known because the KV is not.
    """
    if not (scenario.weights_fit and scenario.kv_known):
        return []
    fit = scenario.requests_that_fit
    most = max(256, through) if fit is None else min(fit, 4096)
    batches = {2**k for k in range(13) if 2**k <= most} | {most, through}
    return [scenario.decode(batch) for batch in sorted(batches) if 1 <= batch <= most]
