"""Attention in plain torch: a step's slices, in groups, over the KV store.

Slices of like size share a padded group. Grouping bounds the padding: within a group, lengths and
contexts differ less than twofold (short contexts are all alike), so a decode row is never padded
to the width of a prefill slice.
Which request owns which block is decided in `kvcache/`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from core.formats import KVFormat
from core.model import ModelConfig
from engine.forward.batch import StepBatch

KV_DTYPES: Final = {KVFormat.FP32: torch.float32, KVFormat.FP16: torch.float16}

_ALIKE_TOKENS: Final = 256  # contexts up to here are cheap enough to pad to each other
_MAX_GROUP_KEYS: Final = 2**16  # bounds the gathered copy: 50 MB a tensor at 192 floats a key


@dataclass(frozen=True, slots=True)
class KVLayer:
    """One layer's keys and values, each [num_blocks, block_size, K, D]."""

    keys: torch.Tensor
    values: torch.Tensor

    def write(self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        """Store keys and values [T, K, D] at slots [T]."""
        for store, new in ((self.keys, keys), (self.values, values)):
            store.flatten(0, 1).index_copy_(0, slots, new.to(store.dtype))


@dataclass(frozen=True, slots=True)
class KVStore:
    """The tensors that block numbers stand for."""

    layers: tuple[KVLayer, ...]
    block_size: int

    @property
    def nbytes(self) -> int:
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers)


def allocate_kv(config: ModelConfig, kv: KVFormat, num_blocks: int, block_size: int) -> KVStore:
    """Allocate all blocks of all layers; the system gives the pages as they are first written."""
    shape = (num_blocks, block_size, config.num_kv_heads, config.head_dim)

    def zeros() -> torch.Tensor:
        return torch.zeros(shape, dtype=KV_DTYPES[kv])

    layers = tuple(KVLayer(zeros(), zeros()) for _ in range(config.num_layers))
    return KVStore(layers, block_size)


@dataclass(frozen=True, slots=True)
class StepTensors:
    """`StepBatch` as int64 tensors, and how long each slice's context is."""

    token_ids: torch.Tensor  # [T]
    positions: torch.Tensor  # [T]
    slots: torch.Tensor  # [T]
    block_tables: torch.Tensor  # [B, M]
    query_starts: torch.Tensor  # [B + 1]
    logit_rows: torch.Tensor  # [R]
    contexts: torch.Tensor  # [B]: tokens with KV once this step's are written


def step_tensors(batch: StepBatch) -> StepTensors:
    """Make torch's tensors of a step's lists."""

    def tensor(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64)

    positions, starts = tensor(batch.positions), tensor(batch.query_starts)
    return StepTensors(
        token_ids=tensor(batch.token_ids),
        positions=positions,
        slots=tensor(batch.slots),
        block_tables=torch.from_numpy(batch.padded_tables(np.int64)),
        query_starts=starts,
        logit_rows=tensor(batch.logit_rows),
        contexts=positions[starts[1:] - 1] + 1,
    )


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Slices that attend together. Shapes: S slices, L queries and C keys of the largest.

    Padding repeats a slice's own last query and last key, so it never reads what another request
    left in a block. A NaN there would spread even with a weight of 0.
    """

    queries: torch.Tensor  # [S, L]: token of the step
    keys: torch.Tensor  # [S × C]: slot of the KV store
    masks: dict[int | None, torch.Tensor]  # by window, [S, 1, L × heads per kv-head, C]: 0 or -inf
    real: torch.Tensor  # which of S × L are not padding
    tokens: torch.Tensor  # the tokens of those


def group_attention(
    batch: StepTensors, block_size: int, windows: frozenset[int | None], heads_per_kv_head: int
) -> tuple[AttentionGroup, ...]:
    """Split a step's slices into groups. Cost: O(padded queries × padded keys) for the masks."""
    starts, contexts = batch.query_starts.numpy(), batch.contexts.numpy()
    return tuple(
        _group(members, batch, block_size, windows, heads_per_kv_head)
        for members in _alike(np.diff(starts), contexts)
    )


def _alike(lengths: np.ndarray, contexts: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the slices whose length and context round up to the same powers of two."""
    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (length, context) in enumerate(
        zip(lengths.tolist(), contexts.tolist(), strict=True)
    ):
        width = max(context, _ALIKE_TOKENS)
        buckets[(length - 1).bit_length(), (width - 1).bit_length()].append(index)
    for (_, width_bits), members in buckets.items():
        most = max(1, _MAX_GROUP_KEYS >> width_bits)
        for first in range(0, len(members), most):
            yield np.array(members[first : first + most])


def _group(
    members: np.ndarray,
    batch: StepTensors,
    block_size: int,
    windows: frozenset[int | None],
    heads_per_kv_head: int,
) -> AttentionGroup:
    starts = batch.query_starts[members]  # [S]
    lengths = batch.query_starts[members + 1] - starts  # [S]
    contexts = batch.contexts[members]  # [S]
    columns = torch.arange(int(lengths.max()))  # [L]
    queries = starts[:, None] + torch.minimum(columns, lengths[:, None] - 1)  # [S, L]
    real = (columns < lengths[:, None]).flatten().nonzero().squeeze(1)

    positions = torch.arange(int(contexts.max()))  # [C]
    clamped = torch.minimum(positions, contexts[:, None] - 1)  # [S, C]
    blocks = batch.block_tables[members].gather(1, clamped // block_size)  # [S, C]
    keys = blocks * block_size + clamped % block_size  # [S, C]

    query_positions = batch.positions[queries][:, :, None]  # [S, L, 1]
    masks = {w: _mask(query_positions, positions, w, heads_per_kv_head) for w in windows}
    return AttentionGroup(queries, keys.flatten(), masks, real, queries.flatten()[real])


def _mask(
    query_positions: torch.Tensor, positions: torch.Tensor, window: int | None, repeats: int
) -> torch.Tensor:
    hidden = positions > query_positions  # [S, L, C]
    if window is not None:
        hidden |= positions <= query_positions - window
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
    return mask.repeat_interleave(repeats, 1).unsqueeze(1)  # [S, 1, L × G, C]


def attend(
    queries: torch.Tensor, layer: KVLayer, groups: tuple[AttentionGroup, ...], window: int | None
) -> torch.Tensor:
    """Attend from queries [T, H, D] to the store, each token to itself and those before it.

    `window` is how many tokens a query sees, itself among them; None is all.
    Returns: [T, H, D].
    """
    attended = torch.empty_like(queries)  # [T, H, D]
    for group in groups:
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
