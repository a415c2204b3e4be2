"""What a plan is about to do, as records that cross the socket. It decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from core.step import Slice, StepPlan
from core.wire import SharedRun, SliceRecord


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """What a plan reads, written down before its step: tokens may be dropped while it runs."""

    slices: tuple[SliceRecord, ...]
    shared: tuple[SharedRun, ...]  # context that several slices read
    distinct_token_ids: int  # rows of the input embedding


def slice_records(plan: StepPlan) -> tuple[SliceRecord, ...]:
    """Describe each slice, in plan order.

    Invariant: called before `commit`, which moves the counters that are read here and gives the
        blocks of the finished back.
    """
    admitted = frozenset(plan.admitted)
    return tuple(_record(piece, piece.request.id in admitted) for piece in plan.slices)


def _record(piece: Slice, admitted: bool) -> SliceRecord:
    request = piece.request
    return SliceRecord(
        id=request.id,
        start=piece.start,
        length=piece.length,
        rows=piece.rows,
        cached=piece.start if admitted else 0,
        recomputed=min(max(request.highest_computed_tokens - piece.start, 0), piece.length),
        blocks=len(request.block_table),
    )


def distinct_token_ids(plan: StepPlan) -> int:
    """Count the rows of the input embedding that the step reads.

    Cost: O(tokens of the step).
    """
    return len(
        {
            piece.request.token_at(position)
            for piece in plan.slices
            for position in range(piece.start, piece.start + piece.length)
        }
    )
