"""From a Hugging Face `config.json` to a `ModelConfig`. No weights are read here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from core.errors import ModelError
from core.model import Activation, ModelConfig, RopeConfig, RopeScaling

_LLAMA: Final = "LlamaForCausalLM"
_MISTRAL: Final = "MistralForCausalLM"
_QWEN2: Final = "Qwen2ForCausalLM"
_QWEN3: Final = "Qwen3ForCausalLM"
ARCHITECTURES: Final = (_LLAMA, _MISTRAL, _QWEN2, _QWEN3)

_ACTIVATIONS: Final = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
}
_ROPE_TYPES: Final = {
    "default": RopeScaling.NONE,
    "linear": RopeScaling.LINEAR,
    "llama3": RopeScaling.LLAMA3,
}


def read_config(raw: Mapping[str, Any], generation: Mapping[str, Any], name: str) -> ModelConfig:
    """Read `config.json`; `generation` is `generation_config.json`, for its end-of-sequence ids.

    Raises:
        ModelError: an architecture, rope scaling or activation that we do not run,
            or a field that is not there.
    """
    try:
        return _read(raw, generation, name)
    except KeyError as error:
        raise ModelError(f"{name}: config.json lacks {error}") from error
    except (ArithmeticError, AssertionError, AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"{name}: config.json describes no model: {error}") from error


def _read(raw: Mapping[str, Any], generation: Mapping[str, Any], name: str) -> ModelConfig:
    architecture = _architecture(raw, name)
    activation = raw.get("hidden_act", "silu")
    if activation not in _ACTIVATIONS:
        raise ModelError(f"{name}: activation {activation!r} is not supported")
    attention_bias = bool(raw.get("attention_bias", False))
    heads, layers = raw["num_attention_heads"], raw["num_hidden_layers"]
    return ModelConfig(
        name=name,
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        max_position_tokens=raw["max_position_embeddings"],
        norm_eps=raw["rms_norm_eps"],
        rope=_rope(raw, name),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        sliding_window=_sliding_window(raw, architecture, layers),
        activation=_ACTIVATIONS[activation],
        qk_norm=architecture == _QWEN3,
        qkv_bias=attention_bias or architecture == _QWEN2,
        output_bias=attention_bias and architecture != _QWEN2,
        mlp_bias=bool(raw.get("mlp_bias", False)),
        bos_token_id=raw.get("bos_token_id"),
        eos_token_ids=_eos_ids(raw, generation),
    )


def _architecture(raw: Mapping[str, Any], name: str) -> str:
    named = raw.get("architectures") or ["none named"]
    if named[0] not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelError(f"{name}: architecture {named[0]} is not supported (only {known})")
    return str(named[0])


def _rope(raw: Mapping[str, Any], name: str) -> RopeConfig:
    """Read the rotary rule, in the spelling of transformers 5 or of the versions before it."""
    rule = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rule.get("rope_type", rule.get("type", "default"))
    if kind not in _ROPE_TYPES:
        raise ModelError(f"{name}: rope scaling {kind!r} is not supported")
    if rule.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError(f"{name}: partial_rotary_factor is not supported")
    theta = float(rule.get("rope_theta", raw.get("rope_theta", 10_000.0)))
    scaling = _ROPE_TYPES[kind]
    if scaling is RopeScaling.NONE:
        return RopeConfig(theta=theta)
    if scaling is RopeScaling.LINEAR:
        return RopeConfig(theta=theta, scaling=scaling, factor=float(rule["factor"]))
    return RopeConfig(
        theta=theta,
        scaling=scaling,
        factor=float(rule["factor"]),
        low_freq_factor=float(rule["low_freq_factor"]),
        high_freq_factor=float(rule["high_freq_factor"]),
        original_max_position_tokens=rule["original_max_position_embeddings"],
    )


def _sliding_window(
    raw: Mapping[str, Any], architecture: str, layers: int
) -> tuple[int | None, ...]:
    window = raw.get("sliding_window")
    if architecture in (_QWEN2, _QWEN3) and not raw.get("use_sliding_window", False):
        window = None
    if window is None or architecture == _LLAMA:
        return (None,) * layers
    if raw.get("layer_types"):
        return tuple(window if t == "sliding_attention" else None for t in raw["layer_types"])
    first = raw.get("max_window_layers", layers) if architecture != _MISTRAL else 0
    return tuple(window if layer >= first else None for layer in range(layers))


def _eos_ids(raw: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[int, ...]:
    ids: list[int] = []
    for value in (raw.get("eos_token_id"), generation.get("eos_token_id")):
        ids += value if isinstance(value, list) else [value] if value is not None else []
    return tuple(dict.fromkeys(ids))
