"""The reference: the decoder in plain torch."""

from __future__ import annotations

from typing import Any

from core.model import TensorRole
from engine.batch import StepBatch
from engine.kvstore import KVStore
from engine.model import Decoder
from engine.network import Forward
from engine.ops import Attention, Ops


class TorchNetwork:
    """Implements `Network` with a decoder over `Ops`; owns the KV store."""

    def __init__(
        self, decoder: Decoder, ops: Ops, kv: KVStore, weight_bytes: dict[TensorRole, int]
    ) -> None:
        self._decoder, self._ops, self._kv = decoder, ops, kv
        self.backend, self.isa = ops.backend, ops.isa
        self.block_size, self.kv_bytes = kv.block_size, kv.nbytes
        self.weight_bytes = weight_bytes

    def prepare(self, batch: StepBatch) -> tuple[StepBatch, Attention]:
        return batch, self._ops.plan_attention(batch, self._kv.block_size)

    def forward(self, prepared: tuple[StepBatch, Any]) -> Forward:
        batch, attention = prepared
        return Forward(self._decoder.forward(batch, attention, self._kv))
