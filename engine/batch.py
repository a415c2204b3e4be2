"""One step as flat tensors: what the forward pass is told. No request is known below this file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core.step import Slice, StepPlan


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The tokens of all slices, one after another, and where their keys and values lie.

    Shapes: T tokens, B slices, M blocks of the longest table, R rows whose logits are needed.
    """

    token_ids: torch.Tensor  # [T] int64
    positions: torch.Tensor  # [T] int64
    slots: torch.Tensor  # [T] int64: block × block_size + offset
    query_starts: torch.Tensor  # [B + 1] int64: slice b is tokens starts[b] … starts[b + 1] - 1
    contexts: torch.Tensor  # [B] int64: tokens with KV once this step's are written
    block_tables: torch.Tensor  # [B, M] int64, padded with 0
    logit_rows: torch.Tensor  # [R] int64: the last token of each that samples, then all scored


def build_batch(plan: StepPlan, block_size: int) -> StepBatch:
    """Lay a plan out flat.

    Invariant: each slice's block table covers its tokens; the scheduler saw to it.
    Cost: O(T + B × M) on the host.
    """
    slices = plan.slices
    lengths = np.array([piece.length for piece in slices])  # [B]
    starts = np.array([piece.start for piece in slices])  # [B]
    query_starts = np.concatenate(([0], np.cumsum(lengths)))  # [B + 1]
    contexts = starts + lengths  # [B]
    tables = _block_tables(slices, -(-contexts // block_size))  # [B, M]

    slice_of = np.repeat(np.arange(len(slices)), lengths)  # [T]
    positions = np.arange(query_starts[-1]) - query_starts[slice_of] + starts[slice_of]  # [T]
    blocks = tables[slice_of, positions // block_size]  # [T]
    samples = np.array([piece.samples for piece in slices], dtype=bool)  # [B]
    scored = [
        np.asarray(piece.scored, dtype=np.int64) - piece.start + first
        for piece, first in zip(slices, query_starts[:-1], strict=True)
    ]
    return StepBatch(
        token_ids=torch.tensor([token for piece in slices for token in _tokens(piece)]),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(blocks * block_size + positions % block_size),
        query_starts=torch.from_numpy(query_starts),
        contexts=torch.from_numpy(contexts),
        block_tables=torch.from_numpy(tables),
        logit_rows=torch.from_numpy(np.concatenate((query_starts[1:][samples] - 1, *scored))),
    )


def _tokens(piece: Slice) -> list[int]:
    end = piece.start + piece.length
    return [piece.request.token_at(position) for position in range(piece.start, end)]


def _block_tables(slices: tuple[Slice, ...], blocks: np.ndarray) -> np.ndarray:
    tables = np.zeros((len(slices), blocks.max()), dtype=np.int64)  # [B, M]
    for row, (piece, count) in enumerate(zip(slices, blocks, strict=True)):
        assert len(piece.request.block_table) >= count, f"{piece.request.id}: too few blocks"
        tables[row, :count] = piece.request.block_table[:count]
    return tables
