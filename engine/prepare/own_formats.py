"""How `--weights native` stores a checkpoint: each matrix in its own format. Packs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from core.formats import MatrixFormat, Storage
from core.model import TensorRole, TensorSpec
from engine.checkpoint.source import KEPT_BLOCKS, Checkpoint
from engine.prepare.rows import fits_fp16

_WIDE: Final = frozenset({"F32", "F64"})
_HALF: Final = frozenset({"F16", "BF16"})


def own_storage(checkpoint: Checkpoint) -> Storage:
    """Say how all matrices would be stored, before any is.

    Cost: reads matrices in bf16, once; no others.
    """
    formats = {
        spec.name: _own_format(checkpoint, spec)
        for spec in checkpoint.config.tensors()
        if spec.role is not TensorRole.VECTOR
    }
    return _in_panels(formats)


def _own_format(checkpoint: Checkpoint, spec: TensorSpec) -> MatrixFormat:
    """Choose our format for a matrix; quantised blocks that we have no format for get eight bits.

    A bf16 matrix becomes fp16 if all its numbers are in range.
    """
    if (blocks := checkpoint.blocks(spec.name)) is not None:
        return KEPT_BLOCKS[blocks.kind]
    kind = checkpoint.kind(spec.name)
    if kind in _HALF:
        narrow = kind == "F16" or all(map(fits_fp16, checkpoint.checked_runs(spec)))
        return MatrixFormat.FP16 if narrow else MatrixFormat.FP32
    return MatrixFormat.FP32 if kind in _WIDE else MatrixFormat.INT8_G32


def _in_panels(formats: Mapping[str, MatrixFormat]) -> Storage:
    """Describe matrices by name; the format that most have is the usual one."""
    ((usual, _),) = Counter(formats.values()).most_common(1)
    others = tuple((name, kind) for name, kind in formats.items() if kind is not usual)
    return Storage(usual, panels=True, exceptions=others)
