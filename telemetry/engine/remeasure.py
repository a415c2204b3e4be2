"""Decides when steps under their floor are worth measuring the machine again, and says the end."""

from __future__ import annotations

from typing import Final

from core.inputs.quantities import scaled
from core.machine import Peak, Peaks, PeakSource
from costmodel.split import Bools

_LEAST_PAUSE_NS: Final = 60_000_000_000
_MOST_PAUSE_NS: Final = 3_600_000_000_000
_DOUBTED: Final = (PeakSource.MEASURED, PeakSource.PROVEN)
_RISE: Final = 1.01  # less is noise


class PeakDoubt:
    """Holds a doubt from a violation to the next answer.

    Invariant: at most one question a minute, and none about peaks that somebody gave. What a
        measurement does not explain is a bug of ours: the pause doubles, up to an hour, until one
        raises a peak.
    """

    def __init__(self) -> None:
        self._memory = self._arithmetic = False  # which kind of peak is in doubt
        self._not_before_ns, self._pause_ns = 0, _LEAST_PAUSE_NS

    def steps(self, violations: Bools, compute_bound: Bools) -> None:
        """Hear which steps were under their floor, and whether FLOPs made it."""
        if violations.any():
            self._memory |= bool((violations & ~compute_bound).any())
            self._arithmetic |= bool((violations & compute_bound).any())

    def asks(self, peaks: Peaks, now_ns: int) -> bool:
        """Say whether to measure now; a doubt is asked once."""
        helps = (self._memory and _measured(peaks.dram, peaks.cache)) or (
            self._arithmetic and _measured(peaks.flops)
        )
        if not helps or now_ns < self._not_before_ns:
            return False
        self._memory = self._arithmetic = False
        self._not_before_ns = now_ns + self._pause_ns
        return True

    def answered(self, before: Peaks, after: Peaks) -> str:
        """Doubt as readily as at first, if the measurement raised a peak; say what it came to."""
        was, now = _rates(before), _rates(after)
        if len(was) != len(now) or any(b > _RISE * a for a, b in zip(was, now, strict=True)):
            self._pause_ns = _LEAST_PAUSE_NS
        else:
            self._pause_ns = min(2 * self._pause_ns, _MOST_PAUSE_NS)
        return verdict(before, after)


def _measured(*peaks: Peak | None) -> bool:
    return any(peak is not None and peak.source in _DOUBTED for peak in peaks)


def _rates(peaks: Peaks) -> list[float]:
    curve = (per_s for _, per_s in peaks.cache_curve)
    known = (peak.per_s for peak in (peaks.dram, peaks.cache, peaks.flops) if peak is not None)
    return [*known, *curve]


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
