"""What this device can do at best, and who says so. Nothing is measured here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PeakSource(StrEnum):
    MEASURED = "measured"
    PROVEN = "proven"  # a step was faster than what was measured
    DATASHEET = "datasheet"
    GIVEN = "given"


class MemoryLevel(StrEnum):
    DRAM = "dram"
    CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Peak:
    """A rate (bytes/s or FLOP/s, by the field that holds it) and where it comes from."""

    per_s: float
    source: PeakSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The rates that floors divide by. None is unknown: no floor is made of it.

    `cache` applies to a step that reads at most `cache_bytes`: the cache that these cores really
    get, its edge included. Where `cache_curve` is known, it says more: the rate by working set.
    `flops` is in the arithmetic named by `arithmetic` ("fp32" on the torch path).
    """

    dram: Peak | None
    cache: Peak | None
    cache_bytes: int
    flops: Peak | None
    arithmetic: str
    cache_curve: tuple[tuple[int, float], ...] = ()  # sizes rise (bytes), rates fall (bytes/s)
