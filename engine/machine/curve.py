"""How fast memory is read, by how much is read over and over: where the cache ends, and what is
reached past it. Nothing is measured here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_PLATEAU: Final = 1.15  # up to so much faster than the largest set, a set is read from memory too
_INSIDE: Final = 4  # a set of this fraction of the cache's size is well inside it


@dataclass(frozen=True, slots=True)
class Curve:
    """The best rate for each size of working set that was read.

    Units: bytes, bytes/s.
    Invariant: sizes rise; there is at least one.
    """

    points: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, points: Iterable[tuple[int, float]]) -> Curve:
        """Order the points; of one size, the faster counts."""
        best: dict[int, float] = {}
        for size, per_s in points:
            best[size] = max(per_s, best.get(size, 0.0))
        return cls(tuple(sorted(best.items())))

    def joined(self, other: Curve) -> Curve:
        return Curve.of((*self.points, *other.points))

    @property
    def memory_per_s(self) -> float:
        """Give the best rate of the plateau that the largest sets are on."""
        return max(per_s for _, per_s in self.points[self._first_on_plateau() :])

    @property
    def cache_bytes(self) -> int:
        """Give the smallest working set that gains nothing from the cache; 0 if no cache was seen.

        Between the last set that was faster and this one lies the cache's edge. Up to here a step
        is held against the faster rate, so that no floor is too high.
        """
        first = self._first_on_plateau()
        return self.points[first][0] if first else 0

    @property
    def cache_per_s(self) -> float:
        """Give the rate well inside the last-level cache; memory's where no cache was seen."""
        inside = self.in_cache
        if not inside:
            return self.memory_per_s
        sizes = [size for size, _ in inside]
        return inside[max(bisect_right(sizes, self.cache_bytes // _INSIDE) - 1, 0)][1]

    @property
    def in_cache(self) -> tuple[tuple[int, float], ...]:
        """Give the part that the cache makes fast. A set reaches at least what larger ones do."""
        best, falling = 0.0, []
        for size, per_s in reversed(self.points):
            best = max(best, per_s)
            falling.append((size, best))
        return tuple(reversed(falling))[: self._first_on_plateau()]

    def _first_on_plateau(self) -> int:
        limit = self.points[-1][1] * _PLATEAU
        first = len(self.points) - 1
        while first > 0 and self.points[first - 1][1] <= limit:
            first -= 1
        return first
