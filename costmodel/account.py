"""The whole account of steps: work, floor, charges, and where their time went. Pure functions.

It knows no requests and no prices; `StepReport`s go in with the slices that turned out useless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from core.machine import Peaks
from core.wire import StepReport
from costmodel.charges import WASTE, Charges, WasteCause, charge, parts_of
from costmodel.floor import Floors, floors_of
from costmodel.slices import Slices, ints
from costmodel.split import Bools, Ints, sums_by
from costmodel.sums import ModelSums
from costmodel.work import Work


class LostCause(StrEnum):
    """Where time above the useful floor goes; disjoint."""

    RECOMPUTE = "recompute"
    OVERRUN = "overrun"
    MEMORY_SHORTFALL = "memory_shortfall"  # forward − floor, where bytes made the floor
    COMPUTE_SHORTFALL = "compute_shortfall"  # forward − floor, where FLOPs made it
    UNKNOWN_PEAK = "unknown_peak"  # forward, where there is no floor to hold it against
    SAMPLE = "sample"
    HOST = "host"  # receive, plan, prepare, commit, publish
    FAILED = "failed"
    IDLE = "idle"
    CALIBRATION = "calibration"  # an idle engine measures its peaks


_LOST_TO: Final[Mapping[WasteCause | None, LostCause]] = {
    WasteCause.RECOMPUTE: LostCause.RECOMPUTE,
    WasteCause.OVERRUN: LostCause.OVERRUN,
    WasteCause.FAILED: LostCause.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAccounts:
    """The accounts of steps as columns: a row each, or, of `charges`, one for each part.

    `lost_ns` holds at least the causes that occur.

    Invariant: useful_floor_ns + Σ lost_ns = wall_ns = Σ charged time, where anything ran.
    """

    slices: Slices
    work: Work
    floors: Floors
    regimes: Ints  # places in `REGIMES`; past its end where there is no floor
    wall_ns: Ints
    violation: Bools  # forward < floor: the model or the peak is wrong
    useful_floor_ns: Ints
    checkpoint_floor_ns: Ints  # that of it which the checkpoint's own bytes would take
    lost_ns: Mapping[LostCause, Ints]
    charges: Charges

    def lost_of(self, step: int) -> dict[LostCause, int]:
        """Say where one step's time went: what every step can lose, and what this one did."""
        by_bytes, by_flops = LostCause.MEMORY_SHORTFALL, LostCause.COMPUTE_SHORTFALL
        shortfall = by_flops if self.floors.compute_bound[step] else by_bytes
        if not self.floors.known[step]:
            shortfall = LostCause.UNKNOWN_PEAK
        always = dict.fromkeys((LostCause.SAMPLE, LostCause.HOST, shortfall), 0)
        return always | {cause: int(ns[step]) for cause, ns in self.lost_ns.items() if ns[step]}


def account_steps(
    sums: ModelSums,
    peaks: Peaks,
    reports: Sequence[StepReport],
    slices: Slices,
    wasted: Sequence[Mapping[int, WasteCause]],
    checkpoint_share: float = 1.0,
) -> StepAccounts:
    """Account for steps, of which `slices` are the columns.

    `wasted` maps, for each step, a slice's index to why all of it served nobody. `checkpoint_share`
    is what a step needs of the checkpoint over what it reads of the copy that is served.

    On a violation the floor counts as the forward time. Host time is what is neither forward nor
    sampling, so that the time law holds to the nanosecond.
    """
    work = sums.works(slices)
    floors = floors_of(work, peaks)
    wall_ns = ints([report.end_ns - report.start_ns for report in reports])
    forward_ns = ints([report.segments.forward for report in reports])
    sample_ns = ints([report.segments.sample for report in reports])
    host_ns = wall_ns - forward_ns - sample_ns
    floor_ns = np.minimum(floors.ns, forward_ns)
    charges = charge(
        sums,
        work,
        parts_of(slices, wasted),
        floor_ns=floor_ns,
        checkpoint_floor_ns=_checkpoint_floor_ns(work, peaks, floor_ns, checkpoint_share),
        time_ns=wall_ns,
        by_bytes=~floors.compute_bound,
    )
    wasted_ns = _wasted_ns(charges, slices)
    useful_floor_ns = floor_ns - sum(wasted_ns.values(), start=np.int64(0))
    lost_ns = _shortfalls(floors, forward_ns - floor_ns) | wasted_ns
    lost_ns |= {LostCause.SAMPLE: sample_ns, LostCause.HOST: host_ns}
    return StepAccounts(
        slices=slices,
        work=work,
        floors=floors,
        regimes=floors.regimes(host_ns),
        wall_ns=wall_ns,
        violation=floors.ns > forward_ns,
        useful_floor_ns=useful_floor_ns,
        checkpoint_floor_ns=_of_requests(charges, slices, useful_floor_ns),
        lost_ns=lost_ns,
        charges=charges,
    )


def _checkpoint_floor_ns(work: Work, peaks: Peaks, floor_ns: Ints, share: float) -> Ints:
    """Give the floors of the same steps on weights in the checkpoint's own bytes."""
    if share >= 1:
        return floor_ns
    smaller = replace(
        work,
        weights_bytes=(work.weights_bytes * share).astype(np.int64),
        lm_head_bytes=(work.lm_head_bytes * share).astype(np.int64),
    )
    return np.minimum(floors_of(smaller, peaks).ns, floor_ns)


def _of_requests(charges: Charges, slices: Slices, useful_floor_ns: Ints) -> Ints:
    """Sum the checkpoint's floor over the parts that served somebody."""
    if charges.checkpoint_floor_ns is charges.floor_ns:
        return useful_floor_ns
    own_ns = charges.checkpoint_floor_ns * (charges.parts.waste == 0)
    return sums_by(charges.parts.step, own_ns, slices.steps)


def _shortfalls(floors: Floors, above_ns: Ints) -> dict[LostCause, Ints]:
    """Sort the time above the floor by what made the floor."""
    by_flops, unknown = above_ns * floors.compute_bound, above_ns * ~floors.known
    return {
        LostCause.MEMORY_SHORTFALL: above_ns - by_flops - unknown,
        LostCause.COMPUTE_SHORTFALL: by_flops,
        LostCause.UNKNOWN_PEAK: unknown,
    }


def _wasted_ns(charges: Charges, slices: Slices) -> dict[LostCause, Ints]:
    """Sum the floor shares of tokens that served nobody, by why."""
    waste, step = charges.parts.waste, charges.parts.step
    return {
        _LOST_TO[WASTE[cause]]: sums_by(step, charges.floor_ns * (waste == cause), slices.steps)
        for cause in set(waste[waste > 0].tolist())
    }
