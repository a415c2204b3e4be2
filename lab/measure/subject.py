"""What is predicted and measured: a model at its widths, on a machine whose peaks are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from core.machine import Peak, Peaks, PeakSource
from core.model import ModelConfig
from costmodel.floor import Floor, floor_of
from costmodel.planning.sizes import Width, sums_of
from costmodel.sums import ModelSums, StepTotals
from loadgen.run.scrape import Scrape


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is measured: a model at given widths on this machine.

    Invariant: both rates of all peaks are known; without them there is nothing to predict.
    """

    config: ModelConfig
    weights: Width
    kv: Width
    peaks: Peaks
    # of other widths, where their arithmetic has peaks of its own
    peaks_by_width: Mapping[str, Peaks] = field(default_factory=dict)

    @cached_property
    def sums(self) -> ModelSums:
        return sums_of(self.config, self.weights, self.kv)

    def floor(self, work: StepTotals) -> Floor:
        """Floor a step as the server does: from the cache where it fits."""
        floor = floor_of(work, self.peaks)
        assert floor is not None
        return floor

    def decode(self, batch: int, context: int) -> Floor:
        return self.floor(self.sums.uniform_step(batch, context, 1))

    def prefill(self, tokens: int) -> Floor:
        return self.floor(self.sums.uniform_step(1, 0, tokens))

    def stored_as(self, width: Width) -> Subject:
        peaks = self.peaks_by_width.get(width.name, self.peaks)
        return replace(self, weights=width, peaks=peaks)


def peaks_of(scrape: Scrape, cache_bytes: int) -> Peaks | None:
    """Read the peaks that a server divides by; None if it does not know them."""
    source = PeakSource.MEASURED
    dram = scrape.total("floorline_peak_bytes_per_second", level="dram")
    cache = scrape.total("floorline_peak_bytes_per_second", level="cache")
    flops = scrape.total("floorline_peak_flops_per_second")
    if dram is None or flops is None:
        return None
    return Peaks(
        dram=Peak(dram, source),
        cache=None if cache is None else Peak(cache, source),
        cache_bytes=0 if cache is None else cache_bytes,
        flops=Peak(flops, source),
        arithmetic="",
    )
