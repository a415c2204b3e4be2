"""Unpacks matrices of 8-bit floats with scales, and of bitsandbytes' 4-bit codes."""

from __future__ import annotations

import numpy as np

from core.errors import ModelError
from engine.unpack.matrix import Array


def scaled(weights: Array, scales: Array, block: tuple[int, int]) -> Array:
    """Multiply fp32 [N, K] by its scales: one, one a row, some a row, or one a block."""
    result: Array = weights * _spread(scales, weights.shape, block)
    return result


def _spread(scales: Array, shape: tuple[int, ...], block: tuple[int, int]) -> Array:
    """Give a scale for each weight, or what numpy spreads to that."""
    (rows, columns), (tall, wide) = shape, block
    if scales.size == 1:
        return scales.reshape(1, 1)
    if scales.ndim == 1:
        scales = scales[:, None]
    if len(scales) == rows and columns % scales.shape[1] == 0:
        return np.repeat(scales, columns // scales.shape[1], axis=1)
    if scales.shape != (-(-rows // tall), -(-columns // wide)):
        raise ModelError(
            f"scales {list(scales.shape)} do not fit a matrix {[rows, columns]} in blocks of"
            f" {tall} × {wide}"
        )
    return np.repeat(np.repeat(scales, tall, axis=0), wide, axis=1)[:rows, :columns]


def codes(packed: Array, table: Array, absmax: Array, block: int, shape: tuple[int, int]) -> Array:
    """Look 4-bit codes up, two a byte and the high one first, and scale each block of them."""
    flat = packed.reshape(-1)
    values = table[np.stack([flat >> 4, flat & 15], axis=1).reshape(-1)]
    count = shape[0] * shape[1]
    if not count <= len(values) <= len(absmax) * block:
        raise ModelError(f"{len(values)} codes with {len(absmax)} scales for {count} numbers")
    scaled_values: Array = values * np.repeat(absmax, block)[: len(values)]
    return scaled_values[:count].reshape(shape)


def nested(absmax: Array, table: Array, outer: Array, block: int, offset: float) -> Array:
    """Unpack scales that are 8-bit codes themselves."""
    spread = np.repeat(outer, block)[: len(absmax)]
    unpacked: Array = table[absmax] * spread + np.float32(offset)
    return unpacked
