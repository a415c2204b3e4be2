"""A step's layout as torch takes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from engine.forward.batch import StepBatch


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
