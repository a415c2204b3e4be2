"""Lays checkpoint tensors out as torch reads them: whole matrices, row after row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch

from core.errors import ModelError
from core.formats import MatrixFormat, Storage, WeightFormat
from core.model import TensorSpec
from engine.checkpoint.source import Checkpoint

_BEYOND_FP16: Final = 65520.0  # the least number that rounds to infinity
FORMATS: Final = {
    WeightFormat.FP32: (MatrixFormat.FP32, torch.float32),
    WeightFormat.FP16: (MatrixFormat.FP16, torch.float16),
}


class RowPacker:
    """Implements `Packer` for the torch path, in fp32 or fp16."""

    def __init__(self, weights: WeightFormat) -> None:
        self._kind, self._dtype = FORMATS[weights]
        self.layout = f"{weights}-rows"

    def storage_of(self, checkpoint: Checkpoint) -> Storage:
        return Storage(self._kind)

    def runs(
        self, spec: TensorSpec, checkpoint: Checkpoint, kind: MatrixFormat
    ) -> Iterator[np.ndarray]:
        """See `Packer.runs`."""
        for run in checkpoint.checked_runs(spec):
            if kind is MatrixFormat.FP16:
                check_fp16(spec, run)
            yield run.to(self._dtype).numpy()


def fits_fp16(tensor: torch.Tensor) -> bool:
    return tensor.abs().max().item() < _BEYOND_FP16


def check_fp16(spec: TensorSpec, tensor: torch.Tensor) -> None:
    """Check that no number becomes infinite in fp16.

    Raises:
        ModelError: one would.
    """
    if not fits_fp16(tensor):
        largest = tensor.abs().max().item()
        raise ModelError(f"{spec.name}: {largest:.3g} is too large for fp16; use --weights fp32")
