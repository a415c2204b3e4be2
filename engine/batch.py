"""One step laid out flat: what the forward pass is told. No request is known below this file.

Plain lists: a step's weights have swept this code out of the caches, and what is short is then
done soonest. Each network makes its own arrays of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core.step import StepPlan


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The tokens of all slices, one after another, and where their keys and values lie.

    Shapes: T tokens, B slices, M blocks of the longest table, R rows whose logits are needed.
    """

    token_ids: list[int] = field(default_factory=list)  # [T]
    positions: list[int] = field(default_factory=list)  # [T]
    slots: list[int] = field(default_factory=list)  # [T]: block × block_size + offset
    block_tables: list[list[int]] = field(default_factory=list)  # [B, M], padded with 0
    query_starts: list[int] = field(default_factory=lambda: [0])  # [B + 1]: slice b is tokens
    #   starts[b] … starts[b + 1] - 1
    logit_rows: list[int] = field(default_factory=list)  # [R]: each last that samples, then scored


def build_batch(plan: StepPlan, block_size: int) -> StepBatch:
    """Lay a plan out flat.

    Invariant: each slice's block table covers its tokens; the scheduler saw to it.
    Cost: O(T + B × M) on the host.
    """
    batch = StepBatch()
    scored: list[int] = []
    for piece in plan.slices:
        request, first = piece.request, len(batch.token_ids)
        table, end = request.block_table, piece.start + piece.length
        assert len(table) * block_size >= end, f"{request.id}: too few blocks"
        for position in range(piece.start, end):
            batch.token_ids.append(request.token_at(position))
            batch.positions.append(position)
            batch.slots.append(table[position // block_size] * block_size + position % block_size)
        batch.block_tables.append(table[: -(-end // block_size)])
        batch.query_starts.append(len(batch.token_ids))
        if piece.samples:
            batch.logit_rows.append(len(batch.token_ids) - 1)
        scored += [first + position - piece.start for position in piece.scored]
    batch.logit_rows.extend(scored)
    _pad(batch.block_tables)
    return batch


def _pad(tables: list[list[int]]) -> None:
    width = max(map(len, tables))
    for table in tables:
        table += [0] * (width - len(table))
