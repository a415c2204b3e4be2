"""Lays a step's attention out for torch: slices of like size share a padded group.

Grouping bounds the padding: within a group, lengths and contexts differ less than twofold (short
contexts are all alike), so a decode row is never padded to the width of a prefill slice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from engine.forward.step_tensors import StepTensors

_ALIKE_TOKENS: Final = 256  # contexts up to here are cheap enough to pad to each other
_MAX_GROUP_KEYS: Final = 2**16  # bounds the gathered copy: 50 MB a tensor at 192 floats a key


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Slices that attend together. Shapes: S slices, L queries and C keys of the largest.

    Padding repeats a slice's own last query and last key, so nothing that another request left in
    a block is ever read: NaN there cannot spread, since not even a weight of 0 would stop it.
    """

    queries: torch.Tensor  # [S, L]: token of the step
    keys: torch.Tensor  # [S × C]: slot of the KV store
    masks: dict[int | None, torch.Tensor]  # by window, [S, 1, L × heads per kv-head, C]: 0 or -inf
    real: torch.Tensor  # which of S × L are no padding
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
