"""The least time that a step's work could take on a device, and which term made it so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.machine import MemoryLevel, Peak, Peaks
from costmodel.work import Work


class Regime(StrEnum):
    MEMORY = "memory"
    COMPUTE = "compute"
    OVERHEAD = "overhead"  # the engine's host time exceeds both terms


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


def floor_of(work: Work, peaks: Peaks) -> Floor | None:
    """Divide work by peaks; None where a peak that is needed is unknown: never a made-up floor.

    A step that fits into the last-level cache is held against the cache's bandwidth.
    """
    level, peak = memory_peak(work.bytes_read, peaks)
    if peak is None or peaks.flops is None:
        return None
    return Floor(work.bytes_total / peak.per_s, work.flops / peaks.flops.per_s, level)


def memory_peak(bytes_read: int, peaks: Peaks) -> tuple[MemoryLevel, Peak | None]:
    """Choose the memory that the bytes can be read from when the same step ran just before."""
    if peaks.cache is not None and bytes_read <= peaks.cache_bytes:
        return MemoryLevel.CACHE, peaks.cache
    return MemoryLevel.DRAM, peaks.dram
