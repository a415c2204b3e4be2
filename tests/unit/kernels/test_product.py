"""Matrix products over packed weights, against float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.formats import FILE_OWN, MatrixFormat
from kernels import PackedMatrix, isas, pack, product
from kernels.gguf_blocks import repack
from tests.unit.kernels.file_blocks import KINDS, draw
from tests.unit.kernels.plain import QUANTISED, int8_activations, matrix

Array = npt.NDArray[Any]
INTEGER = [*QUANTISED, *sorted(FILE_OWN)]


def random_rows(batch: int, columns: int, seed: int) -> Array:
    return np.random.default_rng(seed + 1).standard_normal((batch, columns)).astype(np.float32)


def multiplied(x: Array, packed: PackedMatrix, **how: Any) -> Array:
    y = np.full((len(x), packed.rows), np.nan, np.float32)
    product(x, packed, y, **how)
    return y


def error(y: Array, x: Array, plain: Array) -> float:
    """Largest error over the largest sum of magnitudes: what rounding is measured against."""
    if y.size == 0:
        return 0.0
    return float(np.abs(y - x @ plain.T).max() / (np.abs(x) @ np.abs(plain.T)).max())


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("target", list(MatrixFormat))
@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 300),
    batch=st.integers(0, 40),
    threads=st.integers(1, 3),
    seed=st.integers(0, 9),
)
@settings(max_examples=40)
def test_every_shape_multiplies_like_float64(
    isa: str, target: MatrixFormat, rows: int, columns: int, batch: int, threads: int, seed: int
) -> None:
    (packed, plain), x = matrix(target, rows, columns, seed), random_rows(batch, columns, seed)
    y = multiplied(x, packed, activations="fp32", threads=threads, isa=isa)
    assert error(y, x.astype(np.float64), plain) < 1e-6


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("target", INTEGER)
@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 300),
    batch=st.integers(1, 40),
    seed=st.integers(0, 9),
)
@settings(max_examples=40)
def test_integer_arithmetic_loses_only_what_rounding_activations_loses(
    isa: str, target: MatrixFormat, rows: int, columns: int, batch: int, seed: int
) -> None:
    (packed, plain), x = matrix(target, rows, columns, seed), random_rows(batch, columns, seed)
    y = multiplied(x, packed, activations="int8", isa=isa)
    assert error(y, int8_activations(x), plain) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_codes_do_not_saturate(kind: str) -> None:
    raw, weights = draw(kind, 16, 512, bytes_from=(0, 255))
    x = np.sign(np.random.default_rng(1).standard_normal((3, 512))).astype(np.float32)
    for isa in isas():
        y = multiplied(x, repack(raw, kind), isa=isa)
        assert error(y, x.astype(np.float64), weights.astype(np.float64)) < 1e-6


@pytest.mark.parametrize("target", QUANTISED)
def test_extreme_bytes_do_not_saturate(target: MatrixFormat) -> None:
    weights = np.where(np.arange(64) % 2, 1.0, -1.0) * np.ones((16, 64))
    x = np.where(np.arange(64) % 2, 1.0, -1.0) * np.ones((1, 64))
    packed = pack(weights.astype(np.float32), target)
    for isa in isas():
        y = multiplied(x.astype(np.float32), packed, isa=isa)
        assert np.allclose(y, 64.0, rtol=1e-3)


@pytest.mark.parametrize("activations", ["fp32", "int8"])
@pytest.mark.parametrize("target", list(MatrixFormat))
@pytest.mark.parametrize("isa", isas())
def test_a_row_is_the_same_to_the_bit_alone_and_among_others(
    isa: str, target: MatrixFormat, activations: str
) -> None:
    (packed, _), x = matrix(target, 50, 297, 3), random_rows(45, 297, 3)
    together = multiplied(x, packed, activations=activations, threads=2, isa=isa)
    for first, last in [(0, 1), (3, 5), (7, 20), (30, 31), (2, 38)]:
        alone = multiplied(x[first:last].copy(), packed, activations=activations, isa=isa)
        assert np.array_equal(alone, together[first:last])


@pytest.mark.parametrize("target", list(MatrixFormat))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_activation_spoils_its_own_row_and_no_other(target: MatrixFormat, bad: float) -> None:
    for isa, batch in itertools.product(isas(), (3, 40)):
        (packed, _), x = matrix(target, 20, 64, 4), random_rows(batch, 64, 4)
        x[1, 40] = bad
        y = multiplied(x, packed, isa=isa)
        assert not np.isfinite(y[1]).any()
        assert np.isfinite(np.delete(y, 1, axis=0)).all()


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e30])
def test_activations_of_any_size_are_rounded_without_overflow(size: float) -> None:
    (packed, _), x = matrix(MatrixFormat.INT8, 16, 32, 6), random_rows(2, 32, 6)
    for isa in isas():
        y = multiplied((x * size).astype(np.float32), packed, isa=isa)
        assert np.isfinite(y).all()
        assert np.abs(y).max() < 100 * size
