"""The numbers of a decoder's layers, read from its fields and checked against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from core.anatomy.families import Family, Windows
from core.anatomy.fields import (
    MOST_EXPERTS,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_TOKENS,
    MOST_WIDTH,
    MOST_WORDS,
    Fields,
)

SLIDING: Final = "sliding_attention"
FULL: Final = "full_attention"
DELTA: Final = "linear_attention"


@dataclass(frozen=True, slots=True)
class Mixture:
    """The experts of a layer, and the shared one that every token passes (0 wide: none)."""

    count: int
    top_k: int
    inner: int
    shared_inner: int


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """`inner` is None in a layer whose MLP is a mixture of experts."""

    vocab: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    kinds: Sequence[str]
    window: int | None
    inner: Sequence[int | None]
    mixture: Mixture | None

    @property
    def layers(self) -> int:
        return len(self.kinds)


def shape_of(fields: Fields, family: Family) -> DecoderShape:
    """Read the shape.

    Raises:
        ModelError: a field is missing, out of range, or at odds with another.
    """
    layers = fields.count("num_hidden_layers", most=MOST_LAYERS)
    hidden = fields.count("hidden_size", most=MOST_WIDTH)
    heads = fields.count("num_attention_heads", most=MOST_HEADS)
    kv_heads = fields.count("num_key_value_heads", most=MOST_HEADS, default=heads)
    if heads % kv_heads:
        raise fields.wrong("num_key_value_heads", f"a divisor of the {heads} heads")
    head_dim = fields.count(
        "head_dim", most=MOST_WIDTH, default=family.head_dim or max(hidden // heads, 1)
    )
    kinds, window = _kinds(fields, family, layers)
    mixture = _mixture(fields, family) if family.experts else None
    return DecoderShape(
        vocab=fields.count("vocab_size", most=MOST_WORDS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        kinds=kinds,
        window=window,
        inner=_inner(fields, layers, mixture),
        mixture=mixture,
    )


def _kinds(fields: Fields, family: Family, layers: int) -> tuple[Sequence[str], int | None]:
    """Say of each layer how it mixes tokens, and how wide the window of the sliding ones is."""
    window = fields.optional("sliding_window", most=MOST_TOKENS, least=0) or None
    ignored = family.windows is Windows.NONE and not family.output_gate
    if family.windows is Windows.ASKED and not fields.flag("use_sliding_window"):
        window = None
    listed = fields.words("layer_types")
    if ignored or (window is None and not family.output_gate):
        return (FULL,) * layers, None
    if listed is None:
        return tuple(_kind(fields, family, layer, layers) for layer in range(layers)), window
    if len(listed) != layers:
        raise fields.wrong("layer_types", f"a list of {layers} layers")
    known = {FULL, DELTA} if family.output_gate else {FULL, SLIDING}
    if strange := sorted(set(listed) - known):
        raise fields.wrong("layer_types", f"known: {strange[0][:40]!r}")
    return listed, window


def _kind(fields: Fields, family: Family, layer: int, layers: int) -> str:
    if family.output_gate:
        every = fields.count("full_attention_interval", most=MOST_LAYERS, default=4)
        return DELTA if (layer + 1) % every else FULL
    if family.windows is Windows.PERIOD:
        names = ("sliding_window_pattern", "_sliding_window_pattern")
        every = fields.count(*names, most=MOST_LAYERS, default=family.period)
        return SLIDING if (layer + 1) % every else FULL
    asked = family.windows is Windows.ASKED
    first = fields.count("max_window_layers", most=MOST_LAYERS, least=0, default=layers)
    return SLIDING if layer >= (first if asked else 0) else FULL


def _mixture(fields: Fields, family: Family) -> Mixture:
    count = fields.count("num_experts", "num_local_experts", "n_routed_experts", most=MOST_EXPERTS)
    top_k = fields.count("num_experts_per_tok", "top_k_experts", most=MOST_EXPERTS)
    if top_k > count:
        raise fields.wrong("num_experts_per_tok", f"at most the {count} experts")
    inner = fields.count(family.inner, most=MOST_WIDTH)
    shared = fields.count("n_shared_experts", most=MOST_EXPERTS, least=0, default=0) * inner
    if family.shared_gate:
        shared = fields.count("shared_expert_intermediate_size", most=MOST_WIDTH, least=0)
    return Mixture(count, top_k, inner, shared)


def _inner(fields: Fields, layers: int, mixture: Mixture | None) -> Sequence[int | None]:
    """Give the width of each layer's dense MLP, None where experts are in its place."""
    if mixture is None:
        return fields.counts("intermediate_size", layers, MOST_WIDTH)
    first = fields.count("first_k_dense_replace", most=MOST_LAYERS, least=0, default=0)
    step = fields.count("decoder_sparse_step", "moe_layer_freq", most=MOST_LAYERS, default=1)
    dense = fields.places("mlp_only_layers", layers)
    offset = 1 if fields.has("decoder_sparse_step") else 0
    sparse = [
        layer >= first and layer not in dense and (layer + offset) % step == 0
        for layer in range(layers)
    ]
    if all(sparse):
        return (None,) * layers
    width = fields.count("intermediate_size", most=MOST_WIDTH)
    return tuple(None if chosen else width for chosen in sparse)
