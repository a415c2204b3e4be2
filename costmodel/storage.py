"""How many bytes weights and KV take: the one answer for the allocator and for the arithmetic.

No step lives here, and no tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from core.anatomy.parts import Anatomy, KVSpec
from core.formats import KVFormat, MatrixFormat, Storage
from core.model import ModelConfig, TensorRole, TensorSpec

PANEL_ROWS: Final = 16  # output features that the native kernels read together
GROUP_COLUMNS: Final = 32  # input features that share a scale

_KV_ELEMENT_BYTES: Final[Mapping[KVFormat, int]] = MappingProxyType(
    {KVFormat.FP32: 4, KVFormat.FP16: 2, KVFormat.INT8: 1}
)
_KV_SCALE_BYTES: Final[Mapping[KVFormat, int]] = MappingProxyType(  # of a kv-head's key, or value
    {KVFormat.FP32: 0, KVFormat.FP16: 0, KVFormat.INT8: 2}
)


_BLOCKS: Final[Mapping[MatrixFormat, tuple[int, int]]] = MappingProxyType(
    {  # columns of a block, and its bytes. Source: ggml-common.h
        MatrixFormat.INT8_G32: (GROUP_COLUMNS, 34),
        MatrixFormat.INT4_G32: (GROUP_COLUMNS, 20),
        MatrixFormat.Q4_0: (GROUP_COLUMNS, 18),
        MatrixFormat.Q5_0: (GROUP_COLUMNS, 22),
        MatrixFormat.Q5_1: (GROUP_COLUMNS, 24),
        MatrixFormat.Q4_K: (256, 144),
        MatrixFormat.Q5_K: (256, 176),
        MatrixFormat.Q6_K: (256, 210),
        MatrixFormat.IQ4_NL: (GROUP_COLUMNS, 18),
        MatrixFormat.IQ4_XS: (256, 136),
        MatrixFormat.MXFP4: (GROUP_COLUMNS, 17),
    }
)


def row_bytes(columns: int, kind: MatrixFormat) -> int:
    """Size one row, scales and minima included; blocks of columns are whole."""
    match kind:
        case MatrixFormat.FP32:
            return 4 * columns
        case MatrixFormat.FP16:
            return 2 * columns
        case MatrixFormat.INT8:
            return 4 + -(-columns // GROUP_COLUMNS) * GROUP_COLUMNS
        case _:
            block_columns, block_bytes = _BLOCKS[kind]
            return -(-columns // block_columns) * block_bytes


def stored_bytes(rows: int, columns: int, kind: MatrixFormat, panels: bool = False) -> int:
    """Size a matrix of `rows` × `columns` as it is stored: scales, minima and padding included."""
    whole = -(-rows // PANEL_ROWS) * PANEL_ROWS if panels else rows
    return whole * row_bytes(columns, kind)


def tensor_bytes(spec: TensorSpec, storage: Storage) -> int:
    """Size one weight; norms and biases stay in fp32 whatever the matrices are stored in."""
    if spec.role is TensorRole.VECTOR:
        return stored_bytes(spec.rows, spec.columns, MatrixFormat.FP32)
    kind = storage.format_of(spec.name)
    return spec.copies * stored_bytes(spec.rows, spec.columns, kind, storage.panels)


def weight_bytes(config: ModelConfig | Anatomy, storage: Storage) -> dict[TensorRole, int]:
    """Sum the bytes of all weights by role; only roles that the model has.

    Invariant: equals the bytes of the tensors that the engine allocates.
    """
    sums: dict[TensorRole, int] = {}
    for spec in config.tensors():
        sums[spec.role] = sums.get(spec.role, 0) + tensor_bytes(spec, storage)
    return sums


def store_bytes_per_token(store: KVSpec, kv: KVFormat) -> int:
    """Size what one token leaves in a store, scales included."""
    vectors = store.kv_heads * (1 + (store.value_dim > 0))
    return store.numbers * _KV_ELEMENT_BYTES[kv] + vectors * _KV_SCALE_BYTES[kv]


def kv_bytes_per_token_and_layer(config: ModelConfig, kv: KVFormat) -> int:
    """Size one token's keys and values in one layer, scales included."""
    store = KVSpec(config.num_kv_heads, config.head_dim, config.head_dim)
    return store_bytes_per_token(store, kv)


def kv_bytes_per_token(config: ModelConfig, kv: KVFormat) -> int:
    """Size one token's keys and values in all layers."""
    return config.num_layers * kv_bytes_per_token_and_layer(config, kv)
