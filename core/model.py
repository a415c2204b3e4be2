"""What a model is: the one description that builds the network and that the arithmetic reads.

No tensors live here, and no file format: `engine/` reads checkpoints into a `ModelConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Activation(StrEnum):
    SILU = "silu"
    GELU_TANH = "gelu_tanh"


class RopeScaling(StrEnum):
    NONE = "none"
    LINEAR = "linear"
    LLAMA3 = "llama3"
    FACTORS = "factors"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary positions. All but `theta` are read only by the scaling rules that name them."""

    theta: float
    scaling: RopeScaling = RopeScaling.NONE
    factor: float = 1.0  # linear, llama3, factors
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    original_max_position_tokens: int = 0  # llama3
    factors: tuple[float, ...] = ()  # factors: what divides the frequency of each pair


class TensorRole(StrEnum):
    """What a tensor is for; decides its format, and which component of a step's bytes it is."""

    EMBEDDING = "embedding"  # one row read per distinct token
    MATRIX = "matrix"  # read whole, once per step
    VECTOR = "vector"  # norms and biases; always fp32; read whole, once per step
    LM_HEAD = "lm_head"  # read whole, once per step with logits
    TIED = "tied"  # embedding and lm_head in one tensor
    EXPERT = "expert"  # of each token's step, some of its copies
    TABLE = "table"  # one row read per token, as of an embedding


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One weight of `rows` × `columns` (N output × K input features; a vector is 1 × K).

    An expert's has as many `copies` as there are experts.
    """

    name: str
    rows: int
    columns: int
    role: TensorRole
    copies: int = 1

    @property
    def parameters(self) -> int:
        return self.copies * self.rows * self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder of the Llama family and its neighbours.

    Invariant: `len(sliding_window) == num_layers`; None is full attention in that layer.
    """

    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_tokens: int
    norm_eps: float
    rope: RopeConfig
    tied_embeddings: bool
    sliding_window: tuple[int | None, ...]
    activation: Activation = Activation.SILU
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.sliding_window) == self.num_layers, "one sliding_window entry per layer"
        assert self.num_heads % self.num_kv_heads == 0, "heads must share kv-heads evenly"

    def tensors(self) -> Iterator[TensorSpec]:
        """Yield every weight, in execution order.

        Invariant: the loader allocates exactly these, and the cost model counts exactly these.
        """
        tied = self.tied_embeddings
        embedding = TensorRole.TIED if tied else TensorRole.EMBEDDING
        yield TensorSpec("embed", self.vocab_size, self.hidden_size, embedding)
        for layer in range(self.num_layers):
            yield from self._layer_tensors(f"layers.{layer}.")
        yield TensorSpec("final_norm", 1, self.hidden_size, TensorRole.VECTOR)
        if not tied:
            yield TensorSpec("lm_head", self.vocab_size, self.hidden_size, TensorRole.LM_HEAD)

    def _layer_tensors(self, prefix: str) -> Iterator[TensorSpec]:
        hidden, inner = self.hidden_size, self.intermediate_size
        q_width, kv_width = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim

        def matrix(name: str, rows: int, columns: int, bias: bool) -> Iterator[TensorSpec]:
            yield TensorSpec(f"{prefix}{name}", rows, columns, TensorRole.MATRIX)
            if bias:
                yield TensorSpec(f"{prefix}{name}.bias", 1, rows, TensorRole.VECTOR)

        yield TensorSpec(f"{prefix}input_norm", 1, hidden, TensorRole.VECTOR)
        yield from matrix("q_proj", q_width, hidden, self.qkv_bias)
        yield from matrix("k_proj", kv_width, hidden, self.qkv_bias)
        yield from matrix("v_proj", kv_width, hidden, self.qkv_bias)
        if self.qk_norm:
            yield TensorSpec(f"{prefix}q_norm", 1, self.head_dim, TensorRole.VECTOR)
            yield TensorSpec(f"{prefix}k_norm", 1, self.head_dim, TensorRole.VECTOR)
        yield from matrix("o_proj", hidden, q_width, self.output_bias)
        yield TensorSpec(f"{prefix}post_norm", 1, hidden, TensorRole.VECTOR)
        yield from matrix("gate_proj", inner, hidden, self.mlp_bias)
        yield from matrix("up_proj", inner, hidden, self.mlp_bias)
        yield from matrix("down_proj", hidden, inner, self.mlp_bias)

    @property
    def parameters(self) -> int:
        return sum(spec.parameters for spec in self.tensors())
