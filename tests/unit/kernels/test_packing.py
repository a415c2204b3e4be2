"""Packed matrices: their sizes, and that GGUF blocks lose nothing."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.formats import FILE_OWN, MatrixFormat
from costmodel.storage import stored_bytes
from kernels import pack, product
from kernels.gguf_blocks import NotFinite, repack
from tests.unit.kernels.file_blocks import KINDS, draw
from tests.unit.kernels.plain import PACKED


@given(rows=st.integers(1, 60), columns=st.integers(1, 100), target=st.sampled_from(PACKED))
def test_stored_bytes_is_what_packing_allocates(
    rows: int, columns: int, target: MatrixFormat
) -> None:
    packed = pack(np.ones((rows, columns), np.float32), target)
    assert packed.data.nbytes == stored_bytes(rows, columns, target, panels=True)


def test_whole_tiles_take_the_nominal_width() -> None:
    weights = 576 * 1536
    sizes = [stored_bytes(576, 1536, target, panels=True) * 8 / weights for target in MatrixFormat]
    own = [4.5, 5.5, 6, 4.5, 5.5, 6.5625, 4.5, 4.25, 4.25]  # of GGUF's blocks
    assert sizes == [32, 16, pytest.approx(8, rel=0.005), 8.5, 5, *own]


@pytest.mark.parametrize("kind", KINDS)
def test_gguf_blocks_repack_without_loss(kind: str) -> None:
    raw, weights = draw(kind, 37, 512)
    y = np.empty((512, 37), np.float32)
    product(np.eye(512, dtype=np.float32), repack(raw, kind), y, activations="fp32")
    np.testing.assert_array_equal(y.T, weights)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_what_gguf_quantises_itself_repacks_without_loss(kind: str) -> None:
    weights = np.random.default_rng(1).standard_normal((37, 96)).astype(np.float32)
    raw = gguf.quantize(weights, gguf.GGMLQuantizationType[kind])
    y = np.empty((96, 37), np.float32)
    product(np.eye(96, dtype=np.float32), repack(raw, kind), y, activations="fp32")
    np.testing.assert_array_equal(y.T, gguf.dequantize(raw, gguf.GGMLQuantizationType[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_panels_are_exactly_as_large_as_the_blocks(kind: str) -> None:
    raw, _ = draw(kind, 48, 768)
    assert repack(raw, kind).data.nbytes == raw.nbytes


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "MXFP4"])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_scale_that_is_no_number_is_refused(kind: str, bad: float) -> None:
    raw, _ = draw(kind, 3, 256)
    at = 208 if kind == "Q6_K" else 0
    raw[1, at : at + 2] = np.array([bad], np.float16).view(np.uint8)
    with pytest.raises(NotFinite):
        repack(raw, kind)


def test_an_exponent_that_is_no_number_is_refused_and_the_least_is_zero() -> None:
    raw, _ = draw("MXFP4", 16, 32)
    raw[:, 0] = 0
    y = np.full((1, 16), np.nan, np.float32)
    product(np.ones((1, 32), np.float32), repack(raw, "MXFP4"), y)
    assert not y.any()
    raw[3, 0] = 255
    with pytest.raises(NotFinite):
        repack(raw, "MXFP4")


@pytest.mark.parametrize("target", sorted(FILE_OWN))
def test_a_file_s_own_format_is_never_quantised_to(target: MatrixFormat) -> None:
    with pytest.raises(ValueError, match=f"nothing is quantised as {target}"):
        pack(np.ones((1, 1), np.float32), target)


def test_a_gguf_type_that_does_not_repack_is_refused() -> None:
    with pytest.raises(KeyError, match="Q2_K"):
        repack(np.zeros((1, 84), np.uint8), "Q2_K")


@pytest.mark.parametrize("target", PACKED)
def test_a_matrix_of_zeros_gives_zeros(target: MatrixFormat) -> None:
    y = np.full((2, 5), np.nan, np.float32)
    product(np.ones((2, 40), np.float32), pack(np.zeros((5, 40), np.float32), target), y)
    assert not y.any()
