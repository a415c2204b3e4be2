"""What an idle engine does with its time when asked: it measures its peaks, a slice at a time.

It knows no requests: the loop calls it while no request waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from core.machine import Peaks

MeasurePeaks = Callable[[], Generator[None, None, Peaks]]  # each `next` is at most 50 ms

_PATIENCE_NS: Final = 60_000_000_000  # an engine that is never idle does not hold its memory


def no_peaks() -> Generator[None, None, Peaks]:
    """Stand in where the device cannot be measured: every peak is unknown."""
    yield from ()
    return Peaks(dram=None, cache=None, cache_bytes=0, flops=None, arithmetic="none")


class IdleMeasurement:
    """At most one measurement; it rests while there is work, and is dropped if that lasts."""

    def __init__(self, begin: MeasurePeaks) -> None:
        self._begin = begin
        self._slices: Generator[None, None, Peaks] | None = None
        self._until_ns = 0

    @property
    def under_way(self) -> bool:
        return self._slices is not None

    def ask(self, now_ns: int) -> None:
        if self._slices is None:
            self._slices, self._until_ns = self._begin(), now_ns + _PATIENCE_NS

    def run_slice(self) -> Peaks | None:
        """Measure for a slice; give the peaks after the last one."""
        assert self._slices is not None, "a slice of no measurement"
        try:
            next(self._slices)
        except StopIteration as end:
            self._slices = None
            return end.value  # type: ignore[no-any-return]
        return None

    def worked(self, now_ns: int) -> None:
        """Note that there is work; drop a measurement that has been under way too long."""
        if self._slices is not None and now_ns > self._until_ns:
            self.drop()

    def drop(self) -> None:
        """End the measurement and free its memory. Nothing is reported."""
        if self._slices is not None:
            self._slices.close()
            self._slices = None
