"""What packed matrices and stored keys stand for, from their parts: no layout here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from core.formats import FILE_OWN, MatrixFormat
from costmodel.storage import GROUP_COLUMNS
from kernels import PackedMatrix, pack
from kernels.packing import quantise_int4_groups, quantise_int8, quantise_int8_groups
from tests.unit.kernels.file_blocks import drawn

Array = npt.NDArray[Any]
QUANTISED = (MatrixFormat.INT8, MatrixFormat.INT8_G32, MatrixFormat.INT4_G32)
PACKED = (MatrixFormat.FP32, MatrixFormat.FP16, *QUANTISED)  # from any weights; the rest by files


def matrix(
    target: MatrixFormat, rows: int, columns: int, seed: int = 0
) -> tuple[PackedMatrix, Array]:
    """Give a random matrix, packed, and the float64 [N, K] that it stands for."""
    if target in FILE_OWN:
        return drawn(target, rows, columns, seed)
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((rows, columns)).astype(np.float32)
    return pack(weights, target), stands_for(weights, target)


def stands_for(weights: Array, target: MatrixFormat) -> Array:
    """Give the float64 matrix that `pack(weights, target)` holds."""
    columns = weights.shape[1]

    def each_column(groups: Array) -> Array:
        return np.repeat(groups.astype(np.float64), GROUP_COLUMNS, axis=1)[:, :columns]

    match target:
        case MatrixFormat.FP32:
            return weights.astype(np.float64)
        case MatrixFormat.FP16:
            return weights.astype(np.float16).astype(np.float64)
        case MatrixFormat.INT8:
            values, scales = quantise_int8(weights)
            return values * scales.astype(np.float64)[:, None]
        case MatrixFormat.INT8_G32:
            values, scales = quantise_int8_groups(weights)
            return values * each_column(scales)
        case MatrixFormat.INT4_G32:
            values, scales, minima = quantise_int4_groups(weights)
            return values * each_column(scales) + each_column(minima)
        case _:
            raise AssertionError(f"nothing is quantised as {target}")


def int8_activations(x: Array) -> Array:
    """Round activations [T, K] as the integer kernels do: int8, one scale a group of 32."""
    rows, columns = x.shape
    padded = np.pad(x.astype(np.float32), ((0, 0), (0, -columns % GROUP_COLUMNS)))
    grouped = padded.reshape(rows, -1, GROUP_COLUMNS)
    peaks = np.abs(grouped).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), peaks, out=np.zeros_like(peaks), where=peaks > 0)
    rounded = np.rint(grouped * inverse).astype(np.float64) * (peaks / np.float32(127))
    return rounded.reshape(rows, -1)[:, :columns]


def int8_kv(x: Array) -> Array:
    """Round keys or values [..., D] as an int8 KV store does: an fp16 scale for each D of them."""
    scales = (np.abs(x).max(axis=-1, keepdims=True) / 127).astype(np.float16).astype(np.float64)
    steps = np.divide(x, scales, out=np.zeros_like(x), where=scales > 0)
    return np.clip(np.rint(steps), -127, 127) * scales
