"""The least time that a step's work could take on a device, and which term made it so."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Final

import numpy as np

from core.machine import MemoryLevel, Peak, Peaks
from costmodel.split import Bools, Floats, Ints
from costmodel.sums import StepTotals
from costmodel.work import Work


class Regime(StrEnum):
    MEMORY = "memory"
    COMPUTE = "compute"
    OVERHEAD = "overhead"  # the engine's host time exceeds both terms


REGIMES: Final = tuple(Regime)  # a column names a regime by its place here
_MEMORY, _COMPUTE, _OVERHEAD = range(3)


@dataclass(frozen=True, slots=True)
class Floor:
    """Both terms of one step's floor, in plain numbers: what plans and predictions ask for.

    Units: seconds.
    """

    memory_s: float
    compute_s: float
    level: MemoryLevel

    @property
    def s(self) -> float:
        return max(self.memory_s, self.compute_s)

    @property
    def memory_bound(self) -> bool:
        return self.memory_s >= self.compute_s


@dataclass(frozen=True, slots=True)
class Floors:
    """The floors of steps that ran, as columns; NaN where a peak that is needed is unknown."""

    memory_s: Floats
    compute_s: Floats
    s: Floats
    known: Bools
    ns: Ints  # rounded down, so that it stays a lower bound; 0 where there is none
    compute_bound: Bools

    def regimes(self, host_ns: Ints) -> Ints:
        """Give each step's place in `REGIMES`; past its end where there is no floor."""
        bound = np.where(self.compute_bound, _COMPUTE, _MEMORY)
        places = np.where(host_ns > self.ns, _OVERHEAD, bound)
        return np.where(self.known, places, len(REGIMES))


def floor_of(step: StepTotals, peaks: Peaks) -> Floor | None:
    """Divide a step's sums by peaks; None where a peak that is needed is unknown."""
    level, peak = memory_peak(step.bytes, peaks)
    if peak is None or peaks.flops is None:
        return None
    return Floor(step.bytes / peak.per_s, step.flops / peaks.flops.per_s, level)


def floors_of(work: Work, peaks: Peaks) -> Floors:
    """Divide the work of each step by peaks; never by a made-up one.

    A step that fits into the cache is held against the cache's bandwidth.
    """
    in_cache = work.bytes_read <= (-1 if peaks.cache is None else peaks.cache_bytes)
    per_s = np.where(in_cache, _cache_rates(work.bytes_read, peaks), _rate(peaks.dram))
    memory_s, compute_s = work.bytes_total / per_s, work.flops / _rate(peaks.flops)
    s = np.maximum(memory_s, compute_s)
    known = ~np.isnan(s)
    ns = (np.where(known, s, 0.0) * 1e9).astype(np.int64)
    return Floors(memory_s, compute_s, s, known, ns, memory_s < compute_s)


def _rate(peak: Peak | None) -> float:
    return math.nan if peak is None else peak.per_s


def _cache_rates(bytes_read: Ints, peaks: Peaks) -> Floats:
    """Give each step the rate of the largest set that is no larger than its own: never too low."""
    sizes, rates = zip(*peaks.cache_curve or ((0, _rate(peaks.cache)),), strict=True)
    places = np.searchsorted(np.asarray(sizes), bytes_read, side="right") - 1
    return np.asarray(rates, np.float64)[np.maximum(places, 0)]


def memory_peak(bytes_read: int, peaks: Peaks) -> tuple[MemoryLevel, Peak | None]:
    """Choose the memory that the bytes can be read from when the same step ran just before.

    Cost: the engine asks between steps, where columns of one number would take ten times as long.
    """
    if peaks.cache is None or bytes_read > peaks.cache_bytes:
        return MemoryLevel.DRAM, peaks.dram
    if not peaks.cache_curve:
        return MemoryLevel.CACHE, peaks.cache
    place = bisect_right(peaks.cache_curve, bytes_read, key=itemgetter(0)) - 1
    return MemoryLevel.CACHE, Peak(peaks.cache_curve[max(place, 0)][1], peaks.cache.source)
