"""How a model's matrices are stored, and what follows from it."""

from __future__ import annotations

from core.formats import KVFormat, MatrixFormat, Storage


def test_the_kv_store_is_fp32_beside_fp32_weights_alone() -> None:
    mixed = Storage(MatrixFormat.FP32, exceptions=(("lm_head", MatrixFormat.INT8),))
    assert Storage(MatrixFormat.FP32).usual_kv is KVFormat.FP32
    assert Storage(MatrixFormat.FP16).usual_kv is KVFormat.FP16
    assert mixed.usual_kv is KVFormat.FP16
