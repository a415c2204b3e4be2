"""What a plan may say of a model: any width, and sizes given by hand. No device lives here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from core.errors import SettingsError
from core.formats import KVFormat, MatrixFormat, Storage
from core.model import ModelConfig, TensorRole
from costmodel.storage import kv_bytes_per_token_and_layer, row_bytes, weight_bytes
from costmodel.sums import ModelSums

_BITS: Final[Mapping[str, float]] = MappingProxyType(
    {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}
)
WIDTHS: Final = tuple(_BITS)  # that have a name

_STORED: Final[Mapping[str, Storage]] = MappingProxyType(
    {
        "fp32": Storage(MatrixFormat.FP32),
        "fp16": Storage(MatrixFormat.FP16),
        "int8": Storage(MatrixFormat.INT8),
        "int4": Storage(MatrixFormat.INT4_G32),
    }
)


@dataclass(frozen=True, slots=True)
class Width:
    """How numbers are stored: a format of ours as we store it, scales included, else by its bits.

    A size given by hand has no shapes to store, and goes by bits always.
    """

    name: str
    bits: float  # a weight, on average where the formats are mixed
    storage: Storage | None = None  # None where the format is none of ours

    @staticmethod
    def parse(text: str) -> Width:
        """Read `int8` or, as a count of bits, `4.5`.

        Raises:
            SettingsError: neither.
        """
        try:
            bits = _BITS.get(text) or float(text)
        except ValueError:
            bits = math.nan
        if not 0 < bits <= 64:
            names = ", ".join(WIDTHS)
            raise SettingsError(f"{text!r} is no width: one of {names}, or bits up to 64, as 4.5")
        return Width(text, bits, _STORED.get(text))

    @staticmethod
    def of(name: str, config: ModelConfig, storage: Storage) -> Width:
        """Take a model's own mix of formats as one width."""
        stored = sum(weight_bytes(config, storage).values())
        return Width(name, 8 * stored / config.parameters, storage)

    def bytes(self, numbers: int) -> int:
        return math.ceil(numbers * self.bits / 8)


FP32: Final = Width.parse("fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model given by hand. Without layers, kv-heads and head dim its KV is unknown: 0 here."""

    parameters: int
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0


def sums_of(model: ModelConfig | Size, weights: Width, kv: Width) -> ModelSums:
    """Sum a model up, loaded or not."""
    if isinstance(model, Size):
        return _of_size(model, weights, kv)
    stored, embedding_row = _weight_bytes(model, weights), _embedding_row_bytes(model, weights)
    return ModelSums.sized(model, stored, embedding_row, _kv_layer_bytes(model, kv))


def _of_size(size: Size, weights: Width, kv: Width) -> ModelSums:
    """Take a size given by hand to read all parameters for each token."""
    stored = weights.bytes(size.parameters)
    return ModelSums(
        parameters=size.parameters,
        stored_bytes=stored,
        layers_bytes=stored,
        lm_head_bytes=0,
        embedding_row_bytes=0,
        kv_layer_bytes=kv.bytes(2 * size.kv_heads * size.head_dim),
        layers=size.layers,
        layers_by_window=((None, size.layers),),
        linear_flops_per_token=2 * size.parameters,
        lm_head_flops_per_row=0,
        attention_flops_per_pair=4 * size.heads * size.head_dim,
    )


def _weight_bytes(config: ModelConfig, weights: Width) -> Mapping[TensorRole, int]:
    if weights.storage is not None:
        return weight_bytes(config, weights.storage)
    sums: Counter[TensorRole] = Counter()
    for spec in config.tensors():
        width = FP32 if spec.role is TensorRole.VECTOR else weights
        sums[spec.role] += width.bytes(spec.parameters)
    return sums


def _embedding_row_bytes(config: ModelConfig, weights: Width) -> int:
    if weights.storage is not None:
        return row_bytes(config.hidden_size, weights.storage.format_of("embed"))
    return weights.bytes(config.hidden_size)


def _kv_layer_bytes(config: ModelConfig, kv: Width) -> int:
    if kv.name in tuple(KVFormat):
        return kv_bytes_per_token_and_layer(config, KVFormat(kv.name))
    return kv.bytes(2 * config.num_kv_heads * config.head_dim)
