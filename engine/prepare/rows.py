"""Lays checkpoint tensors out as torch reads them: whole matrices, row after row."""

from __future__ import annotations

from typing import Final

import torch

from core.errors import ModelError
from core.formats import MatrixFormat, Storage, WeightFormat
from core.model import TensorRole, TensorSpec
from engine.checkpoint.source import Checkpoint

_BEYOND_FP16: Final = 65520.0  # the least number that rounds to infinity
FORMATS: Final = {
    WeightFormat.FP32: (MatrixFormat.FP32, torch.float32),
    WeightFormat.FP16: (MatrixFormat.FP16, torch.float16),
}


class RowPacker:
    """Implements `Packer` for the torch path, in fp32 or fp16; vectors are always fp32."""

    def __init__(self, weights: WeightFormat) -> None:
        kind, self._dtype = FORMATS[weights]
        self.layout, self.storage = f"{weights}-rows", Storage(kind)

    def store(self, spec: TensorSpec, checkpoint: Checkpoint) -> torch.Tensor:
        tensor = checkpoint.checked(spec)
        if spec.role is TensorRole.VECTOR:
            return tensor.float().contiguous()
        if self._dtype is torch.float16:
            check_fp16(spec, tensor)
        return tensor.to(self._dtype).contiguous()


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
