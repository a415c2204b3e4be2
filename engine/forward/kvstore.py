"""The KV store: the tensors that blocks number. Who owns which block is `kvcache/`'s business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from core.formats import KVFormat
from core.model import ModelConfig

KV_DTYPES: Final = {KVFormat.FP32: torch.float32, KVFormat.FP16: torch.float16}


@dataclass(frozen=True, slots=True)
class KVLayer:
    """One layer's keys and values, each [num_blocks, block_size, K, D]."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class KVStore:
    layers: tuple[KVLayer, ...]
    block_size: int

    @property
    def nbytes(self) -> int:
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers)


def allocate_kv(config: ModelConfig, kv: KVFormat, num_blocks: int, block_size: int) -> KVStore:
    """Allocate all blocks of all layers; the system gives the pages as they are first written."""
    shape = (num_blocks, block_size, config.num_kv_heads, config.head_dim)

    def zeros() -> torch.Tensor:
        return torch.zeros(shape, dtype=KV_DTYPES[kv])

    layers = tuple(KVLayer(zeros(), zeros()) for _ in range(config.num_layers))
    return KVStore(layers, block_size)
