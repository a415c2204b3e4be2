"""Steps that are booked together: what their requests went through, before anything is charged.

Each step finds its requests as the steps before it left them; what it cost is worked out for all of
them at once (`telemetry/books/books.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from core.request import FinishReason, RequestId
from core.wire import StepReport
from costmodel.charges import WasteCause
from telemetry.bill.entry import Entry
from telemetry.books.ledger import Ledger


class Burst:
    """Columns of steps, of slices and of tokens, each in order. A seat is a request's place here.

    Invariant: a step is in all columns or in none.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.seat_of: dict[RequestId, int] = {}  # of those who took part
        self._stops = False  # whether the server found a stop of any of them
        self.entries: list[Entry] = []  # by seat
        # of each step
        self.reports: list[StepReport] = []
        self.sent_ns: list[int] = []
        self.wasted: list[dict[int, WasteCause]] = []
        self.shared_nusd: list[int] = []  # the price of the time before it
        self.nusd: list[int] = []
        self.prompt_tokens: list[int] = []  # that became part of answers in it
        self.generated_tokens: list[int] = []
        # of each slice
        self.seats: list[int] = []
        self.rents: list[int] = []
        # of each token but an answer's first, and one that follows a preemption
        self.gap_steps: list[int] = []
        self.gaps_ns: list[int] = []

    def seats_of(self, report: StepReport) -> list[int]:
        """Seat a step's requests, one for each slice.

        Raises:
            KeyError: a request that the ledger does not know.
        """
        for piece in report.slices:
            if piece.id not in self.seat_of:
                self._sit(piece.id)
        seat_of = self.seat_of
        return [seat_of[piece.id] for piece in report.slices]

    def _sit(self, id: RequestId) -> None:
        entry = self._ledger[id]
        self.seat_of[id] = len(self.entries)
        self.entries.append(entry)
        self._stops |= entry.finish_tokens is not None

    def add(
        self, report: StepReport, sent_ns: int, seats: Sequence[int], shared_nusd: int, nusd: int
    ) -> None:
        """Add a step, its tokens apart; each slice pays rent for the blocks that it held."""
        self.reports.append(report)
        self.sent_ns.append(sent_ns)
        self.wasted.append(self._wasted(report, seats))
        self.shared_nusd.append(shared_nusd)
        self.nusd.append(nusd)
        self.prompt_tokens.append(0)
        self.generated_tokens.append(0)
        self.seats += seats
        entries, start_ns, end_ns = self.entries, report.start_ns, report.end_ns
        self.rents += [
            entries[seat].rent(piece.blocks, start_ns, end_ns)
            for seat, piece in zip(seats, report.slices, strict=True)
        ]

    def _wasted(self, report: StepReport, seats: Sequence[int]) -> dict[int, WasteCause]:
        """Find the slices that served nobody: after a stop, or of a row that failed now."""
        wasted: dict[int, WasteCause] = {}
        if self._stops:
            for index, seat in enumerate(seats):
                if self.entries[seat].overran:
                    wasted[index] = WasteCause.OVERRUN
        if report.ended:
            failed = {ended.id for ended in report.ended if ended.reason is FinishReason.FAILED}
            failed -= {id for id, _ in report.tokens}
            for index, piece in enumerate(report.slices):
                if piece.id in failed:
                    wasted.setdefault(index, WasteCause.FAILED)
        return wasted
