"""Sizes that the allocator and the arithmetic must agree on."""

from __future__ import annotations

from core.formats import KVFormat, WeightFormat
from core.model import ModelConfig, RopeConfig, TensorRole
from costmodel.storage import (
    kv_bytes_per_token,
    kv_bytes_per_token_and_layer,
    stored_bytes,
    weight_bytes,
)

TINYGPT = ModelConfig(
    name="tinygpt",
    vocab_size=260,
    hidden_size=256,
    intermediate_size=1024,
    num_layers=6,
    num_heads=4,
    num_kv_heads=1,
    head_dim=64,
    max_position_tokens=8192,
    norm_eps=1e-5,
    rope=RopeConfig(theta=10_000.0),
    tied_embeddings=False,
    sliding_window=(None,) * 6,
)


def test_tinygpt_has_its_parameters_to_the_unit() -> None:
    assert TINYGPT.parameters == 5_838_080
    assert sum(weight_bytes(TINYGPT, WeightFormat.FP32).values()) == 5_838_080 * 4


def test_tinygpt_stores_3072_kv_bytes_per_token_in_fp32_and_half_in_fp16() -> None:
    assert kv_bytes_per_token(TINYGPT, KVFormat.FP32) == 3072
    assert kv_bytes_per_token(TINYGPT, KVFormat.FP16) == 1536
    assert kv_bytes_per_token_and_layer(TINYGPT, KVFormat.FP32) * 6 == 3072


def test_vectors_stay_in_fp32_when_matrices_are_stored_in_fp16() -> None:
    full, half = (weight_bytes(TINYGPT, f) for f in (WeightFormat.FP32, WeightFormat.FP16))
    assert half[TensorRole.VECTOR] == full[TensorRole.VECTOR]
    assert half[TensorRole.MATRIX] * 2 == full[TensorRole.MATRIX]


def test_a_matrix_is_stored_at_its_width() -> None:
    assert stored_bytes(3, 5, WeightFormat.FP32) == 60
    assert stored_bytes(3, 5, WeightFormat.FP16) == 30
