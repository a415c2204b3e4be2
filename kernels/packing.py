"""Lay weight matrices out in panels, as the native kernels read them, and quantise them.

No model lives here, and no file format. `src/layout.h` draws the layouts.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from core.formats import MatrixFormat
from costmodel.storage import GROUP_COLUMNS, PANEL_ROWS, stored_bytes

Array = npt.NDArray[Any]

QUAD_COLUMNS: Final = 4  # consecutive k in one 32-bit lane
FIVE_BITS: Final = frozenset({MatrixFormat.Q5_0, MatrixFormat.Q5_1, MatrixFormat.Q5_K})
BYTE_ZERO: Final = 0x80  # the byte that stands for 0 in int8 and int8_g32


class PackedMatrix(NamedTuple):
    """One weight as the kernels take it."""

    data: Array  # uint8 [stored_bytes]
    rows: int
    columns: int
    format: MatrixFormat


def pack(weights: Array, target: MatrixFormat) -> PackedMatrix:
    """Quantise where `target` asks for it, and pack. `weights` is fp32 [N, K].

    Raises:
        ValueError: a format that only files have; `gguf_blocks.repack` lays those out.
    """
    match target:
        case MatrixFormat.FP32 | MatrixFormat.FP16:
            return pack_floats(weights, target)
        case MatrixFormat.INT8:
            return pack_int8(*quantise_int8(weights))
        case MatrixFormat.INT8_G32:
            return pack_int8_groups(*quantise_int8_groups(weights))
        case MatrixFormat.INT4_G32:
            return pack_int4_groups(*quantise_int4_groups(weights))
        case _:
            raise ValueError(f"nothing is quantised as {target}: it is a file's own format")


def pack_floats(weights: Array, target: MatrixFormat) -> PackedMatrix:
    """Pack [N, K] as fp32 or fp16; a value outside fp16 becomes an infinity."""
    rows, columns = weights.shape
    narrow = weights.astype(np.float32 if target is MatrixFormat.FP32 else np.float16)
    panels = _rows_padded(narrow).reshape(-1, PANEL_ROWS, columns).transpose(0, 2, 1)
    return _packed(panels, rows, columns, target)


def pack_int8(values: Array, scales: Array) -> PackedMatrix:
    """Pack int8 [N, K] with fp32 scales [N]."""
    rows, columns = values.shape
    panels = _byte_panels(_biased(values))
    header = _rows_padded(scales.astype(np.float32)).reshape(-1, PANEL_ROWS)
    body = panels.reshape(len(panels), -1)
    return _packed(_joined(header, body), rows, columns, MatrixFormat.INT8)


def pack_int8_groups(values: Array, scales: Array) -> PackedMatrix:
    """Pack int8 [N, K] with fp16 scales [N, G]; loses nothing of a GGUF Q8_0 matrix."""
    rows, columns = values.shape
    panels = _byte_panels(_biased(values))
    body = panels.reshape(*panels.shape[:2], -1)
    return _packed(_joined(_header(scales), body), rows, columns, MatrixFormat.INT8_G32)


def pack_int4_groups(values: Array, scales: Array, minima: Array) -> PackedMatrix:
    """Pack uint8 [N, K] of 0…15 with fp16 scales and minima [N, G].

    A weight is `value * scale + minimum`: Q4_1 as it is, Q4_0 with a minimum of -8 scales.
    """
    rows, columns = values.shape
    panels = _byte_panels(values.astype(np.uint8))
    low, high = np.split(panels, 2, axis=2)  # k, and k + 16
    both = low | (high << 4)  # [panels, G, 4, 16, 4]
    body = both.reshape(*both.shape[:2], -1)
    header = np.concatenate([_header(scales), _header(minima)], axis=-1)
    return _packed(_joined(header, body), rows, columns, MatrixFormat.INT4_G32)


def pack_coded(
    codes: Array, headers: Array, target: MatrixFormat, factors: Array | None = None
) -> PackedMatrix:
    """Pack codes [N, K] of 0…63 as `layout.h` has them in the format `target`.

    `headers` [panels, B, bytes] are those of blocks; `factors` [panels, bytes] begins a panel.
    """
    rows, columns = codes.shape
    quads = _byte_panels(codes)  # [panels, G, 8, 16, 4]
    low, high = np.split(quads & 15, 2, axis=2)
    parts = [low | (high << 4)]
    if target in FIVE_BITS:
        parts.append(_or_shifted(quads >> 4, 1))
    elif target is MatrixFormat.Q6_K:
        parts += [_or_shifted(half, 2) for half in np.split(quads >> 4, 2, axis=2)]
    groups = np.concatenate([part.reshape(*quads.shape[:2], -1) for part in parts], axis=-1)
    blocks = groups.reshape(*headers.shape[:2], -1)
    panels = np.concatenate([headers, blocks], axis=-1).reshape(len(headers), -1)
    whole = panels if factors is None else np.concatenate([factors, panels], axis=-1)
    return _packed(whole, rows, columns, target)


def side_by_side(numbers: Array) -> Array:
    """Bring [N, B, ...] into headers, [panels, B, bytes]: each number beside its sixteen rows'."""
    panels = _rows_padded(numbers).reshape(-1, PANEL_ROWS, *numbers.shape[1:])
    lanes = np.ascontiguousarray(np.moveaxis(panels, 1, -1))  # [panels, B, ..., 16]
    return lanes.reshape(*lanes.shape[:2], -1).view(np.uint8)


def _or_shifted(bits: Array, width: int) -> Array:
    """Gather the few bits of each quad in one byte: [panels, G, quads, 16, 4] without the quads."""
    shifts = np.arange(bits.shape[2], dtype=np.uint8) * np.uint8(width)
    moved = bits << shifts[:, None, None]
    gathered: Array = np.bitwise_or.reduce(moved, axis=2)
    return gathered


def quantise_int8(weights: Array) -> tuple[Array, Array]:
    """Round [N, K] to int8 with one scale a row: int8 [N, K], fp32 [N]."""
    scales = np.abs(weights).max(axis=1, initial=0.0).astype(np.float32) / np.float32(127)
    return _rounded(weights, scales[:, None], -127, 127).astype(np.int8), scales


def quantise_int8_groups(weights: Array) -> tuple[Array, Array]:
    """Round [N, K] to int8 with one scale a group: int8 [N, K], fp16 [N, G]."""
    grouped = _grouped(weights)
    scales = (np.abs(grouped).max(axis=2) / np.float32(127)).astype(np.float16)
    values = _rounded(grouped, scales.astype(np.float32)[..., None], -127, 127)
    return _ungrouped(values, weights.shape).astype(np.int8), scales


def quantise_int4_groups(weights: Array) -> tuple[Array, Array, Array]:
    """Round [N, K] to 16 levels from minimum to maximum of a group: uint8, fp16, fp16."""
    grouped = _grouped(weights)
    minima = grouped.min(axis=2).astype(np.float16)
    spans = grouped.max(axis=2) - minima.astype(np.float32)
    scales = (spans / np.float32(15)).astype(np.float16)
    shifted = grouped - minima.astype(np.float32)[..., None]
    values = _rounded(shifted, scales.astype(np.float32)[..., None], 0, 15)
    return _ungrouped(values, weights.shape).astype(np.uint8), scales, minima


def _rounded(weights: Array, scales: Array, low: int, high: int) -> Array:
    inverse: Array = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
    rounded: Array = np.clip(np.rint(weights * inverse), low, high)
    return rounded


def _grouped(weights: Array) -> Array:
    """[N, K] → [N, G, 32]; the last group is filled with its row's last value."""
    missing = -weights.shape[1] % GROUP_COLUMNS
    padded = np.pad(weights, ((0, 0), (0, missing)), mode="edge")
    return padded.reshape(len(weights), -1, GROUP_COLUMNS).astype(np.float32)


def _ungrouped(values: Array, shape: tuple[int, ...]) -> Array:
    return values.reshape(shape[0], -1)[:, : shape[1]]


def _biased(values: Array) -> Array:
    """int8 → its value plus 128."""
    assert values.dtype == np.int8, "int8 weights are int8"
    return np.ascontiguousarray(values).view(np.uint8) ^ np.uint8(BYTE_ZERO)


def _rows_padded(rows: Array) -> Array:
    return np.pad(rows, [(0, -len(rows) % PANEL_ROWS)] + [(0, 0)] * (rows.ndim - 1))


def _byte_panels(values: Array) -> Array:
    """uint8 [N, K] → [panels, G, 8, 16, 4]: four consecutive k in one 32-bit lane.

    Padding changes no result: activations are zero there, and so are the scales of padded rows.
    """
    padded = np.pad(
        values, ((0, -values.shape[0] % PANEL_ROWS), (0, -values.shape[1] % GROUP_COLUMNS))
    )
    panels, groups = padded.shape[0] // PANEL_ROWS, padded.shape[1] // GROUP_COLUMNS
    lanes = padded.reshape(panels, PANEL_ROWS, groups, -1, QUAD_COLUMNS)
    return lanes.transpose(0, 2, 3, 1, 4)


def _header(numbers: Array) -> Array:
    """fp16 [N, G] → [panels, G, 16]."""
    padded = _rows_padded(numbers.astype(np.float16))
    return padded.reshape(-1, PANEL_ROWS, padded.shape[1]).transpose(0, 2, 1)


def _joined(header: Array, body: Array) -> Array:
    as_bytes = np.ascontiguousarray(header).view(np.uint8)
    return np.concatenate([as_bytes, body], axis=-1)


def _packed(panels: Array, rows: int, columns: int, target: MatrixFormat) -> PackedMatrix:
    data = np.ascontiguousarray(panels).reshape(-1).view(np.uint8)
    whole = stored_bytes(rows, columns, target, panels=True)
    assert data.size == whole, "the layout and its size disagree"
    return PackedMatrix(data, rows, columns, target)
