"""Matrices in GGUF's blocks, drawn at random, and what the `gguf` package says they stand for."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from core.formats import MatrixFormat
from kernels import PackedMatrix
from kernels.gguf_blocks import repack

Array = npt.NDArray[Any]

# Where a block has its fp16 numbers, which must be sane. Any other bytes are valid.
_HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "MXFP4": (),
}
KINDS = tuple(_HALVES)


SPREAD = 0.1  # the standard deviation of drawn weights, about


def draw(
    kind: str, rows: int, columns: int, seed: int = 0, bytes_from: tuple[int, ...] = ()
) -> tuple[Array, Array]:
    """Draw a matrix: its bytes, uint8 [N, bytes], and its weights, fp32 [N, K].

    Columns are rounded up to whole blocks in the bytes, and cut off in the weights.
    `bytes_from` says which bytes may be drawn; by default, any.
    """
    quantisation = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[quantisation]
    rng = np.random.default_rng(seed)
    shape = (rows, -(-columns // block), size)
    blocks = rng.choice(np.array(bytes_from or range(256), np.uint8), shape)
    if kind == "MXFP4":
        blocks[..., 0] = rng.integers(121, 125, shape[:2])
    halves = [rng.uniform(-1, 1, shape[:2]) for _ in _HALVES[kind]]

    def dequantised(largest: float) -> Array:
        for at, numbers in zip(_HALVES[kind], halves, strict=True):
            narrow = (numbers * largest).astype(np.float16)
            blocks[..., at : at + 2] = narrow[..., None].view(np.uint8)
        return gguf.dequantize(blocks.reshape(rows, -1), quantisation)

    weights = dequantised(0.01 * SPREAD / dequantised(0.01).std())
    return blocks.reshape(rows, -1), weights[:, :columns]


def kind_of(target: MatrixFormat) -> str:
    """Name the GGUF type whose blocks become this format."""
    return {MatrixFormat.INT4_G32: "Q4_1", MatrixFormat.INT8_G32: "Q8_0"}.get(target, target.name)


def drawn(
    target: MatrixFormat, rows: int, columns: int, seed: int = 0
) -> tuple[PackedMatrix, Array]:
    """Draw a matrix in a file's format, packed, and its weights in float64."""
    raw, weights = draw(kind_of(target), rows, columns, seed)
    packed = repack(raw, kind_of(target))._replace(columns=columns)
    return packed, weights.astype(np.float64)
