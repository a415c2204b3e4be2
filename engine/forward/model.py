"""The decoder, written once: any `ModelConfig` of the Llama family runs through these lines."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.model import ModelConfig
from engine.forward.kvstore import KVLayer, KVStore
from engine.forward.ops import Attention, Matrix, Ops
from engine.forward.rotary import inverse_frequencies, rotations
from engine.forward.step_tensors import StepTensors
from engine.forward.weights import Weights


@dataclass(frozen=True, slots=True)
class Projection:
    matrix: Matrix
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Layer:
    input_norm: torch.Tensor
    q_proj: Projection
    k_proj: Projection
    v_proj: Projection
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o_proj: Projection
    post_norm: torch.Tensor
    gate_proj: Projection
    up_proj: Projection
    down_proj: Projection
    window: int | None


@dataclass(frozen=True, slots=True)
class _Pass:
    """What all layers of one forward pass share."""

    attention: Attention
    slots: torch.Tensor  # [T]
    turns: torch.Tensor  # [2, T, 1, D / 2]


class Decoder:
    """Shapes: T tokens of the step, R rows with logits, H heads, K kv-heads, D head dim."""

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops) -> None:
        self._config, self._ops = config, ops
        self._frequencies = inverse_frequencies(config.rope, config.head_dim)  # [D / 2]
        self._embedding = weights["embed"]  # [V, hidden]
        self._layers = tuple(
            _layer(weights, f"layers.{index}.", window, ops)
            for index, window in enumerate(config.sliding_window)
        )
        self._final_norm = weights["final_norm"]  # [hidden]
        self._lm_head = ops.pack(weights["embed" if config.tied_embeddings else "lm_head"])

    def forward(self, batch: StepTensors, attention: Attention, kv: KVStore) -> torch.Tensor:
        """Run a step's tokens through every layer. Mutates: the KV store at the batch's slots.

        Returns: logits [R, V] of the rows that sample, fp32.
        """
        x = self._ops.embed(self._embedding, batch.token_ids)  # [T, hidden]
        turns = rotations(self._frequencies, batch.positions)
        shared = _Pass(attention, batch.slots, turns)
        for layer, kv_layer in zip(self._layers, kv.layers, strict=True):
            x = x + self._attention(layer, self._norm(x, layer.input_norm), kv_layer, shared)
            x = x + self._mlp(layer, self._norm(x, layer.post_norm))
        x = self._norm(x[batch.logit_rows], self._final_norm)  # [R, hidden]
        return self._ops.linear(x, self._lm_head)  # [R, V]

    def _attention(
        self, layer: Layer, x: torch.Tensor, kv_layer: KVLayer, shared: _Pass
    ) -> torch.Tensor:
        config, ops, tokens = self._config, self._ops, x.shape[0]
        q = self._linear(x, layer.q_proj).view(tokens, config.num_heads, -1)  # [T, H, D]
        k = self._linear(x, layer.k_proj).view(tokens, config.num_kv_heads, -1)  # [T, K, D]
        v = self._linear(x, layer.v_proj).view(tokens, config.num_kv_heads, -1)  # [T, K, D]
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)
        q, k = ops.rotate(q, shared.turns), ops.rotate(k, shared.turns)
        ops.write_kv(kv_layer, k, v, shared.slots)
        attended = ops.attend(q, kv_layer, shared.attention, layer.window)  # [T, H, D]
        return self._linear(attended.flatten(1), layer.o_proj)  # [T, hidden]

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        gate = self._linear(x, layer.gate_proj)  # [T, intermediate]
        up = self._linear(x, layer.up_proj)  # [T, intermediate]
        inner = self._ops.gate(gate, up, self._config.activation)  # [T, intermediate]
        return self._linear(inner, layer.down_proj)  # [T, hidden]

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._ops.rms_norm(x, weight, self._config.norm_eps)

    def _linear(self, x: torch.Tensor, projection: Projection) -> torch.Tensor:
        return self._ops.linear(x, projection.matrix, projection.bias)


def _layer(weights: Weights, prefix: str, window: int | None, ops: Ops) -> Layer:
    def projection(name: str) -> Projection:
        name = f"{prefix}{name}"
        return Projection(ops.pack(weights[name]), weights.get(f"{name}.bias"))

    return Layer(
        input_norm=weights[f"{prefix}input_norm"],
        q_proj=projection("q_proj"),
        k_proj=projection("k_proj"),
        v_proj=projection("v_proj"),
        q_norm=weights.get(f"{prefix}q_norm"),
        k_norm=weights.get(f"{prefix}k_norm"),
        o_proj=projection("o_proj"),
        post_norm=weights[f"{prefix}post_norm"],
        gate_proj=projection("gate_proj"),
        up_proj=projection("up_proj"),
        down_proj=projection("down_proj"),
        window=window,
    )
