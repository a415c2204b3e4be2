"""Counts steps: durations, floors, bytes, FLOPs and where the time went. It knows no requests."""

from __future__ import annotations

from typing import Final

from core.machine import MemoryLevel, Peaks
from core.wire import StepReport
from costmodel.account import LostCause, StepAccount
from costmodel.floor import Regime
from costmodel.work import Work
from telemetry.engine_clock import Spans
from telemetry.labels import KINDS
from telemetry.registry import NS, Instruments, Tally
from telemetry.window import Window

_BUSY_WINDOW_S: Final = 10


class _KindMeters:
    """What is told apart by kind of step."""

    def __init__(self, make: Instruments, kind: str) -> None:
        self._duration = make.histogram("step_duration_seconds", kind=kind)
        self._floor = make.histogram("step_floor_seconds", kind=kind)
        self._efficiency = make.histogram("step_efficiency_ratio", kind=kind)
        self._requests = make.histogram("step_batch_requests", kind=kind)
        self._tokens = make.histogram("step_batch_tokens", kind=kind)
        self._intensity = make.histogram("arithmetic_intensity_flops_per_byte", kind=kind)
        self._useful = {
            regime: make.tally("floor_seconds_total", NS, kind=kind, regime=str(regime))
            for regime in Regime
        }

    def step(self, report: StepReport, account: StepAccount) -> None:
        wall_s, work, floor = account.wall_ns * NS, account.work, account.floor
        self._duration.observe(wall_s)
        self._requests.observe(len(report.slices))
        self._tokens.observe(sum([piece.length for piece in report.slices]))
        if bytes_total := work.bytes_total:
            self._intensity.observe(work.flops / bytes_total)
        if floor is not None and account.regime is not None:
            self._floor.observe(floor.s)
            if wall_s:
                self._efficiency.observe(floor.s / wall_s)
            self._useful[account.regime].add(account.useful_floor_ns)


class StepMeters:
    """Every child is bound here, once; a step only adds."""

    def __init__(self, make: Instruments) -> None:
        self._make = make
        self._kinds = {kind: _KindMeters(make, kind) for kind in KINDS}
        self._lost: dict[LostCause, Tally] = {
            cause: make.tally("lost_seconds_total", NS, cause=str(cause))
            for cause in LostCause
            if cause is not LostCause.UNKNOWN_PEAK  # bound where it happens
        }
        self._wall = make.tally("engine_wall_seconds_total", NS)
        self._segments = make.tallies("step_segment_seconds_total", "segment", NS)
        self._violations = make.tally("floor_violations_total")
        self._read = tuple(
            make.tally("bytes_moved_total", op="read", component=component)
            for component in ("weights", "lm_head", "embedding", "kv")
        )
        self._written = make.tally("bytes_moved_total", op="write", component="kv")
        self._flops = tuple(
            make.tally("flops_total", component=component)
            for component in ("linear", "attention", "lm_head")
        )
        self._mbu = make.gauge("bandwidth_utilization_ratio")
        self._mfu = make.gauge("flops_utilization_ratio")
        self._busy = Window(_BUSY_WINDOW_S, 3)  # step, bytes / peak, FLOPs / peak; in s

    def peaks(self, peaks: Peaks) -> None:
        """Export what floors divide by; what is unknown has no series."""
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

    def step(self, report: StepReport, account: StepAccount, kind: str) -> None:
        self._kinds[kind].step(report, account)
        floor = account.floor
        if floor is not None:
            busy = (account.wall_ns * NS, floor.memory_s, floor.compute_s)
            self._busy.add(report.end_ns, busy)
        for cause, ns in account.lost_ns.items():
            self.lost(cause, ns)
        segments = report.segments
        for name, tally in self._segments.items():
            tally.add(getattr(segments, name))
        self._violations.add(account.violation)
        self._moved(account.work)

    def _moved(self, work: Work) -> None:
        read = work.weights_bytes, work.lm_head_bytes, work.embedding_bytes, work.kv_read_bytes
        for tally, count in zip(self._read, read, strict=True):
            tally.add(count)
        self._written.add(work.kv_write_bytes)
        flops = work.linear_flops, work.attention_flops, work.lm_head_flops
        for tally, count in zip(self._flops, flops, strict=True):
            tally.add(count)

    def lost(self, cause: LostCause, ns: int) -> None:
        if cause not in self._lost:
            self._lost[cause] = self._make.tally("lost_seconds_total", NS, cause=str(cause))
        self._lost[cause].add(ns)

    def spans(self, spans: Spans) -> None:
        """Book what the clock found outside of records."""
        self._wall.add(spans.wall)
        self.lost(LostCause.IDLE, spans.idle)
        self.lost(LostCause.HOST, spans.gap)

    def published(self, ns: int) -> None:
        """Book sending the last record before an idle span; its time is a gap of the clock."""
        self._segments["publish"].add(ns)

    def refresh(self, now_ns: int) -> None:
        """Bring the gauges of the last seconds up to now; without steps nothing was used."""
        busy_s, memory_s, compute_s = self._busy.sums(now_ns)
        self._mbu.set(memory_s / busy_s if busy_s else 0.0)
        self._mfu.set(compute_s / busy_s if busy_s else 0.0)
