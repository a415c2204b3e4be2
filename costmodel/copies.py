"""Holds what we keep of a checkpoint against the checkpoint itself: bytes and floors of both."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.formats import CheckpointBytes, KVFormat, MatrixFormat, Storage
from core.model import ModelConfig
from core.wire import Ready
from costmodel.floor import floor_of
from costmodel.sums import ModelSums


@dataclass(frozen=True, slots=True)
class LargerCopy:
    """A copy that takes more bytes of every step than the checkpoint's own would.

    `file_floor_s` and `held_floor_s` are of one token at batch 1; None where a peak is unknown.
    """

    file_bytes: int
    held_bytes: int
    file_floor_s: float | None
    held_floor_s: float | None
    checkpoint: CheckpointBytes


def larger_copy(ready: Ready) -> LargerCopy | None:
    """Compare; None where no type is expanded, or where all together takes no more bytes."""
    checkpoint = ready.checkpoint
    if checkpoint is None or not checkpoint.expansions:
        return None
    sums = ModelSums.of(ready.model, ready.storage, ready.kv_dtype)
    held_bytes = sums.step_weight_bytes
    if held_bytes <= checkpoint.step_bytes:
        return None
    step = sums.uniform_step(1, context=0, tokens=1)
    of_file = replace(step, weight_bytes=checkpoint.step_bytes)
    held, own = floor_of(step, ready.peaks), floor_of(of_file, ready.peaks)
    return LargerCopy(
        checkpoint.step_bytes,
        held_bytes,
        None if own is None else own.s,
        None if held is None else held.s,
        checkpoint,
    )


def checkpoint_share(ready: Ready) -> float:
    """Say what a step needs of the checkpoint, as a share of what it reads; at most 1."""
    copy = larger_copy(ready)
    return 1.0 if copy is None else copy.file_bytes / copy.held_bytes


def uniform_step_bytes(config: ModelConfig, kind: MatrixFormat, panels: bool) -> int:
    """Size what a step reads of the weights if all matrices were stored in one format."""
    return ModelSums.of(config, Storage(kind, panels), KVFormat.FP16).step_weight_bytes
