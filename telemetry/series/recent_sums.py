"""Sums over the last seconds, in buckets of one second. The caller brings the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from costmodel.split import Floats, Ints

_NS_PER_S: Final = 1_000_000_000


class RecentSums:
    """Sums of `width` numbers over the last `seconds`.

    Cost: at most `seconds` + 1 buckets, whatever is recorded.
    """

    def __init__(self, seconds: int, width: int) -> None:
        self._seconds, self._width = seconds, width
        self._buckets: deque[tuple[int, list[float]]] = deque(maxlen=seconds + 1)

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
        if not self._buckets or self._buckets[-1][0] != second:
            self._buckets.append((second, [0.0] * self._width))
        sums = self._buckets[-1][1]
        for index, value in enumerate(values):
            sums[index] += value

    def sums(self, now_ns: int) -> list[float]:
        oldest = now_ns // _NS_PER_S - self._seconds
        recent = [values for second, values in self._buckets if second > oldest]
        return [sum(values[index] for values in recent) for index in range(self._width)]
