"""Counts steps: durations, floors, bytes, FLOPs and where the time went. It knows no requests."""

from __future__ import annotations

from typing import Final

from core.machine import MemoryLevel, Peaks
from core.wire import StepReport
from costmodel.account import LostCause, StepAccount
from costmodel.floor import Regime
from telemetry.engine_clock import Spans
from telemetry.labels import KINDS, SEGMENTS
from telemetry.registry import Instruments, Tally
from telemetry.window import Window

NS: Final = 1e-9

_BUSY_WINDOW_S: Final = 10


class StepMeters:
    """Every child is bound here, once; a step only adds."""

    def __init__(self, make: Instruments) -> None:
        self._make = make
        self._duration = make.histograms("step_duration_seconds", "kind")
        self._floor = make.histograms("step_floor_seconds", "kind")
        self._efficiency = make.histograms("step_efficiency_ratio", "kind")
        self._requests = make.histograms("step_batch_requests", "kind")
        self._tokens = make.histograms("step_batch_tokens", "kind")
        self._intensity = make.histograms("arithmetic_intensity_flops_per_byte", "kind")
        self._useful = {
            (kind, regime): make.tally("floor_seconds_total", NS, kind=kind, regime=str(regime))
            for kind in KINDS
            for regime in Regime
        }
        self._lost: dict[LostCause, Tally] = {
            cause: make.tally("lost_seconds_total", NS, cause=str(cause))
            for cause in LostCause
            if cause is not LostCause.UNKNOWN_PEAK  # bound where it happens
        }
        self._wall = make.tally("engine_wall_seconds_total", NS)
        self._segments = make.tallies("step_segment_seconds_total", "segment", NS)
        self._violations = make.tally("floor_violations_total")
        self._read = {
            component: make.tally("bytes_moved_total", op="read", component=component)
            for component in make.values("bytes_moved_total", "component")
        }
        self._written = make.tally("bytes_moved_total", op="write", component="kv")
        self._flops = make.tallies("flops_total", "component")
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
        wall_s, work, floor = account.wall_ns * NS, account.work, account.floor
        self._duration[kind].observe(wall_s)
        self._requests[kind].observe(len(report.slices))
        self._tokens[kind].observe(sum(piece.length for piece in report.slices))
        if work.bytes_total:
            self._intensity[kind].observe(work.flops / work.bytes_total)
        if floor is not None and account.regime is not None:
            self._floor[kind].observe(floor.s)
            if wall_s:
                self._efficiency[kind].observe(floor.s / wall_s)
            self._useful[kind, account.regime].add(account.useful_floor_ns)
            self._busy.add(report.end_ns, (wall_s, floor.memory_s, floor.compute_s))
        for cause, ns in account.lost_ns.items():
            self.lost(cause, ns)
        for segment in SEGMENTS:
            self._segments[segment].add(getattr(report.segments, segment))
        self._violations.add(account.violation)
        self._moved(account)

    def _moved(self, account: StepAccount) -> None:
        work, read, flops = account.work, self._read, self._flops
        read["weights"].add(work.weights_bytes)
        read["lm_head"].add(work.lm_head_bytes)
        read["embedding"].add(work.embedding_bytes)
        read["kv"].add(work.kv_read_bytes)
        self._written.add(work.kv_write_bytes)
        flops["linear"].add(work.linear_flops)
        flops["attention"].add(work.attention_flops)
        flops["lm_head"].add(work.lm_head_flops)

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
