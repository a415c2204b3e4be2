"""What the prefix index bought in one step: the same step without it, minus the step as it ran.

Without it, the tokens that were cached are computed in that step, and no block is shared. What
their embedding rows would take is left out: the record does not say which they are.
"""

from __future__ import annotations

from typing import NamedTuple

from core.machine import Peaks
from core.wire import SliceRecord, StepReport
from costmodel.account import StepAccount
from costmodel.floor import floor_of
from costmodel.work import Arithmetic


class Saving(NamedTuple):
    """Units: bytes, ns of floor; 0 where a peak is unknown."""

    bytes: int
    floor_ns: int


def saving_of(
    arithmetic: Arithmetic, peaks: Peaks, report: StepReport, account: StepAccount
) -> Saving:
    """Hold a step against itself without the index.

    Invariant: never below zero, and zero where nothing was cached and nothing shared.
    """
    if not report.shared and not any(piece.cached for piece in report.slices):
        return Saving(0, 0)
    slices = [_whole(piece) for piece in report.slices]
    work = arithmetic.work(slices, (), report.distinct_token_ids)
    floor = floor_of(work, peaks)
    saved_ns = floor.ns - account.floor.ns if floor and account.floor else 0
    return Saving(max(work.bytes_total - account.work.bytes_total, 0), max(saved_ns, 0))


def _whole(piece: SliceRecord) -> SliceRecord:
    """The slice as it would be, had it found nothing."""
    return SliceRecord(
        id=piece.id,
        start=piece.start - piece.cached,
        length=piece.length + piece.cached,
        rows=piece.rows,
        cached=0,
        recomputed=piece.recomputed,
        blocks=piece.blocks,
    )
