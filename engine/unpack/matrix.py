"""What unpacking gives of one matrix: levels with scales where it has them, else plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_GROUP: Final = 32  # of GGUF's Q4_1 and Q8_0


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

    def blocks(self) -> tuple[Array, str] | None:
        """Write the levels as rows of GGUF's Q4_1 or Q8_0 blocks; scales become fp16.

        Returns: uint8 [N, bytes] and the name of the type; None where a scale leaves fp16, or
            where the columns are not whole blocks.
        """
        rows, columns = self.values.shape
        if columns % _GROUP or self.group % _GROUP:
            return None
        repeats = self.group // _GROUP
        headers = [self.scales] if self.minima is None else [self.scales, self.minima]
        with np.errstate(over="ignore"):  # what leaves fp16 is looked for below
            halves = [
                np.repeat(h, repeats, axis=1)[:, : columns // _GROUP].astype(np.float16)
                for h in headers
            ]
        if not all(np.isfinite(half).all() for half in halves):
            return None
        grouped = self.values.reshape(rows, -1, _GROUP)
        if self.minima is None:
            body, kind = grouped.view(np.uint8), "Q8_0"
        else:
            body, kind = grouped[..., :16] | (grouped[..., 16:] << 4), "Q4_1"
        parts = [np.ascontiguousarray(half)[..., None].view(np.uint8) for half in halves]
        return np.concatenate([*parts, body], axis=-1).reshape(rows, -1), kind


@dataclass(frozen=True, slots=True)
class Packed:
    """One matrix as its maker packed it. Nothing is unpacked before it is asked for."""

    kind: str  # as told to a user: "GPTQ 4-bit"
    rows: int
    columns: int
    bytes: int  # of all its parts
    dense: Callable[[], Array]  # fp32 [N, K]
    levels: Callable[[], Levels | None]  # None where they are not those of GGUF's blocks
