"""Counts steps: durations, floors, bytes, FLOPs and where the time went. It knows no request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np

from core.machine import MemoryLevel, Peaks
from costmodel.account import LostCause, StepAccounts
from costmodel.floor import REGIMES
from costmodel.slices import ints
from costmodel.split import Bools
from telemetry.books.accounts import Booked
from telemetry.books.facts import KINDS, StepKind
from telemetry.engine.clock import Spans
from telemetry.engine.proven import PeakOf
from telemetry.series.labels import SEGMENTS
from telemetry.series.recent_sums import RecentSums
from telemetry.series.registry import NS, Counter, Instruments

_BUSY_WINDOW_S: Final = 10
_SEGMENTS: Final = attrgetter(*SEGMENTS)
_COLUMNS: Final = (
    *("wall_ns", "violation", "useful_floor_ns", "regimes", "slices.counts", "work.tokens"),
    *("floors.s", "floors.memory_s", "floors.compute_s", "floors.known", "checkpoint_floor_ns"),
)
_BYTES: Final = (
    *(("weights", "read"), ("lm_head", "read"), ("embedding", "read")),
    *(("kv_read", "read"), ("kv_write", "write")),
)

Columns: TypeAlias = Mapping[str, np.ndarray[Any, Any]]  # by their names in `StepAccounts`


def _column(steps: Sequence[StepAccounts], name: str) -> np.ndarray[Any, Any]:
    """Join one column of several bursts."""
    return np.concatenate(list(map(attrgetter(name), steps)))


class _KindSeries:
    """The series of steps of one kind."""

    def __init__(self, make: Instruments, kind: StepKind) -> None:
        self._duration = make.histogram("step_duration_seconds", kind=kind)
        self._floor = make.histogram("step_floor_seconds", kind=kind)
        self._efficiency = make.histogram("step_efficiency_ratio", kind=kind)
        self._requests = make.histogram("step_batch_requests", kind=kind)
        self._tokens = make.histogram("step_batch_tokens", kind=kind)
        self._intensity = make.histogram("arithmetic_intensity_flops_per_byte", kind=kind)
        self._useful = [
            make.counter("floor_seconds_total", NS, kind=kind, regime=str(regime))
            for regime in REGIMES
        ]

    def take(self, here: Bools, steps: Columns) -> None:
        """Count the steps for which `here` is true."""
        wall_s, floor_s, moved = steps["wall_ns"] * NS, steps["floors.s"], steps["bytes"]
        self._duration.observe_all(wall_s[here])
        self._requests.observe_all(steps["slices.counts"][here])
        self._tokens.observe_all(steps["work.tokens"][here])
        busy = here & (moved > 0)
        self._intensity.observe_all(steps["flops"][busy] / moved[busy])
        floored = here & steps["floors.known"]
        self._floor.observe_all(floor_s[floored])
        timed = floored & (wall_s > 0)
        self._efficiency.observe_all(floor_s[timed] / wall_s[timed])
        for place, counter in enumerate(self._useful):
            at = here & (steps["regimes"] == place)
            counter.inc(int(steps["useful_floor_ns"][at].sum()))


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
        self._of_checkpoint = make.counter("checkpoint_floor_seconds_total", NS)
        self._segments = make.counters("step_segment_seconds_total", "segment", NS)
        self._violations = make.counter("floor_violations_total")
        self._raises = {of: make.counter("peak_raises_total", peak=str(of)) for of in PeakOf}
        self._raised: dict[PeakOf, int] = {}
        self._moved = {
            f"work.{component}_bytes": make.counter(
                "bytes_moved_total", op=op, component=component.removesuffix(f"_{op}")
            )
            for component, op in _BYTES
        } | {
            f"work.{component}_flops": make.counter("flops_total", component=component)
            for component in ("linear", "attention", "lm_head")
        }
        self._mbu = make.gauge("bandwidth_utilization_ratio")
        self._mfu = make.gauge("flops_utilization_ratio")
        self._busy = RecentSums(_BUSY_WINDOW_S, 3)  # step, bytes / peak, FLOPs / peak; in s

    def peaks(self, peaks: Peaks, raises: Mapping[PeakOf, int]) -> None:
        """Export the peaks that floors divide by; an unknown peak has no series.

        `raises` is how often steps raised each so far.
        """
        for of, counter in self._raises.items():
            counter.inc(raises[of] - self._raised.get(of, 0))
        self._raised = dict(raises)
        for name in (
            "peak_bytes_per_second",
            "peak_read_bytes_per_second",
            "peak_flops_per_second",
        ):
            self._make.clear(name)
        for size, per_s in peaks.cache_curve:
            self._make.gauge("peak_read_bytes_per_second", working_set_bytes=str(size)).set(per_s)
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

    def take(self, bursts: Sequence[Booked]) -> None:
        """Count the steps of bursts, and the time before each."""
        steps = [accounts.steps for _, accounts in bursts]
        columns = {name: _column(steps, name) for name in (*_COLUMNS, *self._moved)}
        for unit in ("bytes", "flops"):
            columns[unit] = np.sum(
                [columns[name] for name in self._moved if name.endswith(unit)], axis=0
            )
        kinds = np.concatenate([facts.kinds for facts, _ in bursts])
        for kind in set(kinds.tolist()):
            self._kinds[KINDS[kind]].take(kinds == kind, columns)
        reports = [report for facts, _ in bursts for report in facts.reports]
        known, ends_ns = columns["floors.known"], ints([report.end_ns for report in reports])
        terms = columns["wall_ns"] * NS, columns["floors.memory_s"], columns["floors.compute_s"]
        self._busy.record_all(ends_ns[known], np.array(terms)[:, known])
        spans = (spans for facts, _ in bursts for spans in facts.spans)
        self.spans(Spans(*map(sum, zip(*spans, strict=True))))
        for cause in {cause for accounts in steps for cause in accounts.lost_ns}:
            ns = [accounts.lost_ns[cause] for accounts in steps if cause in accounts.lost_ns]
            self.lost(cause, int(np.concatenate(ns).sum()))
        spent_ns = zip(*(_SEGMENTS(report.segments) for report in reports), strict=True)
        for name, column in zip(SEGMENTS, spent_ns, strict=True):
            self._segments[name].inc(sum(column))
        self._of_checkpoint.inc(int(columns["checkpoint_floor_ns"].sum()))
        self._violations.inc(int(columns["violation"].sum()))
        for name, counter in self._moved.items():
            counter.inc(int(columns[name].sum()))

    def lost(self, cause: LostCause, ns: int) -> None:
        if ns:
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
