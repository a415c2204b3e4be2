"""One step's whole account: work, floor, charges, and where its time went. A pure function.

It knows no requests and no prices; a `StepReport` goes in with the slices that turned out useless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.machine import Peaks
from core.wire import StepReport
from costmodel.charges import Charge, WasteCause, charge, parts_of
from costmodel.floor import Floor, Regime, floor_of
from costmodel.work import Arithmetic, Work


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAccount:
    """Invariant: useful_floor_ns + Σ lost_ns = wall_ns = Σ charged time, where anything ran."""

    work: Work
    floor: Floor | None
    regime: Regime | None
    wall_ns: int
    violation: bool  # forward < floor: the model or the peak is wrong
    useful_floor_ns: int
    lost_ns: Mapping[LostCause, int]
    charges: tuple[Charge, ...]


def account_step(
    arithmetic: Arithmetic,
    peaks: Peaks,
    report: StepReport,
    wasted: Mapping[int, WasteCause],
) -> StepAccount:
    """Account for a step; `wasted` maps a slice's index to why all of it served nobody.

    On a violation the floor counts as the forward time. Host time is what is neither forward nor
    sampling, so that the time law holds to the nanosecond.
    """
    segments = report.segments
    wall_ns = report.end_ns - report.start_ns
    host_ns = wall_ns - segments.forward - segments.sample
    work = arithmetic.work(report.slices, report.shared, report.distinct_token_ids)
    floor = floor_of(work, peaks)
    floor_ns = 0 if floor is None else min(floor.ns, segments.forward)
    by_bytes = floor is None or floor.memory_bound
    parts = parts_of(report.slices, wasted)
    charges = charge(arithmetic, work, parts, floor_ns=floor_ns, time_ns=wall_ns, by_bytes=by_bytes)
    lost_ns = {
        _shortfall(floor): segments.forward - floor_ns,
        LostCause.SAMPLE: segments.sample,
        LostCause.HOST: host_ns,
    }
    wasted_ns = 0
    for item in charges:
        if item.part.waste is not None:
            cause = LostCause(item.part.waste.value)
            lost_ns[cause] = lost_ns.get(cause, 0) + item.floor_ns
            wasted_ns += item.floor_ns
    return StepAccount(
        work=work,
        floor=floor,
        regime=None if floor is None else floor.regime(host_ns),
        wall_ns=wall_ns,
        violation=floor is not None and segments.forward < floor.ns,
        useful_floor_ns=floor_ns - wasted_ns,
        lost_ns=lost_ns,
        charges=tuple(charges),
    )


def _shortfall(floor: Floor | None) -> LostCause:
    if floor is None:
        return LostCause.UNKNOWN_PEAK
    return LostCause.MEMORY_SHORTFALL if floor.memory_bound else LostCause.COMPUTE_SHORTFALL
