"""How `--weights native` stores a checkpoint: each matrix in its own format. Packs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import torch

from core.formats import MatrixFormat, Storage
from core.model import TensorRole
from engine.checkpoint.source import KEPT_BLOCKS, Checkpoint
from engine.prepare.rows import fits_fp16


def own_format(kind: str, read: Callable[[], torch.Tensor]) -> MatrixFormat:
    """Choose our format for a matrix of a checkpoint's type; fp32 if we have no such format.

    A bf16 matrix is read: it becomes fp16 if all its numbers are in range.
    """
    if kind in KEPT_BLOCKS:
        return KEPT_BLOCKS[kind]
    narrow = kind == "F16" or (kind == "BF16" and fits_fp16(read()))
    return MatrixFormat.FP16 if narrow else MatrixFormat.FP32


def own_storage(checkpoint: Checkpoint) -> Storage:
    """Say how all matrices would be stored, before any is."""
    formats = {
        spec.name: own_format(checkpoint.kind(spec.name), partial(checkpoint.read, spec.name))
        for spec in checkpoint.config.tensors()
        if spec.role is not TensorRole.VECTOR
    }
    return in_panels(formats)


def in_panels(formats: Mapping[str, MatrixFormat]) -> Storage:
    """Describe matrices by name; the format that most have is the usual one."""
    ((usual, _),) = Counter(formats.values()).most_common(1)
    others = tuple((name, kind) for name, kind in formats.items() if kind is not usual)
    return Storage(usual, panels=True, exceptions=others)
