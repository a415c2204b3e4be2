"""What a plan may say of a model: any width, and sizes given by hand. No device lives here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from core.anatomy.parts import Anatomy, KVSpec, anatomy_of
from core.errors import SettingsError
from core.formats import KVFormat, MatrixFormat, Storage
from core.model import ModelConfig, TensorRole, TensorSpec
from costmodel.storage import row_bytes, store_bytes_per_token, tensor_bytes, weight_bytes
from costmodel.sums import ExpertSums, LayerGroup, ModelSums

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

_LOOKED_UP: Final = frozenset({TensorRole.EMBEDDING, TensorRole.TIED, TensorRole.TABLE})


@dataclass(frozen=True, slots=True)
class Width:
    """How numbers are stored: a format of ours as we store it, scales included, else by its bits.

    A size given by hand has no shapes to store, and goes by bits always.
    """

    name: str
    bits: float  # a weight, on average where the formats are mixed
    storage: Storage | None = None  # None where the format is none of ours
    kept: Kept | None = None  # what a quantised checkpoint leaves wide

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
            raise SettingsError(
                f"{text!r} is neither a width ({names}) nor a number of bits up to 64, such as 4.5"
            )
        return Width(text, bits, _STORED.get(text))

    @staticmethod
    def of(name: str, config: ModelConfig, storage: Storage) -> Width:
        """Take a model's own mix of formats as one width."""
        stored = sum(weight_bytes(config, storage).values())
        return Width(name, 8 * stored / config.parameters, storage)

    def bytes(self, numbers: int) -> int:
        return math.ceil(numbers * self.bits / 8)

    def tensor_bytes(self, spec: TensorSpec) -> int:
        """Size one weight; norms and biases of layers stay in fp32, as everywhere here."""
        if self.storage is not None:
            return tensor_bytes(spec, self.storage)
        if spec.role is TensorRole.VECTOR:
            return 4 * spec.parameters
        wide = self.kept is not None and self.kept.wide(spec)
        return math.ceil(spec.parameters * (16 if wide else self.bits) / 8)

    def row_bytes(self, table: TensorSpec) -> int:
        """Size one row of what is looked up."""
        if self.storage is not None:
            return row_bytes(table.columns, self.storage.format_of(table.name))
        return self.tensor_bytes(TensorSpec(table.name, 1, table.columns, table.role))


@dataclass(frozen=True, slots=True)
class Kept:
    """Which matrices of a quantised checkpoint are in 16 bits: tables and routers, or more."""

    experts_only: bool  # only experts are quantised

    def wide(self, spec: TensorSpec) -> bool:
        if spec.role is TensorRole.EXPERT:
            return spec.rows == 1  # a bias
        return spec.role is not TensorRole.MATRIX or self.experts_only or "router" in spec.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model given by hand. Without layers, kv-heads and head dim its KV is unknown: 0 here.

    `active` parameters of all are read for each token, `top_k` experts of `experts` among them.
    The vocabulary and the hidden width tell how much is only looked up; without them that may be
    anything up to a share of all, which `looked_up` assumes.
    """

    parameters: int
    active: int | None = None
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    vocab: int = 0
    hidden: int = 0
    tied: bool = False
    experts: int = 0
    top_k: int = 0
    looked_up: float = 0.0

    @property
    def table(self) -> int:
        return self.vocab * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Count what a token multiplies with in the layers."""
        active = self.active or self.parameters
        return int(active * (1 - self.looked_up)) - self.table * (1 if self.tied else 2)

    @property
    def whole(self) -> bool:
        """Whether all that is only looked up is known, so that its sums bound every step."""
        return self.table > 0

    def at_least(self) -> Size:
        """Give the same model with as much that is only looked up as there may be."""
        if self.whole:
            return self
        small = self.parameters < _SMALL_PARAMETERS
        return replace(self, looked_up=MOST_LOOKED_UP_OF_SMALL if small else MOST_LOOKED_UP)


# The largest shares of an input embedding beside a head of its own among published dense models:
# Qwen1.5-1.8B 151,936 × 2,048 of 1.84e9 (17 %), Pythia-70M 50,304 × 512 of 70e6 (37 %).
MOST_LOOKED_UP: Final = 0.2
MOST_LOOKED_UP_OF_SMALL: Final = 0.4
_SMALL_PARAMETERS: Final = 10**9


def sums_of(model: ModelConfig | Anatomy | Size, weights: Width, kv: Width) -> ModelSums:
    """Sum a model up, loaded or not."""
    if isinstance(model, Size):
        return _of_size(model, weights, kv)
    anatomy = anatomy_of(model) if isinstance(model, ModelConfig) else model
    stored: Counter[TensorRole] = Counter()
    row = 0
    for spec in anatomy.tensors():
        stored[spec.role] += weights.tensor_bytes(spec)
        if spec.role in _LOOKED_UP:
            row += weights.row_bytes(spec)
    return ModelSums.sized(anatomy, stored, row, lambda store: _store_bytes(store, kv))


def _of_size(size: Size, weights: Width, kv: Width) -> ModelSums:
    layer, experts = size.layer_parameters, None
    if size.experts > size.top_k:
        spare = size.parameters - (size.active or size.parameters)
        each = weights.bytes(spare // (size.experts - size.top_k))
        experts = ExpertSums(size.experts, size.top_k, each)
    store = KVSpec(size.kv_heads, size.head_dim, size.head_dim)
    flops_per_pair = 4 * size.heads * size.head_dim
    return ModelSums(
        parameters=size.parameters,
        stored_bytes=weights.bytes(size.parameters),
        layers_bytes=weights.bytes(layer),
        lm_head_bytes=weights.bytes(size.table),
        embedding_row_bytes=weights.bytes(size.hidden) if size.table else 0,
        groups=(LayerGroup(None, size.layers, kv.bytes(store.numbers), flops_per_pair),),
        linear_flops_per_token=2 * layer,
        lm_head_flops_per_row=2 * size.table,
        experts=experts,
    )


def _store_bytes(store: KVSpec, kv: Width) -> int:
    if kv.name in tuple(KVFormat):
        return store_bytes_per_token(store, KVFormat(kv.name))
    return kv.bytes(store.numbers)
