"""The tensors of one layer, by the parts that families combine; named as `ModelConfig` does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from core.anatomy.families import Family, QKNorm
from core.anatomy.fields import MOST_HEADS, MOST_WIDTH, Fields
from core.anatomy.shape import DecoderShape, Mixture
from core.model import TensorRole, TensorSpec

Tensors = Iterator[TensorSpec]
_NORMS = ("input_norm", "post_norm", "pre_mlp_norm", "post_mlp_norm")


def matrix(name: str, rows: int, columns: int, bias: bool = False) -> Tensors:
    yield TensorSpec(name, rows, columns, TensorRole.MATRIX)
    if bias:
        yield vector(f"{name}.bias", rows)


def vector(name: str, width: int) -> TensorSpec:
    return TensorSpec(name, 1, width, TensorRole.VECTOR)


@dataclass(frozen=True, slots=True)
class HeadShape:
    """One layer's attention: its own where layers differ."""

    kv_heads: int
    dim: int


class LayerReader:
    """Yields the tensors of the layers of one decoder."""

    def __init__(self, fields: Fields, family: Family, shape: DecoderShape) -> None:
        self._fields, self._family, self._shape = fields, family, shape

    def bias(self, said: bool | str) -> bool:
        return self._fields.flag(said) if isinstance(said, str) else said

    def norm(self, prefix: str, place: int) -> Tensors:
        yield vector(f"{prefix}{_NORMS[place]}", self._shape.hidden)
        if self._family.norm_bias:
            yield vector(f"{prefix}{_NORMS[place]}.bias", self._shape.hidden)

    def attention(self, prefix: str, heads: HeadShape, own_store: bool = True) -> Tensors:
        """Yield queries, keys, values, output; a layer that reads another's store has no keys."""
        family, hidden, count = self._family, self._shape.hidden, self._shape.heads
        qkv_bias = self.bias(family.qkv_bias)
        q_width, kv_width = count * heads.dim, heads.kv_heads * heads.dim
        yield from matrix(f"{prefix}q_proj", q_width * (1 + family.output_gate), hidden, qkv_bias)
        if own_store:
            yield from matrix(f"{prefix}k_proj", kv_width, hidden, qkv_bias)
            yield from matrix(f"{prefix}v_proj", kv_width, hidden, qkv_bias)
        if family.qk_norm is not QKNorm.NONE or self._fields.flag("use_qk_norm"):
            whole = family.qk_norm is QKNorm.WIDTH
            yield vector(f"{prefix}q_norm", q_width if whole else heads.dim)
            if own_store:
                yield vector(f"{prefix}k_norm", kv_width if whole else heads.dim)
        yield from matrix(f"{prefix}o_proj", hidden, q_width, self.bias(family.output_bias))
        if family.sinks:
            yield vector(f"{prefix}sinks", count)

    def mlp(self, prefix: str, inner: int) -> Tensors:
        hidden, bias = self._shape.hidden, self.bias(self._family.mlp_bias)
        if self._family.gated:
            yield from matrix(f"{prefix}gate_proj", inner, hidden, bias)
        yield from matrix(f"{prefix}up_proj", inner, hidden, bias)
        yield from matrix(f"{prefix}down_proj", hidden, inner, bias)

    def mixture(self, prefix: str, mixture: Mixture) -> Tensors:
        family, hidden, count = self._family, self._shape.hidden, mixture.count
        yield from matrix(f"{prefix}router", count, hidden)
        if family.router_bias:
            yield vector(f"{prefix}router.bias", count)
        for name, rows, columns in (
            ("gate_proj", mixture.inner, hidden),
            ("up_proj", mixture.inner, hidden),
            ("down_proj", hidden, mixture.inner),
        ):
            each = f"{prefix}experts.{name}"
            yield TensorSpec(each, rows, columns, TensorRole.EXPERT, count)
            if family.expert_bias:
                yield TensorSpec(f"{each}.bias", 1, rows, TensorRole.EXPERT, count)
        if mixture.shared_inner:
            yield from self.mlp(f"{prefix}shared.", mixture.shared_inner)
            if family.shared_gate:
                yield from matrix(f"{prefix}shared.gate", 1, hidden)


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: keys and values of all heads from one latent a token.

    Source: DeepSeek-AI, "DeepSeek-V2", section 2.1.
    """

    kv_rank: int
    q_rank: int | None  # None: queries come straight from the hidden state
    plain_dim: int
    rope_dim: int
    value_dim: int

    @staticmethod
    def read(fields: Fields) -> Latent:
        return Latent(
            kv_rank=fields.count("kv_lora_rank", most=MOST_WIDTH),
            q_rank=fields.optional("q_lora_rank", most=MOST_WIDTH),
            plain_dim=fields.count("qk_nope_head_dim", most=MOST_WIDTH),
            rope_dim=fields.count("qk_rope_head_dim", most=MOST_WIDTH),
            value_dim=fields.count("v_head_dim", most=MOST_WIDTH),
        )

    @property
    def key_dim(self) -> int:
        return self.plain_dim + self.rope_dim

    def tensors(self, prefix: str, shape: DecoderShape, bias: bool) -> Tensors:
        hidden, q_width = shape.hidden, shape.heads * self.key_dim
        if self.q_rank is None:
            yield from matrix(f"{prefix}q_proj", q_width, hidden)
        else:
            yield from matrix(f"{prefix}q_a_proj", self.q_rank, hidden, bias)
            yield vector(f"{prefix}q_a_norm", self.q_rank)
            yield from matrix(f"{prefix}q_b_proj", q_width, self.q_rank)
        yield from matrix(f"{prefix}kv_a_proj", self.kv_rank + self.rope_dim, hidden, bias)
        yield vector(f"{prefix}kv_a_norm", self.kv_rank)
        rows = shape.heads * (self.plain_dim + self.value_dim)
        yield from matrix(f"{prefix}kv_b_proj", rows, self.kv_rank)
        yield from matrix(f"{prefix}o_proj", hidden, shape.heads * self.value_dim, bias)


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Gated DeltaNet: a state in place of keys and values.

    Source: Yang et al., "Gated Delta Networks", and transformers' Qwen3NextGatedDeltaNet.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @staticmethod
    def read(fields: Fields) -> DeltaNet:
        return DeltaNet(
            key_heads=fields.count("linear_num_key_heads", most=MOST_HEADS),
            value_heads=fields.count("linear_num_value_heads", most=MOST_HEADS),
            key_dim=fields.count("linear_key_head_dim", most=MOST_WIDTH),
            value_dim=fields.count("linear_value_head_dim", most=MOST_WIDTH),
            kernel=fields.count("linear_conv_kernel_dim", most=MOST_WIDTH),
        )

    @property
    def _channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_bytes(self) -> int:
        """Size the state in fp32, and the convolution's last inputs in 16 bits."""
        state = 4 * self.value_heads * self.key_dim * self.value_dim
        return state + 2 * self._channels * (self.kernel - 1)

    def tensors(self, prefix: str, shape: DecoderShape) -> Tensors:
        values = self.value_heads * self.value_dim
        yield from matrix(f"{prefix}qkvz_proj", self._channels + values, shape.hidden)
        yield from matrix(f"{prefix}ba_proj", 2 * self.value_heads, shape.hidden)
        yield from matrix(f"{prefix}conv", self._channels, self.kernel)
        yield vector(f"{prefix}dt_bias", self.value_heads)
        yield vector(f"{prefix}a_log", self.value_heads)
        yield vector(f"{prefix}state_norm", self.value_dim)
        yield from matrix(f"{prefix}o_proj", shape.hidden, values)
