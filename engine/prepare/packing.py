"""Lays checkpoint tensors out as the native kernels read them, for the prepared folder."""

from __future__ import annotations

from typing import Final

import torch

from core.formats import MatrixFormat, Storage, WeightFormat
from core.model import TensorRole, TensorSpec
from engine.checkpoint.source import Checkpoint
from engine.prepare.own_formats import in_panels, own_format
from engine.prepare.rows import check_fp16
from kernels import PackedMatrix, pack
from kernels.gguf_blocks import repack

_UNIFORM: Final = {
    WeightFormat.FP32: MatrixFormat.FP32,
    WeightFormat.FP16: MatrixFormat.FP16,
    WeightFormat.INT8: MatrixFormat.INT8,
    WeightFormat.INT4: MatrixFormat.INT4_G32,
}


class PanelPacker:
    """Implements `Packer` for the native kernels, in every format; remembers each matrix's."""

    def __init__(self, weights: WeightFormat) -> None:
        self._weights, self.layout = weights, f"{weights}-panels"
        self._formats: dict[str, MatrixFormat] = {}

    def store(self, spec: TensorSpec, checkpoint: Checkpoint) -> torch.Tensor:
        """See `Packer.store`. Returns: fp32 [N] of a vector, else uint8 [bytes]."""
        if spec.role is TensorRole.VECTOR:
            return checkpoint.checked(spec).float().contiguous()
        packed = self._pack(spec, checkpoint)
        self._formats[spec.name] = packed.format
        return torch.from_numpy(packed.data)

    @property
    def storage(self) -> Storage:
        return in_panels(self._formats)

    def _pack(self, spec: TensorSpec, checkpoint: Checkpoint) -> PackedMatrix:
        if self._weights is WeightFormat.NATIVE:
            if (blocks := checkpoint.blocks(spec.name)) is not None:
                return repack(blocks.raw, blocks.kind)
            tensor = checkpoint.checked(spec)
            kind = own_format(checkpoint.kind(spec.name), lambda: tensor)
            return pack(tensor.float().numpy(), kind)
        tensor, kind = checkpoint.checked(spec).float(), _UNIFORM[self._weights]
        if kind is MatrixFormat.FP16:
            check_fp16(spec, tensor)
        return pack(tensor.numpy(), kind)
