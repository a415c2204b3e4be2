"""Turns time into money without ever losing a nano-dollar."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from typing import Final

_NS_PER_HOUR: Final = 3_600_000_000_000


class TimePrice:
    """Prices spans of time, one after another; without a price they cost 0.

    Invariant: what all spans cost is the price of their sum, rounded down once.
    """

    def __init__(self, nusd_per_hour: int | None) -> None:
        self._nusd_per_hour = nusd_per_hour or 0
        self._ns = 0

    def of_next(self, ns: int) -> int:
        """Give what the next `ns` cost. Units: nano-USD."""
        return self.of_all([ns])[0]

    def of_all(self, spans_ns: Sequence[int]) -> list[int]:
        """Give what each of the next spans costs."""
        until_ns = list(accumulate(spans_ns, initial=self._ns))
        nusd = [ns * self._nusd_per_hour // _NS_PER_HOUR for ns in until_ns]
        self._ns = until_ns[-1]
        return list(map(sub, nusd[1:], nusd))
