"""From the fields of a `config.json` to an anatomy: which family it is, and its layers in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from core.anatomy import gemma
from core.anatomy.families import ARCHITECTURES, FAMILIES, Family
from core.anatomy.fields import MOST_TOKENS, Fields
from core.anatomy.layers import DeltaNet, HeadShape, Latent, LayerReader, Tensors, vector
from core.anatomy.parts import Anatomy, AttentionSpec, KVSpec
from core.anatomy.shape import DELTA, FULL, SLIDING, DecoderShape, Mixture, shape_of
from core.errors import ModelError
from core.model import TensorRole, TensorSpec

_TEXT_PARTS: Final[Mapping[str, str]] = MappingProxyType(  # of models that see or hear, too
    {
        "gemma3": "gemma3_text",
        "gemma3n": "gemma3n_text",
        "gemma4": "gemma4_text",
        "qwen2_vl": "qwen2",
        "qwen2_vl_text": "qwen2",
        "qwen2_5_vl": "qwen2",
        "qwen2_5_vl_text": "qwen2",
        "qwen3_vl_text": "qwen3",
        "qwen3_vl_moe_text": "qwen3_moe",
        "qwen3_5": "qwen3_5_text",
        "qwen3_5_moe": "qwen3_5_moe_text",
    }
)


def family_of(fields: Fields) -> str:
    """Name the family, by `model_type` or else by the architecture.

    Raises:
        ModelError: none is named, or one that is not known.
    """
    kind = fields.word("model_type")
    if kind is None:
        named = fields.words("architectures") or ("",)
        kind = ARCHITECTURES.get(named[0])
    if kind is None:
        raise ModelError(f"{fields.where}: model_type is missing")
    kind = _TEXT_PARTS.get(kind, kind)
    if kind not in FAMILIES:
        raise fields.wrong("model_type", f"one of {', '.join(sorted(FAMILIES))}")
    return kind


def text_part(fields: Fields) -> Fields:
    """Give the part that is the decoder, where the model sees or hears, too."""
    return fields.part("text_config") or fields


def read_anatomy(fields: Fields, name: str) -> Anatomy:
    """Read a decoder.

    Raises:
        ModelError: a family that is not known, or a field that is missing, out of range or at odds
            with another.
    """
    text = text_part(fields)
    kind = family_of(text)
    return _Reader(fields, text, kind).anatomy(name)


class _Reader:
    def __init__(self, outer: Fields, fields: Fields, kind: str) -> None:
        self._outer, self._fields, self._kind = outer, fields, kind
        self._family: Family = FAMILIES[kind]
        self._shape: DecoderShape = shape_of(fields, self._family)
        self._layers = LayerReader(fields, self._family, self._shape)
        self._latent = Latent.read(fields) if self._family.latent else None
        self._delta = DeltaNet.read(fields) if DELTA in self._shape.kinds else None
        self._stores = gemma.stores_of(fields, self._shape)
        self._beside = self._experts_beside()

    def _experts_beside(self) -> Mixture | None:
        """Read the experts that Gemma 4 may have beside its dense MLP."""
        if self._kind != "gemma4_text" or not self._fields.flag("enable_moe_block"):
            return None
        as_others = Family(experts=True, inner="moe_intermediate_size")
        return shape_of(self._fields, as_others).mixture

    def anatomy(self, name: str) -> Anatomy:
        shape, mixture = self._shape, self._shape.mixture or self._beside
        stores, attentions = self._attentions()
        deltas = sum(kind == DELTA for kind in shape.kinds)
        return Anatomy(
            name=name,
            vocab_size=shape.vocab,
            hidden_size=shape.hidden,
            longest=self._fields.optional("max_position_embeddings", most=MOST_TOKENS),
            weights=tuple(self._tensors()),
            layers=shape.layers,
            stores=stores,
            attentions=attentions,
            state_bytes=deltas * self._delta.state_bytes if self._delta else 0,
            experts=mixture.count if mixture else 0,
            top_k=mixture.top_k if mixture else 0,
        )

    def _tied(self) -> bool:
        said = self._outer.flag("tie_word_embeddings", self._family.tied)
        return self._fields.flag("tie_word_embeddings", said)

    def _tensors(self) -> Iterator[TensorSpec]:
        shape, tied = self._shape, self._tied()
        role = TensorRole.TIED if tied else TensorRole.EMBEDDING
        yield TensorSpec("embed", shape.vocab, shape.hidden, role)
        for layer in range(shape.layers):
            yield from self._layer(layer, f"layers.{layer}.")
        if self._kind in ("gemma3n_text", "gemma4_text"):
            yield from gemma.table_tensors(self._fields, shape)
        if self._kind == "gemma3n_text":
            yield from gemma.altup_tensors(self._fields, shape)
        yield vector("final_norm", shape.hidden)
        if self._family.norm_bias:
            yield vector("final_norm.bias", shape.hidden)
        if not tied:
            yield TensorSpec("lm_head", shape.vocab, shape.hidden, TensorRole.LM_HEAD)
        if self._family.head_bias:
            yield vector("lm_head.bias", shape.vocab)

    def _layer(self, layer: int, prefix: str) -> Tensors:
        yield from self._layers.norm(prefix, 0)
        yield from self._mixer(layer, prefix)
        if self._family.norms > 1:
            yield from self._layers.norm(prefix, 1)
        inner, mixture = self._shape.inner[layer], self._shape.mixture
        if inner is not None:
            double = self._fields.flag("use_double_wide_mlp") and self._reads_another(layer)
            yield from self._layers.mlp(prefix, inner * (2 if double else 1))
        elif mixture is not None:
            yield from self._layers.mixture(prefix, mixture)
        if self._beside is not None:
            yield from self._layers.mixture(prefix, self._beside)
            yield from gemma.mixture_tensors(prefix, self._shape, self._beside)
        for place in range(2, self._family.norms):
            yield from self._layers.norm(prefix, place)

    def _reads_another(self, layer: int) -> bool:
        return self._stores[layer] != layer

    def _heads(self, layer: int) -> HeadShape:
        if self._kind == "gemma4_text":
            return gemma.heads_of(self._fields, self._shape, layer)
        return HeadShape(self._shape.kv_heads, self._shape.head_dim)

    def _mixer(self, layer: int, prefix: str) -> Tensors:
        if self._delta is not None and self._shape.kinds[layer] == DELTA:
            return self._delta.tensors(prefix, self._shape)
        if self._latent is not None:
            bias = self._layers.bias(self._family.qkv_bias)
            return self._latent.tensors(prefix, self._shape, bias)
        own = not self._reads_another(layer)
        alike = self._fields.flag("attention_k_eq_v") and self._shape.kinds[layer] == FULL
        tensors = self._layers.attention(prefix, self._heads(layer), own)
        return (spec for spec in tensors if not (alike and spec.name.endswith("v_proj")))

    def _attentions(self) -> tuple[tuple[KVSpec, ...], tuple[AttentionSpec, ...]]:
        shape, latent = self._shape, self._latent
        stores: list[KVSpec] = []
        place: dict[int, int] = {}  # of a layer's store
        attentions: list[AttentionSpec] = []
        for layer, kind in enumerate(shape.kinds):
            if kind == DELTA:
                continue
            heads, writer = self._heads(layer), self._stores[layer]
            if writer not in place:
                place[writer] = len(stores)
                stores.append(
                    KVSpec(1, latent.kv_rank + latent.rope_dim, 0)
                    if latent
                    else KVSpec(heads.kv_heads, heads.dim, heads.dim)
                )
            key_dim = latent.key_dim if latent else heads.dim
            value_dim = latent.value_dim if latent else heads.dim
            window = shape.window if kind == SLIDING else None
            attentions.append(AttentionSpec(place[writer], shape.heads, key_dim, value_dim, window))
        return tuple(stores), tuple(attentions)
