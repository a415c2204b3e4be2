"""Sizes that the allocator and the arithmetic must agree on."""

from __future__ import annotations

import pytest

from core.formats import KVFormat, MatrixFormat, Storage
from core.model import TensorRole
from costmodel.storage import (
    kv_bytes_per_token,
    kv_bytes_per_token_and_layer,
    stored_bytes,
    weight_bytes,
)
from tests.unit.costmodel.models import TINYGPT


def test_tinygpt_has_its_parameters_to_the_unit() -> None:
    assert TINYGPT.parameters == 5_838_080
    assert sum(weight_bytes(TINYGPT, Storage(MatrixFormat.FP32)).values()) == 5_838_080 * 4


def test_an_int8_kv_store_takes_a_byte_an_element_and_two_for_each_vectors_scale() -> None:
    assert kv_bytes_per_token(TINYGPT, KVFormat.INT8) == 6 * 2 * 1 * (64 + 2)


def test_tinygpt_stores_3072_kv_bytes_per_token_in_fp32_and_half_in_fp16() -> None:
    assert kv_bytes_per_token(TINYGPT, KVFormat.FP32) == 3072
    assert kv_bytes_per_token(TINYGPT, KVFormat.FP16) == 1536
    assert kv_bytes_per_token_and_layer(TINYGPT, KVFormat.FP32) * 6 == 3072


def test_vectors_stay_in_fp32_when_matrices_are_stored_in_fp16() -> None:
    full, half = (weight_bytes(TINYGPT, Storage(f)) for f in (MatrixFormat.FP32, MatrixFormat.FP16))
    assert half[TensorRole.VECTOR] == full[TensorRole.VECTOR]
    assert half[TensorRole.MATRIX] * 2 == full[TensorRole.MATRIX]


def test_a_matrix_is_stored_at_its_width() -> None:
    assert stored_bytes(3, 5, MatrixFormat.FP32) == 60
    assert stored_bytes(3, 5, MatrixFormat.FP16) == 30


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (MatrixFormat.FP32, 4 * 33),
        (MatrixFormat.FP16, 2 * 33),
        (MatrixFormat.INT8, 4 + 64),
        (MatrixFormat.INT8_G32, 2 * 34),
        (MatrixFormat.INT4_G32, 2 * 20),
        (MatrixFormat.Q4_0, 2 * 18),
        (MatrixFormat.MXFP4, 2 * 17),
        (MatrixFormat.Q4_K, 144),
        (MatrixFormat.Q6_K, 210),
    ],
)
def test_panels_pad_rows_to_sixteen_and_groups_pad_columns_to_thirty_two(
    kind: MatrixFormat, row: int
) -> None:
    assert stored_bytes(1, 33, kind) == row
    assert stored_bytes(1, 33, kind, panels=True) == stored_bytes(16, 33, kind) == 16 * row
    assert stored_bytes(17, 33, kind, panels=True) == 32 * row


def test_an_exception_is_sized_by_its_own_format() -> None:
    storage = Storage(MatrixFormat.INT4_G32, exceptions=(("embed", MatrixFormat.INT8_G32),))
    plain = weight_bytes(TINYGPT, Storage(MatrixFormat.INT4_G32))
    mixed = weight_bytes(TINYGPT, storage)
    assert mixed[TensorRole.EMBEDDING] == 260 * 8 * 34
    assert {role: size for role, size in mixed.items() if role is not TensorRole.EMBEDDING} == {
        role: size for role, size in plain.items() if role is not TensorRole.EMBEDDING
    }
