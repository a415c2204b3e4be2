"""What the prefix index bought in some steps: the same steps without it, minus those that ran.

Without it, the tokens that were cached are computed in that step, and no block is shared. What
their embedding rows would take is left out: the record does not say which they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from core.machine import Peaks
from costmodel.account import StepAccounts
from costmodel.floor import floors_of
from costmodel.sums import ModelSums


class Saving(NamedTuple):
    """Units: bytes, ns of floor; 0 where a peak is unknown."""

    bytes: int
    floor_ns: int


def saving_of(sums: ModelSums, peaks: Peaks, accounts: StepAccounts) -> Saving:
    """Hold each step against itself without the index, and sum what was saved.

    Invariant: no step saves less than zero, and none saves where nothing was cached or shared.
    """
    slices = accounts.slices
    if not (any(slices.shared) or slices.cached.any()):
        return Saving(0, 0)
    without = replace(
        slices,
        start=slices.start - slices.cached,
        length=slices.length + slices.cached,
        shared=[()] * slices.steps,
    )
    work = sums.works(without)
    saved_bytes = np.maximum(work.bytes_total - accounts.work.bytes_total, 0)
    known = accounts.floors.known
    saved_ns = np.maximum(floors_of(work, peaks).ns - accounts.floors.ns, 0) * known
    return Saving(int(saved_bytes.sum()), int(saved_ns.sum()))
