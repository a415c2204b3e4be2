"""A model as the few sums that a plan needs, loaded or not. It knows no device and no clock.

The counterpart of `costmodel/work.py` for what nobody runs yet: any width, and sizes given by hand.
"""

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
from costmodel.work import attended_pairs

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A model's sums at one width of weights and one of KV."""

    parameters: int
    weight_bytes: int  # all that is stored
    step_weight_bytes: int  # of them, read once by each step
    kv_layer_bytes: int  # of one token in one layer
    layers_by_window: tuple[tuple[int | None, int], ...]
    linear_flops_per_token: int
    lm_head_flops_per_row: int
    attention_flops_per_pair: int  # and per layer

    @property
    def kv_token_bytes(self) -> int:
        return self.kv_layer_bytes * sum(layers for _, layers in self.layers_by_window)

    def work(
        self, requests: int, context: int, tokens: int, rows: int = 1, shared: int = 0
    ) -> StepTotals:
        """Sum a step of `requests` that run `tokens` each after `context`, `shared` of it common.

        A true lower bound: of the input embedding one row is counted, as if all tokens were alike.
        """
        kv_tokens = pairs = 0
        for window, layers in self.layers_by_window:
            hidden = 0 if window is None else max(context - (window - 1), 0)
            common = max(shared - hidden, 0)
            kv_tokens += layers * (common + requests * (context - hidden - common))
            pairs += layers * attended_pairs(context, tokens, window)
        flops = tokens * self.linear_flops_per_token + rows * self.lm_head_flops_per_row
        return StepTotals(
            weight_bytes=self.step_weight_bytes,
            kv_bytes=kv_tokens * self.kv_layer_bytes + requests * tokens * self.kv_token_bytes,
            flops=requests * (flops + pairs * self.attention_flops_per_pair),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotals:
    """The two terms of a step's bytes, and its FLOPs."""

    weight_bytes: int
    kv_bytes: int
    flops: int

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes


def totals_of(model: ModelConfig | Size, weights: Width, kv: Width) -> Totals:
    """Sum a model up. A size given by hand is taken to read all parameters for each token."""
    return (
        _of_size(model, weights, kv) if isinstance(model, Size) else _of_config(model, weights, kv)
    )


def _of_size(size: Size, weights: Width, kv: Width) -> Totals:
    stored = weights.bytes(size.parameters)
    return Totals(
        parameters=size.parameters,
        weight_bytes=stored,
        step_weight_bytes=stored,
        kv_layer_bytes=kv.bytes(2 * size.kv_heads * size.head_dim),
        layers_by_window=((None, size.layers),),
        linear_flops_per_token=2 * size.parameters,
        lm_head_flops_per_row=0,
        attention_flops_per_pair=4 * size.heads * size.head_dim,
    )


def _of_config(config: ModelConfig, weights: Width, kv: Width) -> Totals:
    matrices = sum(s.parameters for s in config.tensors() if s.role is TensorRole.MATRIX)
    stored, embedding_row = _weight_bytes(config, weights), _embedding_row_bytes(config, weights)
    return Totals(
        parameters=config.parameters,
        weight_bytes=sum(stored.values()),
        step_weight_bytes=embedding_row
        + sum(size for role, size in stored.items() if role is not TensorRole.EMBEDDING),
        kv_layer_bytes=_kv_layer_bytes(config, kv),
        layers_by_window=tuple(Counter(config.sliding_window).items()),
        linear_flops_per_token=2 * matrices,
        lm_head_flops_per_row=2 * config.vocab_size * config.hidden_size,
        attention_flops_per_pair=4 * config.num_heads * config.head_dim,
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
