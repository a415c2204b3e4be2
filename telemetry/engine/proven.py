"""What steps prove: a step that was faster than a peak allows has measured the machine itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from core.inputs.quantities import scaled
from core.machine import Peak, Peaks, PeakSource
from core.wire import StepReport
from costmodel.account import StepAccounts
from costmodel.floor import memory_peak

log = logging.getLogger("floorline.telemetry")

_BY_FAR: Final = 8  # times the fastest measured rate: no read is so fast, a step's sums err
_PLATEAU: Final = 1.15  # up to so much faster than memory, a set was read from memory too
_PAST_CACHES_BYTES: Final = 2**30  # a larger set is in no cache that one server's cores get
_RAISABLE: Final = (PeakSource.MEASURED, PeakSource.PROVEN)


class PeakOf(StrEnum):
    MEMORY = "memory"
    ARITHMETIC = "arithmetic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The step that proved a rate."""

    peak: PeakOf
    step: int
    end_ns: int  # on the engine's monotonic clock
    amount: int  # bytes that it moved, or FLOPs
    working_set_bytes: int  # what it read; a rate of memory holds for sets of its size
    forward_ns: int
    per_s: float


class ProvenPeaks:
    """Raises measured peaks to what steps reached, and keeps the best proof for each size of set.

    A peak that somebody gave is never raised. Where a rate is faster by far than anything that was
    measured, the step's own numbers are doubted instead: it proves nothing and is a violation.
    """

    def __init__(self) -> None:
        self._best: dict[tuple[PeakOf, int], Proof] = {}
        self._fastest: dict[PeakOf, float] = {}
        self.raises = dict.fromkeys(PeakOf, 0)

    @property
    def proofs(self) -> list[Proof]:
        return list(self._best.values())

    def measured(self, peaks: Peaks) -> Peaks:
        """Take measured peaks, and raise them to what is proven already."""
        rates = [peak.per_s for peak in (peaks.dram, peaks.cache) if peak is not None]
        rates += [per_s for _, per_s in peaks.cache_curve]
        flops = 0.0 if peaks.flops is None else peaks.flops.per_s
        self._fastest = {PeakOf.MEMORY: max(rates, default=0.0), PeakOf.ARITHMETIC: flops}
        for proof in self._best.values():
            if proof.per_s > _rate(peaks, proof):
                peaks = _raised(peaks, proof)
        return peaks

    def learn(self, peaks: Peaks, reports: Sequence[StepReport], steps: StepAccounts) -> Peaks:
        """Raise peaks until no step is under its floor, but for those that no machine could run."""
        work = steps.work
        for place in np.flatnonzero(steps.violation).tolist():
            amounts = {
                PeakOf.MEMORY: int(work.bytes_total[place]),
                PeakOf.ARITHMETIC: int(work.flops[place]),
            }
            for peak, amount in amounts.items():
                proof = _proof(peak, reports[place], amount, int(work.bytes_read[place]))
                if proof is None or not self._believed(peaks, proof):
                    continue
                peaks = _raised(peaks, proof)
                self._best[peak, _size_class(proof)] = proof
                self.raises[peak] += 1
                log.info("%s", described(proof))
        return peaks

    def _believed(self, peaks: Peaks, proof: Proof) -> bool:
        return _rate(peaks, proof) < proof.per_s <= _BY_FAR * self._fastest.get(proof.peak, 0.0)


def described(proof: Proof) -> str:
    """Say in a line what was proven, and by what."""
    unit = "B" if proof.peak is PeakOf.MEMORY else "FLOP"
    return (
        f"step {proof.step} proved more {proof.peak} than was measured: "
        f"{scaled(proof.amount)}{unit} in {proof.forward_ns / 1e6:.3f} ms, "
        f"{scaled(proof.per_s)}{unit}/s"
    )


def _proof(peak: PeakOf, report: StepReport, amount: int, read: int) -> Proof | None:
    forward_ns = report.segments.forward
    if forward_ns <= 0:
        return None
    return Proof(
        peak=peak,
        step=report.index,
        end_ns=report.end_ns,
        amount=amount,
        working_set_bytes=read,
        forward_ns=forward_ns,
        per_s=amount / forward_ns * 1e9,
    )


def _size_class(proof: Proof) -> int:
    """Give the power of two that the working set reaches; arithmetic has one rate."""
    if proof.peak is PeakOf.ARITHMETIC:
        return 0
    return 1 << max(proof.working_set_bytes, 1).bit_length() - 1


def _rate(peaks: Peaks, proof: Proof) -> float:
    """Give the peak that the proof's step is held against; infinite where it cannot be raised."""
    peak = peaks.flops
    if proof.peak is PeakOf.MEMORY:
        _, peak = memory_peak(proof.working_set_bytes, peaks)
    return peak.per_s if peak is not None and peak.source in _RAISABLE else float("inf")


def _raised(peaks: Peaks, proof: Proof) -> Peaks:
    """Raise the peak that the proof's step is held against.

    A set reaches at least what larger ones do, so the rates of smaller sets rise too.
    """
    proven = Peak(proof.per_s, PeakSource.PROVEN)
    if proof.peak is PeakOf.ARITHMETIC:
        return replace(peaks, flops=proven)
    cached = proof.working_set_bytes <= peaks.cache_bytes and peaks.cache is not None
    if peaks.dram is not None and not cached and not _finds_cache(peaks, proof):
        peaks, size = replace(peaks, dram=proven), peaks.cache_bytes
    else:
        size = _size_class(proof)
        most = max(peaks.cache_bytes, 2 * size)  # the same set grows by a token's KV each step
        curve = dict(peaks.cache_curve or ((1, _per_s(peaks.cache)),)) | {size: proof.per_s}
        peaks = replace(peaks, cache_bytes=most, cache_curve=tuple(sorted(curve.items())))
    rates = ((at, max(rate, proof.per_s) if at <= size else rate) for at, rate in peaks.cache_curve)
    raises_cache = peaks.cache is not None and _per_s(peaks.cache) < proof.per_s
    return replace(peaks, cache_curve=tuple(rates), cache=proven if raises_cache else peaks.cache)


def _finds_cache(peaks: Peaks, proof: Proof) -> bool:
    """Say whether a set past the cache's known end was in it all the same."""
    faster = proof.per_s > _PLATEAU * _per_s(peaks.dram)
    return faster and peaks.cache is not None and proof.working_set_bytes <= _PAST_CACHES_BYTES


def _per_s(peak: Peak | None) -> float:
    return 0.0 if peak is None else peak.per_s
