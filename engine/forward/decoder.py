"""The readable definition in plain torch: any `ModelConfig` of the Llama family runs through this.

Native kernels are compared with it. All arithmetic is fp32, whatever weights and KV are stored in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from core.model import Activation, ModelConfig
from engine.forward.attention import AttentionGroup, KVLayer, KVStore, StepTensors, attend
from engine.forward.rotary import inverse_frequencies, rotate, rotations
from engine.forward.weights import Weights

Matrix = Any  # a tensor [N, K], or fbgemm's packed copy of one

_FP16_PRODUCT = "fbgemm" in torch.backends.quantized.supported_engines


@dataclass(frozen=True, slots=True)
class Projection:
    """A matrix [N, K], ready to multiply by, and its bias [N]."""

    matrix: Matrix
    bias: torch.Tensor | None = None

    @classmethod
    def of(cls, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Projection:
        """Pack a stored matrix where that makes the product faster.

        A matrix in fp16 is multiplied by fbgemm where torch has it: fp16 weights, fp32 products
        and sums (1e-6 of the upcast product). The packed copy doubles the memory; the stored
        pages are not touched again. Elsewhere the matrix is upcast at each use.
        """
        if weight.dtype is torch.float16 and _FP16_PRODUCT:
            packed = torch.ops.quantized.linear_prepack_fp16(weight.float(), None)
            return cls(packed, bias)
        return cls(weight, bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply x [T, K] by the transposed matrix. Returns: [T, N]."""
        if isinstance(self.matrix, torch.Tensor):
            return F.linear(x, self.matrix.float(), self.bias)
        product: torch.Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self.matrix)
        return product if self.bias is None else product.add_(self.bias)


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
    window: int | None  # how many tokens a query sees, itself among them; None is all


@dataclass(frozen=True, slots=True)
class _Pass:
    """What all layers of one forward pass share."""

    groups: tuple[AttentionGroup, ...]
    slots: torch.Tensor  # [T]
    turns: torch.Tensor  # [2, T, 1, D / 2]


class Decoder:
    """Shapes: T tokens of the step, R rows with logits, H heads, K kv-heads, D head dim."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self._frequencies = inverse_frequencies(config.rope, config.head_dim)  # [D / 2]
        self._embedding = weights["embed"]  # [V, hidden]
        self._layers = tuple(
            _layer(weights, f"layers.{index}.", window)
            for index, window in enumerate(config.sliding_window)
        )
        self._final_norm = weights["final_norm"]  # [hidden]
        self._lm_head = Projection.of(weights["embed" if config.tied_embeddings else "lm_head"])

    def forward(
        self, batch: StepTensors, groups: tuple[AttentionGroup, ...], kv: KVStore
    ) -> torch.Tensor:
        """Run a step's tokens through every layer. Mutates: the KV store at the batch's slots.

        Returns: logits [R, V] of the rows that sample, fp32.
        """
        x = F.embedding(batch.token_ids, self._embedding).float()  # [T, hidden]
        shared = _Pass(groups, batch.slots, rotations(self._frequencies, batch.positions))
        for layer, kv_layer in zip(self._layers, kv.layers, strict=True):
            x = x + self._attention(layer, self._norm(x, layer.input_norm), kv_layer, shared)
            x = x + self._mlp(layer, self._norm(x, layer.post_norm))
        x = self._norm(x[batch.logit_rows], self._final_norm)  # [R, hidden]
        return self._lm_head(x)  # [R, V]

    def _attention(
        self, layer: Layer, x: torch.Tensor, kv_layer: KVLayer, shared: _Pass
    ) -> torch.Tensor:
        config, tokens = self.config, x.shape[0]
        q = layer.q_proj(x).view(tokens, config.num_heads, -1)  # [T, H, D]
        k = layer.k_proj(x).view(tokens, config.num_kv_heads, -1)  # [T, K, D]
        v = layer.v_proj(x).view(tokens, config.num_kv_heads, -1)  # [T, K, D]
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)
        q, k = rotate(q, shared.turns), rotate(k, shared.turns)
        kv_layer.write(k, v, shared.slots)
        attended = attend(q, kv_layer, shared.groups, layer.window)  # [T, H, D]
        return layer.o_proj(attended.flatten(1))  # [T, hidden]

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        gate, up = layer.gate_proj(x), layer.up_proj(x)  # [T, intermediate] each
        if self.config.activation is Activation.SILU:
            inner = F.silu(gate, inplace=True).mul_(up)
        else:
            inner = F.gelu(gate, approximate="tanh").mul_(up)
        return layer.down_proj(inner)  # [T, hidden]

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Scale the last dimension to a mean square of 1, then by `weight`."""
        return F.rms_norm(x, weight.shape, weight, self.config.norm_eps)


def _layer(weights: Weights, prefix: str, window: int | None) -> Layer:
    def projection(name: str) -> Projection:
        name = f"{prefix}{name}"
        return Projection.of(weights[name], weights.get(f"{name}.bias"))

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
