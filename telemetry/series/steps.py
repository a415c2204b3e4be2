"""Counts steps: durations, floors, bytes, FLOPs and where the time went. It knows no request."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import numpy as np

from core.machine import MemoryLevel, Peaks
from costmodel.account import LostCause, StepAccounts
from costmodel.floor import REGIMES, Regime
from costmodel.slices import ints
from costmodel.split import Bools, sums_by
from costmodel.work import Work
from telemetry.books.accounts import BurstAccounts
from telemetry.books.facts import KINDS, Facts, StepKind
from telemetry.engine.clock import Spans
from telemetry.series.recent_sums import RecentSums
from telemetry.series.registry import NS, Counter, Instruments

_BUSY_WINDOW_S: Final = 10


class _KindSeries:
    """The series of steps of one kind."""

    def __init__(self, make: Instruments, kind: StepKind) -> None:
        self._duration = make.histogram("step_duration_seconds", kind=kind)
        self._floor = make.histogram("step_floor_seconds", kind=kind)
        self._efficiency = make.histogram("step_efficiency_ratio", kind=kind)
        self._requests = make.histogram("step_batch_requests", kind=kind)
        self._tokens = make.histogram("step_batch_tokens", kind=kind)
        self._intensity = make.histogram("arithmetic_intensity_flops_per_byte", kind=kind)
        self._useful = {
            regime: make.counter("floor_seconds_total", NS, kind=kind, regime=str(regime))
            for regime in Regime
        }

    def take(self, here: Bools, accounts: StepAccounts) -> None:
        """Count the steps for which `here` is true."""
        slices, work, wall_s = accounts.slices, accounts.work, accounts.wall_ns * NS
        self._duration.observe_all(wall_s[here])
        self._requests.observe_all(slices.counts[here])
        self._tokens.observe_all(sums_by(slices.step, slices.length, slices.steps)[here])
        bytes_total = work.bytes_total
        moved = here & (bytes_total > 0)
        self._intensity.observe_all(work.flops[moved] / bytes_total[moved])
        floor_s, floored = accounts.floors.s, here & accounts.floors.known
        self._floor.observe_all(floor_s[floored])
        timed = floored & (wall_s > 0)
        self._efficiency.observe_all(floor_s[timed] / wall_s[timed])
        useful_ns = accounts.useful_floor_ns
        for regime, counter in self._useful.items():
            counter.inc(int(useful_ns[here & (accounts.regimes == REGIMES.index(regime))].sum()))


class StepSeries:
    """Every child is bound here, once, except for a cause that is rare."""

    def __init__(self, make: Instruments) -> None:
        self._make = make
        self._kinds = {kind: _KindSeries(make, kind) for kind in KINDS}
        self._lost: dict[LostCause, Counter] = {
            cause: make.counter("lost_seconds_total", NS, cause=str(cause))
            for cause in LostCause
            if cause is not LostCause.UNKNOWN_PEAK  # bound when it first occurs
        }
        self._wall = make.counter("engine_wall_seconds_total", NS)
        self._segments = make.counters("step_segment_seconds_total", "segment", NS)
        self._violations = make.counter("floor_violations_total")
        self._read = tuple(
            make.counter("bytes_moved_total", op="read", component=component)
            for component in ("weights", "lm_head", "embedding", "kv")
        )
        self._written = make.counter("bytes_moved_total", op="write", component="kv")
        self._flops = tuple(
            make.counter("flops_total", component=component)
            for component in ("linear", "attention", "lm_head")
        )
        self._mbu = make.gauge("bandwidth_utilization_ratio")
        self._mfu = make.gauge("flops_utilization_ratio")
        self._busy = RecentSums(_BUSY_WINDOW_S, 3)  # step, bytes / peak, FLOPs / peak; in s

    def peaks(self, peaks: Peaks) -> None:
        """Export the peaks that floors divide by; an unknown peak has no series."""
        for name in ("peak_bytes_per_second", "peak_flops_per_second"):
            self._make.clear(name)
        for level, peak in ((MemoryLevel.DRAM, peaks.dram), (MemoryLevel.CACHE, peaks.cache)):
            if peak is not None:
                self._make.gauge(
                    "peak_bytes_per_second", source=str(peak.source), level=str(level)
                ).set(peak.per_s)
        if peaks.flops is not None:
            self._make.gauge(
                "peak_flops_per_second",
                source=str(peaks.flops.source),
                arithmetic=peaks.arithmetic,
            ).set(peaks.flops.per_s)

    def take(self, facts: Facts, accounts: BurstAccounts) -> None:
        """Count the steps of a burst, and the time before each."""
        steps = accounts.steps
        for kind in sorted(set(facts.kinds.tolist())):
            self._kinds[KINDS[kind]].take(facts.kinds == kind, steps)
        known, ends_ns = steps.floors.known, ints([report.end_ns for report in facts.reports])
        busy = steps.wall_ns * NS, steps.floors.memory_s, steps.floors.compute_s
        self._busy.record_all(ends_ns[known], [column[known] for column in busy])
        self.spans(facts.spans)
        for cause, ns in steps.lost_ns.items():
            self.lost(cause, int(ns.sum()))
        segments = [report.segments for report in facts.reports]
        for name, counter in self._segments.items():
            counter.inc(sum(map(attrgetter(name), segments)))
        self._violations.inc(int(steps.violation.sum()))
        self._moved(steps.work)

    def _moved(self, work: Work) -> None:
        read = work.weights_bytes, work.lm_head_bytes, work.embedding_bytes, work.kv_read_bytes
        flops = work.linear_flops, work.attention_flops, work.lm_head_flops
        totals = np.sum((*read, work.kv_write_bytes, *flops), axis=1).tolist()
        counters = (*self._read, self._written, *self._flops)
        for counter, total in zip(counters, totals, strict=True):
            counter.inc(total)

    def lost(self, cause: LostCause, ns: int) -> None:
        if cause not in self._lost:
            self._lost[cause] = self._make.counter("lost_seconds_total", NS, cause=str(cause))
        self._lost[cause].inc(ns)

    def spans(self, spans: Spans) -> None:
        """Count time in which no step ran, and what the engine's life grew by."""
        self._wall.inc(spans.wall)
        if spans.resting:  # a busy engine never rests
            self.lost(LostCause.IDLE, spans.idle)
            self.lost(LostCause.CALIBRATION, spans.calibration)
            self.lost(LostCause.HOST, spans.gap)

    def published(self, ns: int) -> None:
        """Count sending the last record before an idle span; the clock has its time as a gap."""
        self._segments["publish"].inc(ns)

    def refresh(self, now_ns: int) -> None:
        """Bring the gauges of the last seconds up to now; they are 0 without steps."""
        busy_s, memory_s, compute_s = self._busy.sums(now_ns)
        self._mbu.set(memory_s / busy_s if busy_s else 0.0)
        self._mfu.set(compute_s / busy_s if busy_s else 0.0)
