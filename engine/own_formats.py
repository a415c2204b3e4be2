"""How `--weights native` stores a checkpoint: each matrix as it has it. Nothing is packed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from core.formats import MatrixFormat, Storage
from core.model import TensorRole
from engine.checkpoint.source import KEPT_BLOCKS, Checkpoint
from engine.rows import fits_fp16


def own_format(name: str, checkpoint: Checkpoint) -> MatrixFormat:
    """Choose our format for a matrix by its name; fp32 where we have none like its own.

    Cost: reads a bf16 matrix, which stays in 16 bits where fp16 has the range of its numbers.
    """
    kind = checkpoint.kind(name)
    if kind in KEPT_BLOCKS:
        return KEPT_BLOCKS[kind]
    narrow = kind == "F16" or (kind == "BF16" and fits_fp16(checkpoint.read(name)))
    return MatrixFormat.FP16 if narrow else MatrixFormat.FP32


def own_storage(checkpoint: Checkpoint) -> Storage:
    """Say how all matrices would be stored, before any is."""
    formats = {
        spec.name: own_format(spec.name, checkpoint)
        for spec in checkpoint.config.tensors()
        if spec.role is not TensorRole.VECTOR
    }
    return in_panels(formats)


def in_panels(formats: Mapping[str, MatrixFormat]) -> Storage:
    """Describe matrices by name; the format that most have is the usual one."""
    ((usual, _),) = Counter(formats.values()).most_common(1)
    others = tuple((name, kind) for name, kind in formats.items() if kind is not usual)
    return Storage(usual, panels=True, exceptions=others)
