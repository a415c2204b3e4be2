"""One step laid out flat: the input of the forward pass. Code below this file knows no requests.

Plain lists, because they are quickest for short steps: the last step's weights have pushed this
code out of the caches. Each network makes its own arrays of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.request import BlockId
from core.step import StepPlan


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The tokens of all slices, one after another, and where their keys and values lie.

    Shapes: T tokens, B slices, M blocks of the longest table, R rows whose logits are needed.
    """

    token_ids: list[int]  # [T]
    positions: list[int]  # [T]
    slots: list[int]  # [T]: block × block_size + offset
    block_tables: list[list[BlockId]]  # [B, ≤ M]: as many as the context has
    query_starts: list[int]  # [B + 1]: slice b is tokens starts[b] … starts[b + 1] - 1
    logit_rows: list[int]  # [R]: the last token of each that samples, then all scored

    def padded_tables(self, dtype: type[np.signedinteger]) -> np.ndarray:
        """Give the block tables as one array [B, M], padded with 0."""
        width = max(map(len, self.block_tables))
        tables = np.zeros((len(self.block_tables), width), dtype)
        for row, table in zip(tables, self.block_tables, strict=True):
            row[: len(table)] = table
        return tables


def build_batch(plan: StepPlan, block_size: int) -> StepBatch:
    """Lay a plan out flat.

    Invariant: each slice's block table covers its tokens; the scheduler saw to it.
    Cost: O(T + B × M) on the host.
    """
    tokens, positions, slots = list[int](), list[int](), list[int]()
    tables, starts, sampled, scored = list[list[BlockId]](), [0], list[int](), list[int]()
    for piece in plan.slices:
        request, first = piece.request, len(tokens)
        table, end = request.block_table, piece.start + piece.length
        assert len(table) * block_size >= end, f"{request.id}: too few blocks"
        for position in range(piece.start, end):
            tokens.append(request.token_at(position))
            positions.append(position)
            slots.append(table[position // block_size] * block_size + position % block_size)
        tables.append(table[: -(-end // block_size)])
        starts.append(len(tokens))
        if piece.samples:
            sampled.append(len(tokens) - 1)
        scored += [first + position - piece.start for position in piece.scored]
    return StepBatch(tokens, positions, slots, tables, starts, sampled + scored)
