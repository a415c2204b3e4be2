"""Facts that Python and C++ each need a home for are the same in both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.formats import KVFormat, MatrixFormat
from costmodel import storage
from floorline import _native
from kernels import packing


def test_both_sides_cut_a_matrix_alike() -> None:
    assert _native.PANEL_ROWS == storage.PANEL_ROWS
    assert _native.GROUP_COLUMNS == storage.GROUP_COLUMNS
    assert _native.QUAD_COLUMNS == packing.QUAD_COLUMNS
    assert _native.BYTE_ZERO == packing.BYTE_ZERO


def test_both_sides_name_the_same_formats() -> None:
    assert tuple(MatrixFormat) == _native.MATRIX_FORMATS
    assert tuple(KVFormat) == _native.KV_FORMATS


@given(rows=st.integers(1, 300), columns=st.integers(1, 300), kind=st.sampled_from(MatrixFormat))
def test_both_sides_size_a_matrix_alike(rows: int, columns: int, kind: MatrixFormat) -> None:
    expected = storage.stored_bytes(rows, columns, kind, panels=True)
    assert _native.stored_bytes(rows, columns, kind) == expected
