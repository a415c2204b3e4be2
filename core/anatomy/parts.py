"""What the arithmetic needs of a decoder, of any family: weights by role, KV stores, states.

No format lives here, and no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from core.model import ModelConfig, TensorRole, TensorSpec


@dataclass(frozen=True, slots=True)
class KVSpec:
    """One store of keys and values: what a token leaves in it. A shared latent is all key."""

    kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def numbers(self) -> int:
        return self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """One layer's attention over store number `store`, which several layers may read."""

    store: int
    heads: int
    key_dim: int
    value_dim: int
    window: int | None  # None is full attention

    @property
    def flops_per_pair(self) -> int:
        """Count the FLOPs of one new token that looks at one other: its score, and its value."""
        return 2 * self.heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """A decoder of any family.

    Of each spec whose role is EXPERT, a token's step reads `top_k` of `experts` copies.
    Units: `state_bytes` of one request, which each of its steps reads and writes whole.
    """

    name: str
    vocab_size: int
    hidden_size: int
    longest: int | None  # tokens of context that it was made for, where it says so
    weights: tuple[TensorSpec, ...]
    layers: int
    stores: tuple[KVSpec, ...]
    attentions: tuple[AttentionSpec, ...]
    state_bytes: int = 0
    experts: int = 0
    top_k: int = 0

    def tensors(self) -> Sequence[TensorSpec]:
        return self.weights

    @property
    def parameters(self) -> int:
        return sum(spec.parameters for spec in self.weights)

    @property
    def token_parameters(self) -> int:
        """Count the parameters that one token multiplies with in the layers: without the head."""
        by_role: Counter[TensorRole] = Counter()
        for spec in self.weights:
            by_role[spec.role] += spec.parameters
        chosen = by_role[TensorRole.EXPERT] * self.top_k // max(self.experts, 1)
        return by_role[TensorRole.MATRIX] + chosen


def anatomy_of(config: ModelConfig) -> Anatomy:
    """Take a model that we serve apart: every layer has a store of its own."""
    store = KVSpec(config.num_kv_heads, config.head_dim, config.head_dim)
    return Anatomy(
        name=config.name,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        longest=config.max_position_tokens,
        weights=tuple(config.tensors()),
        layers=config.num_layers,
        stores=(store,) * config.num_layers,
        attentions=tuple(
            AttentionSpec(layer, config.num_heads, config.head_dim, config.head_dim, window)
            for layer, window in enumerate(config.sliding_window)
        ),
    )
