"""The reference: the decoder in plain torch."""

from __future__ import annotations

from typing import Any

import torch

from core.model import TensorRole
from engine.forward.batch import StepBatch
from engine.forward.kvstore import KVStore
from engine.forward.model import Decoder
from engine.forward.network import Forward
from engine.forward.ops import Attention, Ops
from engine.forward.step_tensors import StepTensors, step_tensors


class TorchNetwork:
    """Implements `Network` with a decoder over `Ops`; owns the KV store."""

    def __init__(
        self, decoder: Decoder, ops: Ops, kv: KVStore, weight_bytes: dict[TensorRole, int]
    ) -> None:
        self._decoder, self._ops, self._kv = decoder, ops, kv
        self.backend, self.isa = ops.backend, ops.isa
        self.block_size, self.kv_bytes = kv.block_size, kv.nbytes
        self.weight_bytes = weight_bytes

    def prepare(self, batch: StepBatch) -> tuple[StepTensors, Attention]:
        tensors = step_tensors(batch)
        return tensors, self._ops.plan_attention(tensors, self._kv.block_size)

    @torch.inference_mode()
    def forward(self, prepared: tuple[StepTensors, Any]) -> Forward:
        return Forward(self._decoder.forward(*prepared, self._kv))
