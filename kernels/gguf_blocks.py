"""Lay GGUF's quantised blocks out in panels, without loss. Knows the blocks, no file.

A row of a GGUF matrix is a run of blocks of 32 or 256 values. Here a block's fields are read;
`packing` and `src/layout.h` say where they go. Source: ggml-common.h, block_q4_0 and the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from core.formats import MatrixFormat
from kernels.packing import (
    Array,
    PackedMatrix,
    pack_coded,
    pack_int4_groups,
    pack_int8_groups,
    side_by_side,
)

_NO_EXPONENT: Final = 255  # of MXFP4: not a number


class NotFinite(ValueError):
    """A block's scale is NaN or infinite."""


def repack(raw: Array, kind: str) -> PackedMatrix:
    """Pack the rows `raw` (uint8 [N, bytes]) of a matrix of GGUF type `kind`.

    Raises:
        KeyError: a type that does not repack.
        NotFinite: a scale or minimum is no number.
    """
    size, pack_blocks = _KINDS[kind]
    return pack_blocks(np.ascontiguousarray(raw).reshape(len(raw), -1, size))


def _q8_0(blocks: Array) -> PackedMatrix:
    values = blocks[..., 2:].reshape(len(blocks), -1).view(np.int8)
    return pack_int8_groups(values, _halves(blocks[..., :2])[..., 0])


def _q4_1(blocks: Array) -> PackedMatrix:
    numbers = _halves(blocks[..., :4])
    return pack_int4_groups(_flat(_nibbles(blocks[..., 4:])), numbers[..., 0], numbers[..., 1])


def _four_bits(target: MatrixFormat) -> Callable[[Array], PackedMatrix]:
    """Q4_0 and IQ4_NL: a factor, then nibbles."""

    def pack_blocks(blocks: Array) -> PackedMatrix:
        factors = side_by_side(_halves(blocks[..., :2]))
        return pack_coded(_flat(_nibbles(blocks[..., 2:])), factors, target)

    return pack_blocks


def _five_bits(target: MatrixFormat) -> Callable[[Array], PackedMatrix]:
    """Q5_0 and Q5_1: a factor, Q5_1 a minimum, 32 high bits, nibbles."""

    def pack_blocks(blocks: Array) -> PackedMatrix:
        high = np.unpackbits(blocks[..., -20:-16], axis=-1, bitorder="little")  # [N, G, 32]
        codes = _nibbles(blocks[..., -16:]) | (high << 4)
        return pack_coded(_flat(codes), side_by_side(_halves(blocks[..., :-20])), target)

    return pack_blocks


def _mxfp4(blocks: Array) -> PackedMatrix:
    exponents = blocks[..., 0]
    if (exponents == _NO_EXPONENT).any():
        raise NotFinite("holds NaN or infinity")
    # 2^-128 counts as 0, and so do padded rows: the kernels have no smaller number
    factors = np.maximum(side_by_side(exponents), 1)  # [panels, G, 16]
    codes = _flat(_nibbles(blocks[..., 1:]))
    no_headers = factors[..., :0]
    first = factors.reshape(len(factors), -1)
    return pack_coded(codes, no_headers, MatrixFormat.MXFP4, first)


def _q4_k(blocks: Array) -> PackedMatrix:
    codes = _nibble_pairs(blocks[..., 16:])
    return pack_coded(_flat(codes), _k_headers(blocks), MatrixFormat.Q4_K)


def _q5_k(blocks: Array) -> PackedMatrix:
    bits = blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1  # [N, B, 8, 32]
    codes = _nibble_pairs(blocks[..., 48:]) | (bits << 4)
    return pack_coded(_flat(codes), _k_headers(blocks), MatrixFormat.Q5_K)


def _q6_k(blocks: Array) -> PackedMatrix:
    low = blocks[..., :128].reshape(*blocks.shape[:2], 2, 1, 2, 32)  # halves of 128, [2, 32]
    low = np.concatenate([low & 15, low >> 4], axis=3).reshape(*blocks.shape[:2], 2, 4, 32)
    high = blocks[..., 128:192].reshape(*blocks.shape[:2], 2, 1, 32)
    high = high >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    scales = side_by_side(blocks[..., 192:208])  # a scale is one byte
    factors = side_by_side(_halves(blocks[..., 208:]))
    return pack_coded(
        _flat(low | (high << 4)), scales, MatrixFormat.Q6_K, factors.reshape(len(factors), -1)
    )


def _iq4_xs(blocks: Array) -> PackedMatrix:
    high = np.ascontiguousarray(blocks[..., 2:4]).view("<u2")[..., 0]
    low = np.ascontiguousarray(blocks[..., 4:8]).view("<u4")[..., 0]
    parts = (side_by_side(_halves(blocks[..., :2])), side_by_side(low), side_by_side(high))
    codes = _nibbles(blocks[..., 8:].reshape(*blocks.shape[:2], 8, 16))
    return pack_coded(_flat(codes), np.concatenate(parts, axis=-1), MatrixFormat.IQ4_XS)


def _k_headers(blocks: Array) -> Array:
    """Give headers of q4_k and q5_k: factors, then the six bits of scales and minima as words."""
    packed = blocks[..., 4:16]
    first, second, both = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, (both & 15) | (first >> 6 << 4)], axis=-1)
    minima = np.concatenate([second & 63, (both >> 4) | (second >> 6 << 4)], axis=-1)
    words = [scales & 15, minima & 15, (scales >> 4) | (minima >> 4 << 2)]
    return np.concatenate(
        [side_by_side(_halves(blocks[..., :4])), *(side_by_side(_word(w)) for w in words)], axis=-1
    )


def _word(fours: Array) -> Array:
    """Gather four bits of each of eight groups: [N, B, 8] → uint32 [N, B]."""
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    words: Array = np.bitwise_or.reduce(fours.astype(np.uint32) << shifts, axis=-1)
    return words


def _halves(two_bytes: Array) -> Array:
    numbers = np.ascontiguousarray(two_bytes).view(np.float16)
    if not np.isfinite(numbers).all():
        raise NotFinite("holds NaN or infinity")
    return numbers


def _nibbles(packed: Array) -> Array:
    """[..., 16] → [..., 32]: the low halves are the first 16 values of a group."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _nibble_pairs(packed: Array) -> Array:
    """[N, B, 128] → [N, B, 8, 32]: of 32 bytes, the low halves are a group, the high the next."""
    pairs = packed.reshape(*packed.shape[:2], 4, 1, 32)
    return np.concatenate([pairs & 15, pairs >> 4], axis=3).reshape(*packed.shape[:2], 8, 32)


def _flat(values: Array) -> Array:
    return values.reshape(len(values), -1)


_KINDS: Final[dict[str, tuple[int, Callable[[Array], PackedMatrix]]]] = {  # bytes of a block
    "Q8_0": (34, _q8_0),
    "Q4_1": (20, _q4_1),
    "Q4_0": (18, _four_bits(MatrixFormat.Q4_0)),
    "IQ4_NL": (18, _four_bits(MatrixFormat.IQ4_NL)),
    "Q5_0": (22, _five_bits(MatrixFormat.Q5_0)),
    "Q5_1": (24, _five_bits(MatrixFormat.Q5_1)),
    "MXFP4": (17, _mxfp4),
    "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k),
    "Q6_K": (210, _q6_k),
    "IQ4_XS": (136, _iq4_xs),
}
