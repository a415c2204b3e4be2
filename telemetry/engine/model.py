"""Checks what `Ready` says about the engine: without a cost model of every byte, no floor."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.machine import Peaks
from core.wire import Ready
from costmodel.copies import checkpoint_share
from costmodel.storage import kv_bytes_per_token, weight_bytes
from costmodel.sums import ModelSums

log = logging.getLogger("floorline.telemetry")


@dataclass(frozen=True, slots=True)
class EngineModel:
    """The arithmetic of the model that runs, and the peaks that its floors divide by.

    Invariant: where it is not `exact`, `peaks` are unknown.
    """

    sums: ModelSums
    peaks: Peaks
    coverage: Mapping[str, float]  # predicted / allocated bytes, of weights and of kv
    exact: bool  # whether coverage is 1 in every part, so that there can be a floor
    checkpoint_share: float  # of a step's weights: the checkpoint's own bytes over those held

    def with_peaks(self, peaks: Peaks) -> EngineModel:
        """Give the same model on a machine that was measured again."""
        return replace(self, peaks=peaks) if self.exact else self


def engine_model(ready: Ready) -> EngineModel:
    """Compare what the engine allocated with what the cost model predicts; warn by name."""
    predicted = weight_bytes(ready.model, ready.storage)
    for role in sorted(predicted.keys() | ready.weight_bytes.keys()):
        expected, allocated = predicted.get(role, 0), ready.weight_bytes.get(role, 0)
        if expected != allocated:
            log.warning(
                "cost model: %s weights take %d bytes, predicted %d", role, allocated, expected
            )
    kv_bytes = ready.num_blocks * ready.block_size * kv_bytes_per_token(ready.model, ready.kv_dtype)
    if kv_bytes != ready.kv_bytes:
        log.warning("cost model: the KV store takes %d bytes, not %d", ready.kv_bytes, kv_bytes)
    coverage = {
        "weights": _ratio(sum(predicted.values()), sum(ready.weight_bytes.values())),
        "kv": _ratio(kv_bytes, ready.kv_bytes),
    }
    peaks = ready.peaks
    exact = predicted == ready.weight_bytes and kv_bytes == ready.kv_bytes
    if not exact:
        log.warning("cost model: no floor is shown for this engine")
        peaks = replace(peaks, dram=None, cache=None, flops=None)
    sums = ModelSums.of(ready.model, ready.storage, ready.kv_dtype)
    return EngineModel(sums, peaks, coverage, exact, checkpoint_share(ready))


def _ratio(predicted: int, allocated: int) -> float:
    return predicted / allocated if allocated else 0.0
