"""What a model can do on a device that nobody has rented yet: floors, limits, the curve.

All is arithmetic at the floor: no real server is faster, most are slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from core.machine import MemoryLevel
from core.model import ModelConfig
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
    floor: Floor
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
    """

    model: ModelConfig | Size
    weights: Width
    kv: Width
    device: Device
    context: int
    shared: int = 0
    speculation: Speculation | None = None

    @cached_property
    def sums(self) -> ModelSums:
        return sums_of(self.model, self.weights, self.kv)

    @property
    def kv_known(self) -> bool:
        """Whether a context has a size; without one every decode is the weights' alone."""
        return self.sums.kv_token_bytes > 0

    @property
    def flops_known(self) -> bool:
        return math.isfinite(self.device.flops_per_s)

    @property
    def weights_fit(self) -> bool:
        return self.sums.stored_bytes <= self.device.memory_bytes

    @property
    def requests_that_fit(self) -> int | None:
        """Count requests of this length beside the weights; None where that is not known."""
        if not self.weights_fit:
            return 0
        sums, held = self.sums, self.shared * self.sums.kv_token_bytes
        own = (self.context - self.shared) * sums.kv_token_bytes
        if math.isinf(self.device.memory_bytes) or not self.kv_known:
            return None
        if not own:
            return _UNLIMITED if sums.stored_bytes + held <= self.device.memory_bytes else 0
        return requests_that_fit(self.device.memory_bytes, sums.stored_bytes + held, own)

    def fits(self, batch: int) -> bool | None:
        """Say whether the memory holds `batch` requests; None where that is not known."""
        fit = self.requests_that_fit
        return None if fit is None else batch <= fit

    def weights_alone(self) -> Floor:
        """Floor one token at batch 1 as if there were no context: the line everybody quotes."""
        sums = self.sums
        flops = sums.linear_flops_per_token + sums.lm_head_flops_per_row
        return self._floor(sums.least_weight_bytes, flops)

    def decode(self, batch: int) -> Decoding:
        """Floor the decode of `batch` requests; with speculation a pass checks all drafts too."""
        drafts = self.speculation.drafts if self.speculation else 0
        work = self.sums.uniform_step(batch, self.context, 1 + drafts, 1 + drafts, self.shared)
        floor, spec = self._floor(work.bytes, work.flops), self.speculation
        itl_s = floor.s * (1 + spec.cost_ratio) / spec.tokens_per_pass if spec else floor.s
        return Decoding(batch, floor, work, itl_s)

    def prefill(self, requests: int = 1) -> Floor:
        """Floor the prompts of `requests` that come at once: the last one's time to first token."""
        known = self.shared if self.shared < self.context else self.context - 1
        work = self.sums.uniform_step(requests, known, self.context - known, 1, known)
        return self._floor(work.bytes, work.flops)

    def largest_batch(self, itl_s: float) -> BatchLimit:
        """Find the largest batch whose ITL is within `itl_s`; more requests never lower it."""
        fit, most = self.requests_that_fit, self._most
        if not self.weights_fit:
            return BatchLimit(0, Binding.MEMORY)
        batch = _last(most, lambda batch: self.decode(batch).itl_s <= itl_s)
        if batch == most:
            return BatchLimit(batch, None if fit is None else Binding.MEMORY)
        by_bytes = self.decode(batch + 1).floor.memory_bound
        return BatchLimit(batch, Binding.BANDWIDTH if by_bytes else Binding.COMPUTE)

    def prompts_within(self, ttft_s: float) -> int:
        """Count the prompts that fit, may come at once and all have their first token in time."""
        return _last(self._most, lambda requests: self.prefill(requests).s <= ttft_s)

    @property
    def _most(self) -> int:
        fit = self.requests_that_fit
        return _UNLIMITED if fit is None else min(fit, _UNLIMITED)

    def _floor(self, bytes_: int, flops: int) -> Floor:
        device = self.device
        return Floor(bytes_ / device.bytes_per_s, flops / device.flops_per_s, MemoryLevel.DRAM)


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
