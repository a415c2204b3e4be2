"""Lays checkpoint tensors out as the native kernels read them, for the prepared folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from core.errors import ModelError
from core.formats import MatrixFormat, Storage, WeightFormat
from core.model import TensorSpec
from engine.checkpoint.source import Blocks, Checkpoint, row_runs
from engine.prepare.own_formats import own_storage
from engine.prepare.rows import check_fp16
from kernels import pack
from kernels.gguf_blocks import NotFinite, repack

_UNIFORM: Final = {
    WeightFormat.FP32: MatrixFormat.FP32,
    WeightFormat.FP16: MatrixFormat.FP16,
    WeightFormat.INT8: MatrixFormat.INT8,
    WeightFormat.INT4: MatrixFormat.INT4_G32,
}


class PanelPacker:
    """Implements `Packer` for the native kernels, in every format."""

    def __init__(self, weights: WeightFormat) -> None:
        self._weights, self.layout = weights, f"{weights}-panels"

    def storage_of(self, checkpoint: Checkpoint) -> Storage:
        """See `Packer.storage_of`."""
        if self._weights is WeightFormat.NATIVE:
            return own_storage(checkpoint)
        return Storage(_UNIFORM[self._weights], panels=True)

    def runs(
        self, spec: TensorSpec, checkpoint: Checkpoint, kind: MatrixFormat
    ) -> Iterator[np.ndarray]:
        """See `Packer.runs`. A run is uint8, and whole panels."""
        own = self._weights is WeightFormat.NATIVE
        if own and (blocks := checkpoint.blocks(spec.name)) is not None:
            yield from _repacked(spec, checkpoint, blocks)
            return
        for run in checkpoint.checked_runs(spec):
            if kind is MatrixFormat.FP16:
                check_fp16(spec, run)
            yield pack(run.float().numpy(), kind).data


def _repacked(spec: TensorSpec, checkpoint: Checkpoint, blocks: Blocks) -> Iterator[np.ndarray]:
    checkpoint.check_shape(spec, blocks.shape)
    for first, last in row_runs(spec):
        try:
            yield repack(blocks.take(first, last), blocks.kind).data
        except NotFinite as error:
            raise ModelError(f"{spec.name}: {error}") from error
