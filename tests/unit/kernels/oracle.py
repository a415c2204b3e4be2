"""The plain decoder in float64 numpy, a sequence at a time: native steps are compared with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from core.model import Activation, ModelConfig, TensorRole

Array = npt.NDArray[Any]


def random_weights(config: ModelConfig, seed: int, spread: float = 0.3) -> dict[str, Array]:
    """Give every weight of `config` in fp32: matrices [N, K], vectors [N]."""
    rng = np.random.default_rng(seed)
    weights = {}
    for spec in config.tensors():
        if spec.role is TensorRole.VECTOR:
            centre = 1.0 if spec.name.endswith("norm") else 0.0
            values = centre + 0.1 * rng.standard_normal(spec.columns)
        else:
            values = rng.standard_normal((spec.rows, spec.columns)) * spread
        weights[spec.name] = values.astype(np.float32)
    return weights


def inverse_frequencies(config: ModelConfig) -> Array:
    exponents = np.arange(0, config.head_dim, 2) / config.head_dim
    return (1.0 / config.rope.theta**exponents).astype(np.float32)


def forward(
    config: ModelConfig,
    weights: dict[str, Array],
    tokens: list[int],
    stored: Callable[[Array], Array] = lambda x: x,
) -> Array:
    """Give the logits [T, V] of a sequence from its first token on.

    `stored` says what the KV store makes of keys and values [T, K, D].
    """
    w = {name: values.astype(np.float64) for name, values in weights.items()}
    x = w["embed"][tokens]
    for layer, window in enumerate(config.sliding_window):
        prefix = f"layers.{layer}."
        x = x + _attention(
            config, w, prefix, window, _norm(x, w[prefix + "input_norm"], config), stored
        )
        x = x + _mlp(config, w, prefix, _norm(x, w[prefix + "post_norm"], config))
    head = w["embed"] if config.tied_embeddings else w["lm_head"]
    return _norm(x, w["final_norm"], config) @ head.T


def _norm(x: Array, weight: Array, config: ModelConfig) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + config.norm_eps) * weight


def _linear(w: dict[str, Array], name: str, x: Array) -> Array:
    return x @ w[name].T + w.get(name + ".bias", 0.0)


def _rotate(x: Array, config: ModelConfig) -> Array:
    angles = np.arange(len(x))[:, None, None] * inverse_frequencies(config)
    a, b = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _attention(
    config: ModelConfig,
    w: dict[str, Array],
    prefix: str,
    window: int | None,
    x: Array,
    stored: Callable[[Array], Array],
) -> Array:
    def heads(name: str, count: int) -> Array:
        return _linear(w, prefix + name, x).reshape(len(x), count, config.head_dim)

    q, k = heads("q_proj", config.num_heads), heads("k_proj", config.num_kv_heads)
    v = heads("v_proj", config.num_kv_heads)
    if config.qk_norm:
        q, k = _norm(q, w[prefix + "q_norm"], config), _norm(k, w[prefix + "k_norm"], config)
    q, k, v = _rotate(q, config), stored(_rotate(k, config)), stored(v)
    group = config.num_heads // config.num_kv_heads
    scores = np.einsum("qhd,khd->hqk", q, k.repeat(group, axis=1)) / np.sqrt(config.head_dim)
    distance = np.arange(len(x))[:, None] - np.arange(len(x))[None, :]
    seen = (distance >= 0) & (distance < (window or len(x)))
    scores = np.where(seen, scores, -np.inf)
    mixed = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed /= mixed.sum(axis=-1, keepdims=True)
    out = np.einsum("hqk,khd->qhd", mixed, v.repeat(group, axis=1)).reshape(len(x), -1)
    return _linear(w, prefix + "o_proj", out)


def _mlp(config: ModelConfig, w: dict[str, Array], prefix: str, x: Array) -> Array:
    gate, up = _linear(w, prefix + "gate_proj", x), _linear(w, prefix + "up_proj", x)
    if config.activation is Activation.SILU:
        active = gate / (1 + np.exp(-gate))
    else:
        inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
        active = 0.5 * gate * (1 + np.tanh(inner))
    return _linear(w, prefix + "down_proj", active * up)
