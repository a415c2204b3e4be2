"""From a GGUF file's metadata to a `ModelConfig`. No weights are read here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from core.errors import ModelError
from core.model import ModelConfig, RopeConfig, RopeScaling

ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")

Metadata = Mapping[str, Any]


def read_config(
    metadata: Metadata, shapes: Mapping[str, tuple[int, int]], name: str
) -> ModelConfig:
    """Read metadata; `shapes` gives rows and columns by GGUF tensor name (a vector has one row).

    Raises:
        ModelError: an architecture or a rope scaling that we do not run, or a key that is absent.
    """
    try:
        return _read(metadata, shapes, name)
    except KeyError as error:
        raise ModelError(f"{name}: the GGUF file lacks {error}") from error
    except (ArithmeticError, AssertionError, AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"{name}: the GGUF file describes no model: {error}") from error


def _read(metadata: Metadata, shapes: Mapping[str, tuple[int, int]], name: str) -> ModelConfig:
    arch = _architecture(metadata, shapes, name)

    def of(key: str, default: Any = None) -> Any:
        value = metadata.get(f"{arch}.{key}", default)
        if value is None:
            raise KeyError(f"{arch}.{key}")
        if isinstance(value, list):
            raise ModelError(f"{name}: {arch}.{key} differs by layer, which is not supported")
        return value

    heads, layers, hidden = (
        of("attention.head_count"),
        of("block_count"),
        of("embedding_length"),
    )
    head_dim = of("attention.key_length", hidden // heads)
    if of("rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"{name}: rotary positions over a part of the head are not supported")
    return ModelConfig(
        name=name,
        vocab_size=shapes["token_embd.weight"][0],
        hidden_size=hidden,
        intermediate_size=of("feed_forward_length"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=of("attention.head_count_kv", heads),
        head_dim=head_dim,
        max_position_tokens=of("context_length"),
        norm_eps=of("attention.layer_norm_rms_epsilon"),
        rope=_rope(metadata, arch, name),
        tied_embeddings="output.weight" not in shapes,
        sliding_window=(metadata.get(f"{arch}.attention.sliding_window") or None,) * layers,
        qk_norm="blk.0.attn_q_norm.weight" in shapes,
        qkv_bias="blk.0.attn_q.bias" in shapes,
        output_bias="blk.0.attn_output.bias" in shapes,
        mlp_bias="blk.0.ffn_gate.bias" in shapes,
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=_eos_ids(metadata),
    )


def _architecture(metadata: Metadata, shapes: Mapping[str, tuple[int, int]], name: str) -> str:
    arch = str(metadata.get("general.architecture", "none named"))
    if arch not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelError(f"{name}: GGUF architecture {arch!r} is not supported (only {known})")
    if metadata.get(f"{arch}.expert_count"):
        raise ModelError(f"{name}: GGUF architecture {arch!r} with experts is not supported")
    if metadata.get("split.count", 1) > 1:
        raise ModelError(f"{name}: a GGUF file in several parts is not supported; merge it first")
    if "rope_freqs.weight" in shapes:
        raise ModelError(
            f"{name}: rope scaling by a rope_freqs tensor is not supported in GGUF files; "
            "serve the Hugging Face directory of this model"
        )
    return arch


def _rope(metadata: Metadata, arch: str, name: str) -> RopeConfig:
    theta = metadata.get(f"{arch}.rope.freq_base", 10_000.0)
    kind = metadata.get(f"{arch}.rope.scaling.type", "none")
    if kind == "none":
        return RopeConfig(theta=theta)
    if kind == "linear":
        factor = metadata[f"{arch}.rope.scaling.factor"]
        return RopeConfig(theta=theta, scaling=RopeScaling.LINEAR, factor=factor)
    raise ModelError(f"{name}: rope scaling {kind!r} is not supported in GGUF files")


def _eos_ids(metadata: Metadata) -> tuple[int, ...]:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ids = [metadata[key] for key in keys if metadata.get(key) is not None]
    return tuple(dict.fromkeys(ids))
