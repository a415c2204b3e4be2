"""The ops in plain torch: the reference that native kernels are compared with. fp32 arithmetic.

A matrix stored in fp16 is multiplied by fbgemm where torch has it: fp16 weights, fp32 products and
sums (1e-6 of the upcast product). Its packed copy doubles the memory; the stored pages of the map
are then not touched again. Elsewhere the matrix is upcast at each use.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from core.model import Activation, ModelConfig
from engine.forward.attention import AttentionGroup, group_attention
from engine.forward.kvstore import KVLayer
from engine.forward.ops import Matrix
from engine.forward.step_tensors import StepTensors

_FP16_PRODUCT = "fbgemm" in torch.backends.quantized.supported_engines


class TorchOps:
    """Implements `Ops`; the config says which masks and groups of heads its attention needs."""

    backend = "torch"

    def __init__(self, config: ModelConfig) -> None:
        self.isa = torch.backends.cpu.get_cpu_capability().lower()
        self._windows = frozenset(config.sliding_window)
        self._heads_per_kv_head = config.num_heads // config.num_kv_heads

    def pack(self, weight: torch.Tensor) -> Matrix:
        if weight.dtype is torch.float16 and _FP16_PRODUCT:
            return torch.ops.quantized.linear_prepack_fp16(weight.float(), None)
        return weight

    def embed(self, table: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(token_ids, table).float()

    def linear(
        self, x: torch.Tensor, matrix: Matrix, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        if isinstance(matrix, torch.Tensor):
            return F.linear(x, matrix.float(), bias)
        product: torch.Tensor = torch.ops.quantized.linear_dynamic_fp16(x, matrix)
        return product if bias is None else product.add_(bias)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, eps)

    def rotate(self, x: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
        cos, sin = rotations  # [T, 1, D / 2] each
        first, second = x.chunk(2, dim=-1)  # [T, H, D / 2] each
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def gate(self, gate: torch.Tensor, up: torch.Tensor, activation: Activation) -> torch.Tensor:
        if activation is Activation.SILU:
            return F.silu(gate, inplace=True).mul_(up)
        return F.gelu(gate, approximate="tanh").mul_(up)

    def write_kv(
        self, layer: KVLayer, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> None:
        for store, new in ((layer.keys, keys), (layer.values, values)):
            store.flatten(0, 1).index_copy_(0, slots, new.to(store.dtype))

    def plan_attention(self, batch: StepTensors, block_size: int) -> tuple[AttentionGroup, ...]:
        return group_attention(batch, block_size, self._windows, self._heads_per_kv_head)

    def attend(
        self,
        queries: torch.Tensor,
        layer: KVLayer,
        attention: tuple[AttentionGroup, ...],
        window: int | None,
    ) -> torch.Tensor:
        attended = torch.empty_like(queries)  # [T, H, D]
        for group in attention:
            attended[group.tokens] = _attend_group(queries, layer, group, window)
        return attended


def _attend_group(
    queries: torch.Tensor, layer: KVLayer, group: AttentionGroup, window: int | None
) -> torch.Tensor:
    """Attend for one group over a gathered copy of its keys and values.

    The heads that share a kv-head become rows of one query matrix, so no key is repeated.
    Returns: [tokens of the group, H, D].
    """
    slices, length = group.queries.shape
    _, heads, head_dim = queries.shape
    kv_heads = layer.keys.shape[2]

    def gathered(store: torch.Tensor) -> torch.Tensor:
        rows = store.flatten(0, 1).index_select(0, group.keys)  # [S × C, K, D]
        return rows.view(slices, -1, kv_heads, head_dim).transpose(1, 2).float()  # [S, K, C, D]

    rows = queries[group.queries].view(slices, length, kv_heads, -1, head_dim)  # [S, L, K, G, D]
    rows = rows.transpose(1, 2).reshape(slices, kv_heads, -1, head_dim)  # [S, K, L × G, D]
    out = F.scaled_dot_product_attention(
        rows, gathered(layer.keys), gathered(layer.values), attn_mask=group.masks[window]
    )  # [S, K, L × G, D]
    out = out.view(slices, kv_heads, length, -1, head_dim).transpose(1, 2)  # [S, L, K, G, D]
    return out.reshape(slices * length, heads, head_dim)[group.real]
