"""Counts what the prefix index found, and what that bought. It holds no prefix."""

from __future__ import annotations

from collections.abc import Sequence

from telemetry.books.accounts import Booked
from telemetry.series.registry import NS, Instruments


class PrefixSeries:
    """Every child is bound here, once."""

    def __init__(self, make: Instruments) -> None:
        self._results = make.counters("prefix_tokens_total", "result")
        self._saved_ns = make.counter("prefix_saved_seconds_total", NS)
        self._saved_bytes = make.counter("prefix_saved_bytes_total")

    def take(self, bursts: Sequence[Booked]) -> None:
        for facts, accounts in bursts:
            self._results["hit"].inc(facts.hit_tokens)
            self._results["miss"].inc(facts.missed_tokens)
            self._saved_ns.inc(accounts.saving.floor_ns)
            self._saved_bytes.inc(accounts.saving.bytes)
