"""Repack GGUF's quantised blocks without loss. Knows the blocks, no file.

A row of a GGUF matrix is a run of blocks of 32 values: an fp16 scale, for Q4_1 an fp16 minimum,
then the values. Source: ggml-common.h, block_q4_0, block_q4_1, block_q8_0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kernels.packing import Array, PackedMatrix, pack_int4_groups, pack_int8_groups

BLOCK_BYTES: Final = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}


class NotFinite(ValueError):
    """A block's scale is NaN or infinite."""


def repack(raw: Array, kind: str) -> PackedMatrix:
    """Pack the rows `raw` (uint8 [N, bytes]) of a matrix of GGUF type `kind`.

    Raises:
        KeyError: a type that does not repack.
        NotFinite: a scale or minimum is no number.
    """
    blocks = np.ascontiguousarray(raw).reshape(len(raw), -1, BLOCK_BYTES[kind])  # [N, G, bytes]
    scales = _halves(blocks[..., :2])
    if kind == "Q8_0":
        values = blocks[..., 2:].reshape(len(raw), -1).view(np.int8)
        return pack_int8_groups(values, scales)
    values = _nibbles(blocks[..., -16:])
    minima = _halves(blocks[..., 2:4]) if kind == "Q4_1" else scales * np.float16(-8)
    return pack_int4_groups(values, scales, minima)


def _halves(two_bytes: Array) -> Array:
    numbers = np.ascontiguousarray(two_bytes).view(np.float16)[..., 0]
    if not np.isfinite(numbers).all():
        raise NotFinite("holds NaN or infinity")
    return numbers


def _nibbles(packed: Array) -> Array:
    """uint8 [N, G, 16] → [N, G * 32]: the low halves are the first 16 values of a block."""
    values = np.concatenate([packed & 15, packed >> 4], axis=-1)
    return values.reshape(len(packed), -1)
