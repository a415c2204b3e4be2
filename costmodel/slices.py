"""The slices of several steps as columns, so that their sums are taken at once.

It knows no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from core.wire import SharedRun, SliceRecord, StepReport
from costmodel.split import Bools, Ints, sums_by


class Ran(NamedTuple):
    """What of a step's record its work follows from."""

    slices: Sequence[SliceRecord]
    shared: Sequence[SharedRun]
    distinct_token_ids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Columns with a row for each slice, in order; those up to `shared` are by step.

    Shapes: `first` [steps + 1]: step k has the `counts[k]` rows from first[k] to first[k + 1].
    """

    counts: Ints
    alone: bool  # whether each step has one slice
    first: Ints
    distinct_token_ids: Ints
    shared: Sequence[Sequence[SharedRun]]
    step: Ints
    start: Ints
    length: Ints
    rows: Ints
    cached: Ints
    recomputed: Ints

    @property
    def steps(self) -> int:
        return len(self.shared)

    def by_step(self, values: Ints | Bools) -> Ints:
        """Sum a column of slices up for each step."""
        return values * 1 if self.alone else sums_by(self.step, values, self.steps)


def ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def slices_of(steps: Sequence[StepReport | Ran]) -> Slices:
    """Take the columns of steps in their order."""
    counts = ints([len(step.slices) for step in steps])
    pieces = [piece for step in steps for piece in step.slices]
    first = np.zeros(len(steps) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    return Slices(
        counts=counts,
        alone=bool((counts == 1).all()),
        first=first,
        distinct_token_ids=ints([step.distinct_token_ids for step in steps]),
        shared=[step.shared for step in steps],
        step=np.repeat(np.arange(len(steps)), counts),
        start=ints([piece.start for piece in pieces]),
        length=ints([piece.length for piece in pieces]),
        rows=ints([piece.rows for piece in pieces]),
        cached=ints([piece.cached for piece in pieces]),
        recomputed=ints([piece.recomputed for piece in pieces]),
    )
