"""Decides when steps under their floor are worth measuring the machine again, and says the end."""

from __future__ import annotations

from typing import Final

from core.amounts import scaled
from core.machine import Peaks, PeakSource

_PAUSE_NS: Final = 60_000_000_000  # what a measurement does not explain is a bug of ours


class PeakDoubt:
    """Holds a doubt from a violation to the next answer.

    Invariant: at most one question a minute, and none about peaks that somebody gave.
    """

    def __init__(self) -> None:
        self._violated = False
        self._not_before_ns = 0

    def step(self, violation: bool) -> None:
        self._violated |= violation

    def asks(self, peaks: Peaks, now_ns: int) -> bool:
        """Say whether to measure now; a doubt is asked once."""
        measured = any(
            peak is not None and peak.source is PeakSource.MEASURED
            for peak in (peaks.dram, peaks.cache, peaks.flops)
        )
        if not (self._violated and measured and now_ns >= self._not_before_ns):
            return False
        self._violated, self._not_before_ns = False, now_ns + _PAUSE_NS
        return True


def verdict(before: Peaks, after: Peaks) -> str:
    """Say what a measurement came to: each peak before and after, and what to do if none rose."""
    pairs = [
        ("memory", "B/s", before.dram, after.dram),
        ("from cache", "B/s", before.cache, after.cache),
        ("arithmetic", "FLOP/s", before.flops, after.flops),
    ]
    shown = [
        (name, f"{scaled(was.per_s)}{unit}", f"{scaled(now.per_s)}{unit}")
        for name, unit, was, now in pairs
        if was is not None and now is not None
    ]
    told = ", ".join(f"{name} {was} → {now}" for name, was, now in shown)
    if any(was != now for _, was, now in shown):
        return f"measured the peaks again: {told}"
    advice = "on a quiet machine try `floorline calibrate`, or give --peak-bandwidth, --peak-flops"
    return f"measured the peaks again, and none rose: {told}; {advice}"
