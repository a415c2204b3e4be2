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
from costmodel.work import Work


class Regime(StrEnum):
    MEMORY = "memory"
    COMPUTE = "compute"
    OVERHEAD = "overhead"  # the engine's host time exceeds both terms


REGIMES: Final = tuple(Regime)  # a column names a regime by its place here
_MEMORY, _COMPUTE, _OVERHEAD = range(3)


@dataclass(frozen=True, slots=True)
class Floor:
    """Both terms of a step's floor.

    Units: seconds.
    """

    memory_s: float
    compute_s: float
    level: MemoryLevel

    @property
    def s(self) -> float:
        return max(self.memory_s, self.compute_s)

    @property
    def ns(self) -> int:
        """The floor in whole nanoseconds, rounded down so that it stays a lower bound."""
        return int(self.s * 1e9)

    @property
    def memory_bound(self) -> bool:
        return self.memory_s >= self.compute_s

    def regime(self, host_ns: int) -> Regime:
        if host_ns > self.ns:
            return Regime.OVERHEAD
        return Regime.MEMORY if self.memory_bound else Regime.COMPUTE


@dataclass(frozen=True, slots=True)
class Floors:
    """The floors of many steps as columns; NaN where a peak that is needed is unknown.

    Invariant: each row says what its `Floor` does.
    """

    memory_s: Floats
    compute_s: Floats
    in_cache: Bools

    def __getitem__(self, step: int) -> Floor | None:
        memory_s, compute_s = float(self.memory_s[step]), float(self.compute_s[step])
        if math.isnan(memory_s + compute_s):
            return None
        level = MemoryLevel.CACHE if self.in_cache[step] else MemoryLevel.DRAM
        return Floor(memory_s, compute_s, level)

    @property
    def s(self) -> Floats:
        return np.maximum(self.memory_s, self.compute_s)

    @property
    def known(self) -> Bools:
        return ~np.isnan(self.s)

    @property
    def ns(self) -> Ints:
        """As `Floor.ns`; 0 where there is none."""
        return (np.where(self.known, self.s, 0.0) * 1e9).astype(np.int64)

    @property
    def compute_bound(self) -> Bools:
        return self.memory_s < self.compute_s

    def regimes(self, host_ns: Ints) -> Ints:
        """Give each step's place in `REGIMES`; past its end where there is no floor."""
        bound = np.where(self.compute_bound, _COMPUTE, _MEMORY)
        places = np.where(host_ns > self.ns, _OVERHEAD, bound)
        return np.where(self.known, places, len(REGIMES))


def floor_of(work: Work[int], peaks: Peaks) -> Floor | None:
    """Divide work by peaks; None where a peak that is needed is unknown: never a made-up floor.

    A step that fits into the cache is held against the cache's bandwidth.
    """
    level, peak = memory_peak(work.bytes_read, peaks)
    if peak is None or peaks.flops is None:
        return None
    return Floor(work.bytes_total / peak.per_s, work.flops / peaks.flops.per_s, level)


def floors_of(work: Work[Ints], peaks: Peaks) -> Floors:
    """Divide the work of many steps by peaks, each as `floor_of` does."""
    in_cache = work.bytes_read <= (-1 if peaks.cache is None else peaks.cache_bytes)
    per_s = np.where(in_cache, _cache_rates(work.bytes_read, peaks), _rate(peaks.dram))
    return Floors(work.bytes_total / per_s, work.flops / _rate(peaks.flops), in_cache)


def _rate(peak: Peak | None) -> float:
    return math.nan if peak is None else peak.per_s


def _cache_rates(bytes_read: Ints, peaks: Peaks) -> Floats:
    """Give each step the rate of the largest set that is no larger than its own: never too low."""
    sizes, rates = zip(*peaks.cache_curve or ((0, _rate(peaks.cache)),), strict=True)
    places = np.searchsorted(np.asarray(sizes), bytes_read, side="right") - 1
    return np.asarray(rates, np.float64)[np.maximum(places, 0)]


def memory_peak(bytes_read: int, peaks: Peaks) -> tuple[MemoryLevel, Peak | None]:
    """Choose the memory that the bytes can be read from when the same step ran just before."""
    if peaks.cache is None or bytes_read > peaks.cache_bytes:
        return MemoryLevel.DRAM, peaks.dram
    if not peaks.cache_curve:
        return MemoryLevel.CACHE, peaks.cache
    place = bisect_right(peaks.cache_curve, bytes_read, key=itemgetter(0)) - 1
    return MemoryLevel.CACHE, Peak(peaks.cache_curve[max(place, 0)][1], peaks.cache.source)
