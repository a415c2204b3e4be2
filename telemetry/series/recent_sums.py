"""Sums over the last seconds, in buckets of one second. The caller brings the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from costmodel.split import Floats, Ints

_NS_PER_S: Final = 1_000_000_000


class RecentSums:
    """Sums of `width` numbers over the last `seconds`.

    Moments may come in any order. Cost: at most twice `seconds` buckets, whatever is recorded.
    """

    def __init__(self, seconds: int, width: int) -> None:
        self._seconds, self._width = seconds, width
        self._buckets: dict[int, list[float]] = {}

    def record(self, now_ns: int, values: Sequence[float]) -> None:
        self._put(now_ns // _NS_PER_S, values)

    def record_all(self, now_ns: Ints, columns: Ints | Floats) -> None:
        """Record columns.

        Shapes: now_ns [moments]; columns [width, moments].
        """
        if len(now_ns):
            seconds = now_ns // _NS_PER_S
            first = np.concatenate(([0], 1 + np.flatnonzero(seconds[1:] != seconds[:-1])))
            sums = np.add.reduceat(columns, first, axis=1).T.tolist()
            for second, values in zip(seconds[first].tolist(), sums, strict=True):
                self._put(second, values)

    def _put(self, second: int, values: Sequence[float]) -> None:
        if second not in self._buckets:
            if len(self._buckets) >= 2 * self._seconds:
                recent = sorted(self._buckets)[-self._seconds :]
                self._buckets = {kept: self._buckets[kept] for kept in recent}
            self._buckets[second] = [0.0] * self._width
        sums = self._buckets[second]
        for index, value in enumerate(values):
            sums[index] += value

    def sums(self, now_ns: int) -> list[float]:
        oldest = now_ns // _NS_PER_S - self._seconds
        recent = [values for second, values in self._buckets.items() if second > oldest]
        return [sum(values[index] for values in recent) for index in range(self._width)]
