"""What packed matrices and stored keys stand for, from their parts: no layout here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from core.formats import MatrixFormat
from costmodel.storage import GROUP_COLUMNS
from kernels.packing import quantise_int4_groups, quantise_int8, quantise_int8_groups

Array = npt.NDArray[Any]


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
