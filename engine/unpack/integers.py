"""Unpacks matrices of 4- and 8-bit integers, from the words in which their makers packed them."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.unpack.matrix import Array, Levels

_AWQ_ORDER: Final = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that each nibble of a word holds


def fields(words: Array, bits: int) -> Array:
    """Split int32 [..., P] into its fields, the lowest first: uint8 [..., P · 32 / bits]."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    split = (np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts) & (2**bits - 1)
    flat: Array = split.astype(np.uint8).reshape(*words.shape[:-1], -1)
    return flat


def levels_of(values: Array, zeros: Array, scales: Array, bits: int) -> Levels:
    """Describe `(values - zeros) · scales` by levels; of 8 bits, the zeros are the middle.

    `values` is uint8 [N, K], `zeros` uint8 [N, G], `scales` fp32 [N, G].
    """
    group = values.shape[1] // scales.shape[1]
    if bits == 4:
        return Levels(values, scales, -scales * zeros.astype(np.float32), group)
    return Levels((values ^ 128).view(np.int8), scales, None, group)


def dense(values: Array, zeros: Array, scales: Array, group_of: Array | None = None) -> Array:
    """Compute `(values - zeros) · scales`, fp32 [N, K]; `group_of` [K] gives a column's group."""
    if group_of is None:
        group_of = np.arange(values.shape[1]) // (values.shape[1] // scales.shape[1])
    centred = values.astype(np.float32) - zeros.astype(np.float32)[:, group_of]
    weights: Array = centred * scales[:, group_of]
    return weights


def gptq(words: Array, zero_words: Array, bits: int, less_one: bool) -> tuple[Array, Array]:
    """Unpack GPTQ's int32 [K / per, N] and [G, N / per] into uint8 [N, K] and [N, G]."""
    zeros = fields(zero_words, bits).T
    if less_one:  # a zero of 0 is stored as all ones
        zeros = (zeros + np.uint8(1)) & np.uint8(2**bits - 1)
    return fields(np.ascontiguousarray(words.T), bits), zeros


def awq(words: Array, zero_words: Array) -> tuple[Array, Array]:
    """Unpack AWQ's int32 [K, N / 8] and [G, N / 8] into uint8 [N, K] and [N, G]."""
    return _in_order(words).T, _in_order(zero_words).T


def _in_order(words: Array) -> Array:
    shuffled = fields(words, 4).reshape(*words.shape, 8)
    ordered = np.empty_like(shuffled)
    ordered[..., list(_AWQ_ORDER)] = shuffled
    return ordered.reshape(len(words), -1)


def compressed_zeros(zero_words: Array | None, bits: int, shape: tuple[int, ...]) -> Array:
    """Unpack zeros from int32 [N / per, G] into uint8 [N, G]; without any, all are the middle."""
    if zero_words is None:
        return np.full(shape, 2 ** (bits - 1), np.uint8)
    return fields(np.ascontiguousarray(zero_words.T), bits).T[: shape[0]]
