"""From a GGUF file's metadata to a `ModelConfig`. No weights are read here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from core.errors import ModelError
from core.model import ModelConfig, RopeConfig, RopeScaling
from engine.headers.checks import MOST_LAYERS, MOST_POSITIONS, Numbers, check_heads, ids

ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")

Metadata = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]

_NEUTRAL: Final = {  # keys that would change the arithmetic, and what they say where they do not
    "expert_count": 0,
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.scale": 0.0,
    "attn_logit_softcapping": 0.0,
    "embedding_scale": 1.0,
    "final_logit_softcapping": 0.0,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "rope.scaling.attn_factor": 1.0,
    "use_parallel_residual": False,
}


def read_config(
    metadata: Metadata, shapes: Shapes, rope_factors: tuple[float, ...], name: str
) -> ModelConfig:
    """Read metadata; `shapes` are those of the tensors, by their GGUF names.

    Raises:
        ModelError: an architecture or a rope scaling that we do not run, a key that is absent, or
            a number that no model has.
    """
    try:
        return _read(metadata, shapes, rope_factors, name)
    except KeyError as error:
        raise ModelError(f"{name}: the GGUF file lacks {error}") from error
    except (ArithmeticError, AssertionError, AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"{name}: the GGUF file describes no model: {error}") from error


def _read(
    metadata: Metadata, shapes: Shapes, rope_factors: tuple[float, ...], name: str
) -> ModelConfig:
    arch = _architecture(metadata, name)
    of = Numbers(name, lambda key: _for_all_layers(metadata, key, name))
    heads, hidden = of.whole(f"{arch}.attention.head_count"), of.whole(f"{arch}.embedding_length")
    layers = of.whole(f"{arch}.block_count", most=MOST_LAYERS)
    head_dim = of.whole(f"{arch}.attention.key_length", hidden // heads)
    if of.whole(f"{arch}.attention.value_length", head_dim) != head_dim:
        raise ModelError(f"{name}: values of another width than keys are not supported")
    if of.whole(f"{arch}.rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"{name}: rotary positions over a part of the head are not supported")
    config = ModelConfig(
        name=name,
        vocab_size=shapes["token_embd.weight"][0],
        hidden_size=hidden,
        intermediate_size=of.whole(f"{arch}.feed_forward_length"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=of.whole(f"{arch}.attention.head_count_kv", heads),
        head_dim=head_dim,
        max_position_tokens=of.whole(f"{arch}.context_length", most=MOST_POSITIONS),
        norm_eps=of.positive(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope=_rope(metadata, of, arch, rope_factors, name),
        tied_embeddings="output.weight" not in shapes,
        sliding_window=_windows(metadata, of, arch, layers),
        qk_norm="blk.0.attn_q_norm.weight" in shapes,
        qkv_bias="blk.0.attn_q.bias" in shapes,
        output_bias="blk.0.attn_output.bias" in shapes,
        mlp_bias="blk.0.ffn_gate.bias" in shapes,
        bos_token_id=next(iter(_ids(metadata, ("bos",), name)), None),
        eos_token_ids=_ids(metadata, ("eos", "eot", "eom"), name),
    )
    check_heads(config)
    return config


def _for_all_layers(metadata: Metadata, key: str, name: str) -> Any:
    """Give a value; some files say it once for each layer."""
    value = metadata.get(key)
    if not isinstance(value, list):
        return value
    if not value or any(item != value[0] for item in value):
        raise ModelError(f"{name}: {key} differs by layer, which is not supported")
    return value[0]


def _architecture(metadata: Metadata, name: str) -> str:
    arch = str(metadata.get("general.architecture", "none named"))
    if arch not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelError(f"{name}: GGUF architecture {arch!r} is not supported (only {known})")
    for key, neutral in _NEUTRAL.items():
        value = metadata.get(f"{arch}.{key}", neutral)
        if value != neutral:
            raise ModelError(f"{name}: {arch}.{key} = {value!r} is not supported")
    return arch


def _rope(
    metadata: Metadata, of: Numbers, arch: str, factors: tuple[float, ...], name: str
) -> RopeConfig:
    theta = of.positive(f"{arch}.rope.freq_base", 10_000.0)
    kind = metadata.get(f"{arch}.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise ModelError(f"{name}: rope scaling {kind!r} is not supported in GGUF files")
    factor = of.positive(f"{arch}.rope.scaling.factor") if kind == "linear" else 1.0
    if factors:
        if not all(math.isfinite(item) and item > 0 for item in factors):
            raise ModelError(f"{name}: rope_freqs.weight holds a number that is not above 0")
        return RopeConfig(theta=theta, scaling=RopeScaling.FACTORS, factor=factor, factors=factors)
    scaling = RopeScaling.LINEAR if kind == "linear" else RopeScaling.NONE
    return RopeConfig(theta=theta, scaling=scaling, factor=factor)


def _windows(metadata: Metadata, of: Numbers, arch: str, layers: int) -> tuple[int | None, ...]:
    """Give each layer's window. Source: llama.cpp's `set_swa_pattern` for patterns by period."""
    if not metadata.get(f"{arch}.attention.sliding_window"):
        return (None,) * layers
    window = of.whole(f"{arch}.attention.sliding_window", most=MOST_POSITIONS)
    pattern = metadata.get(f"{arch}.attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return tuple(window if slides else None for slides in pattern)
    if pattern is None:
        return (window,) * layers
    period = of.whole(f"{arch}.attention.sliding_window_pattern", most=MOST_LAYERS)
    return tuple(window if layer % period < period - 1 else None for layer in range(layers))


def _ids(metadata: Metadata, kinds: tuple[str, ...], name: str) -> tuple[int, ...]:
    keys = [f"tokenizer.ggml.{kind}_token_id" for kind in kinds]
    found = [id for key in keys for id in ids(name, key, metadata.get(key))]
    return tuple(dict.fromkeys(found))
