"""What unpacking gives of one matrix: levels with scales where it has them, else plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.errors import ModelError

Array = npt.NDArray[Any]

BLOCK_COLUMNS: Final = 32  # of GGUF's Q4_1 and Q8_0


@dataclass(frozen=True, slots=True)
class Levels:
    """`weight[n, k] = values[n, k] · scales[n, g] + minima[n, g]`, with g = k // group columns."""

    values: Array  # [N, K]: uint8 of 0…15 with minima, int8 without
    scales: Array  # fp32 [N, G]
    minima: Array | None  # fp32 [N, G]
    group: int  # columns of a group

    def dense(self) -> Array:
        """Give fp32 [N, K]."""
        scales = np.repeat(self.scales, self.group, axis=1)[:, : self.values.shape[1]]
        weights: Array = self.values.astype(np.float32) * scales
        if self.minima is not None:
            weights += np.repeat(self.minima, self.group, axis=1)[:, : self.values.shape[1]]
        return weights

    def blocks(self) -> Array:
        """Write the levels as rows of GGUF's blocks, uint8 [N, bytes]: Q4_1 with minima, else Q8_0.

        Columns and groups are whole blocks. Scales become fp16.
        Raises:
            ModelError: one is beyond fp16.
        """
        rows, columns = self.values.shape
        repeats = self.group // BLOCK_COLUMNS
        headers = [self.scales] if self.minima is None else [self.scales, self.minima]
        with np.errstate(over="ignore"):  # what leaves fp16 is looked for below
            halves = [
                np.repeat(h, repeats, axis=1)[:, : columns // BLOCK_COLUMNS].astype(np.float16)
                for h in headers
            ]
        if not all(np.isfinite(half).all() for half in halves):
            raise ModelError("holds a scale that is not finite in fp16")
        body: Array = self.values.reshape(rows, -1, BLOCK_COLUMNS).view(np.uint8)
        if self.minima is not None:
            body = body[..., :16] | (body[..., 16:] << 4)
        parts = [np.ascontiguousarray(half)[..., None].view(np.uint8) for half in halves]
        return np.concatenate([*parts, body], axis=-1).reshape(rows, -1)


@dataclass(frozen=True, slots=True)
class Packed:
    """One matrix as its maker packed it. Nothing is unpacked before it is asked for."""

    kind: str  # as told to a user: "gptq 4-bit"
    rows: int
    columns: int
    bytes: int  # of all its parts
    dense: Callable[[], Array]  # fp32 [N, K]
    levels: Callable[[], Levels]  # only where `blocks_kind` names a type
    blocks_kind: str | None = None  # GGUF's blocks that hold its levels: "Q4_1", "Q8_0"
