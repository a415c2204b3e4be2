"""The reference: the decoder in plain torch, over a KV store of its own."""

from __future__ import annotations

import torch

from core.model import TensorRole
from engine.forward.attention import (
    AttentionGroup,
    KVStore,
    StepTensors,
    group_attention,
    step_tensors,
)
from engine.forward.batch import StepBatch
from engine.forward.decoder import Decoder
from engine.forward.network import Forward

_Prepared = tuple[StepTensors, tuple[AttentionGroup, ...]]


class TorchNetwork:
    """Implements `Network`."""

    backend = "torch"

    def __init__(self, decoder: Decoder, kv: KVStore, weight_bytes: dict[TensorRole, int]) -> None:
        self._decoder, self._kv = decoder, kv
        self.isa = torch.backends.cpu.get_cpu_capability().lower()
        self.block_size, self.kv_bytes = kv.block_size, kv.nbytes
        self.weight_bytes = weight_bytes

    def prepare(self, batch: StepBatch) -> _Prepared:
        tensors, config = step_tensors(batch), self._decoder.config
        groups = group_attention(
            tensors,
            self._kv.block_size,
            frozenset(config.sliding_window),
            config.num_heads // config.num_kv_heads,
        )
        return tensors, groups

    @torch.inference_mode()
    def forward(self, prepared: _Prepared) -> Forward:
        return Forward(self._decoder.forward(*prepared, self._kv))
