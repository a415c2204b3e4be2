"""From a Hugging Face `config.json` to a `ModelConfig`. No weights are read here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from core.errors import ModelError
from core.model import Activation, ModelConfig, RopeConfig, RopeScaling
from engine.headers.checks import MOST_LAYERS, MOST_POSITIONS, Numbers, check_heads, ids

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
    of = Numbers(f"{name}: config.json", raw.get)
    heads, hidden = of.whole("num_attention_heads"), of.whole("hidden_size")
    layers = of.whole("num_hidden_layers", most=MOST_LAYERS)
    config = ModelConfig(
        name=name,
        vocab_size=of.whole("vocab_size"),
        hidden_size=hidden,
        intermediate_size=of.whole("intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=of.whole("num_key_value_heads", heads),
        head_dim=_head_dim(of, hidden, heads, name),
        max_position_tokens=of.whole("max_position_embeddings", most=MOST_POSITIONS),
        norm_eps=of.positive("rms_norm_eps"),
        rope=_rope(raw, name),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        sliding_window=_sliding_window(raw, of, architecture, layers),
        activation=_ACTIVATIONS[activation],
        qk_norm=architecture == _QWEN3,
        qkv_bias=attention_bias or architecture == _QWEN2,
        output_bias=attention_bias and architecture != _QWEN2,
        mlp_bias=bool(raw.get("mlp_bias", False)),
        bos_token_id=next(iter(ids(name, "bos_token_id", raw.get("bos_token_id"))), None),
        eos_token_ids=_eos_ids(raw, generation, name),
    )
    check_heads(config)
    return config


def _head_dim(of: Numbers, hidden: int, heads: int, name: str) -> int:
    if hidden % heads and of.said("head_dim") is None:
        raise ModelError(f"{name}: config.json: hidden_size {hidden} over {heads} heads is uneven")
    return of.whole("head_dim", hidden // heads)


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
    where = f"{name}: config.json"
    of = Numbers(where, rule.get)
    theta = of.positive("rope_theta", Numbers(where, raw.get).positive("rope_theta", 10_000.0))
    scaling = _ROPE_TYPES[kind]
    if scaling is RopeScaling.NONE:
        return RopeConfig(theta=theta)
    if scaling is RopeScaling.LINEAR:
        return RopeConfig(theta=theta, scaling=scaling, factor=of.positive("factor"))
    low, high = of.positive("low_freq_factor"), of.positive("high_freq_factor")
    if low >= high:
        raise ModelError(f"{where}: low_freq_factor {low} is not below high_freq_factor {high}")
    return RopeConfig(
        theta=theta,
        scaling=scaling,
        factor=of.positive("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_tokens=of.whole(
            "original_max_position_embeddings", most=MOST_POSITIONS
        ),
    )


def _sliding_window(
    raw: Mapping[str, Any], of: Numbers, architecture: str, layers: int
) -> tuple[int | None, ...]:
    qwen = architecture in (_QWEN2, _QWEN3)
    unused = architecture == _LLAMA or (qwen and not raw.get("use_sliding_window", False))
    if unused or raw.get("sliding_window") is None:
        return (None,) * layers
    window = of.whole("sliding_window", most=MOST_POSITIONS)
    if raw.get("layer_types"):
        return tuple(window if t == "sliding_attention" else None for t in raw["layer_types"])
    first = raw.get("max_window_layers", layers) if architecture != _MISTRAL else 0
    return tuple(window if layer >= first else None for layer in range(layers))


def _eos_ids(raw: Mapping[str, Any], generation: Mapping[str, Any], name: str) -> tuple[int, ...]:
    found: list[int] = []
    for file, said in (("config.json", raw), ("generation_config.json", generation)):
        found += ids(f"{name}: {file}", "eos_token_id", said.get("eos_token_id"))
    return tuple(dict.fromkeys(found))
