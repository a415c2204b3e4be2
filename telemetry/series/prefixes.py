"""Counts what the prefix index found, and what that bought. It holds no prefix."""

from __future__ import annotations

from collections.abc import Sequence

from core.wire import StepReport
from costmodel.saving import Saving
from telemetry.bill.entry import Entry, Stage
from telemetry.series.registry import NS, Instruments


class PrefixMeters:
    """Every child is bound here, once."""

    def __init__(self, make: Instruments) -> None:
        self._results = make.tallies("prefix_tokens_total", "result")
        self._cached = make.tally("tokens_total", kind="cached")
        self._saved_ns = make.tally("prefix_saved_seconds_total", NS)
        self._saved_bytes = make.tally("prefix_saved_bytes_total")

    def admitted(self, report: StepReport, entries: Sequence[Entry]) -> None:
        """Count the look-ups of a step's admissions, before their entries change stage.

        Mutates: an entry's `cached_tokens`.
        """
        if not report.admitted:
            return
        fresh = set(report.admitted)
        for piece, entry in zip(report.slices, entries, strict=True):
            if piece.id in fresh:
                self._results["hit"].add(piece.cached)
                self._results["miss"].add(entry.prompt_tokens + entry.tokens - piece.cached)
                first = entry.stage is Stage.QUEUE  # admission, as usage counts it
                if first and not entry.shares_prompt:
                    self._cached.add(piece.cached)
                    entry.cached_tokens = piece.cached

    def saved(self, saving: Saving) -> None:
        self._saved_ns.add(saving.floor_ns)
        self._saved_bytes.add(saving.bytes)
