"""How many bytes weights and KV take: the one answer for the allocator and for the arithmetic.

No step lives here, and no tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from core.formats import KVFormat, WeightFormat
from core.model import ModelConfig, TensorRole, TensorSpec

_WEIGHT_ELEMENT_BYTES: Final[Mapping[WeightFormat, int]] = MappingProxyType(
    {WeightFormat.FP32: 4, WeightFormat.FP16: 2}
)
_KV_ELEMENT_BYTES: Final[Mapping[KVFormat, int]] = MappingProxyType(
    {KVFormat.FP32: 4, KVFormat.FP16: 2}
)


def stored_bytes(rows: int, columns: int, weights: WeightFormat) -> int:
    """Size a matrix of `rows` × `columns` as it is stored: scales, minima and padding included."""
    return rows * columns * _WEIGHT_ELEMENT_BYTES[weights]


def tensor_bytes(spec: TensorSpec, weights: WeightFormat) -> int:
    """Size one weight; norms and biases stay in fp32 whatever the matrices are stored in."""
    if spec.role is TensorRole.VECTOR:
        return stored_bytes(spec.rows, spec.columns, WeightFormat.FP32)
    return stored_bytes(spec.rows, spec.columns, weights)


def weight_bytes(config: ModelConfig, weights: WeightFormat) -> dict[TensorRole, int]:
    """Sum the bytes of all weights by role; only roles that the model has.

    Invariant: equals the bytes of the tensors that the engine allocates.
    """
    sums: dict[TensorRole, int] = {}
    for spec in config.tensors():
        sums[spec.role] = sums.get(spec.role, 0) + tensor_bytes(spec, weights)
    return sums


def kv_bytes_per_token_and_layer(config: ModelConfig, kv: KVFormat) -> int:
    """Size one token's keys and values in one layer."""
    return 2 * config.num_kv_heads * config.head_dim * _KV_ELEMENT_BYTES[kv]


def kv_bytes_per_token(config: ModelConfig, kv: KVFormat) -> int:
    """Size one token's keys and values in all layers."""
    return config.num_layers * kv_bytes_per_token_and_layer(config, kv)
