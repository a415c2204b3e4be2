"""Packed matrices: their sizes, and that GGUF blocks lose nothing."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.formats import MatrixFormat
from costmodel.storage import stored_bytes
from kernels import pack, product
from kernels.gguf_blocks import repack


@given(rows=st.integers(1, 60), columns=st.integers(1, 100), target=st.sampled_from(MatrixFormat))
def test_stored_bytes_is_what_packing_allocates(
    rows: int, columns: int, target: MatrixFormat
) -> None:
    packed = pack(np.ones((rows, columns), np.float32), target)
    assert packed.data.nbytes == stored_bytes(rows, columns, target, panels=True)


def test_whole_tiles_take_the_nominal_width() -> None:
    weights = 576 * 1536
    sizes = [stored_bytes(576, 1536, target, panels=True) * 8 / weights for target in MatrixFormat]
    assert sizes == [32, 16, pytest.approx(8, rel=0.005), 8.5, 5]


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_gguf_blocks_repack_without_loss(kind: str) -> None:
    weights = np.random.default_rng(1).standard_normal((37, 96)).astype(np.float32)
    raw = gguf.quantize(weights, gguf.GGMLQuantizationType[kind])
    packed = repack(raw, kind)
    y = np.empty((96, 37), np.float32)
    product(np.eye(96, dtype=np.float32), packed, y, activations="fp32")
    np.testing.assert_array_equal(y.T, gguf.dequantize(raw, gguf.GGMLQuantizationType[kind]))


def test_a_gguf_type_that_does_not_repack_is_refused() -> None:
    with pytest.raises(KeyError, match="Q6_K"):
        repack(np.zeros((1, 210), np.uint8), "Q6_K")


@pytest.mark.parametrize("target", list(MatrixFormat))
def test_a_matrix_of_zeros_gives_zeros(target: MatrixFormat) -> None:
    y = np.full((2, 5), np.nan, np.float32)
    product(np.ones((2, 40), np.float32), pack(np.zeros((5, 40), np.float32), target), y)
    assert not y.any()
