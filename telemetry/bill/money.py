"""Turns time into money without ever losing a nano-dollar."""

from __future__ import annotations

from typing import Final

_NS_PER_HOUR: Final = 3_600_000_000_000


class TimePrice:
    """Prices spans of time, one after another; without a price they cost 0.

    Invariant: what all spans cost is the price of their sum, rounded down once.
    """

    def __init__(self, nusd_per_hour: int | None) -> None:
        self._nusd_per_hour = nusd_per_hour or 0
        self._ns = 0
        self._nusd = 0

    def of_next(self, ns: int) -> int:
        """Give what the next `ns` cost. Units: nano-USD."""
        self._ns += ns
        total = self._ns * self._nusd_per_hour // _NS_PER_HOUR
        nusd, self._nusd = total - self._nusd, total
        return nusd
