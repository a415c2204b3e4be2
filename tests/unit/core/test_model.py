"""The one description of a model."""

from __future__ import annotations

import pytest

from core.model import ModelConfig, RopeConfig, TensorRole

TINY = {
    "name": "tinygpt",
    "vocab_size": 260,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_layers": 6,
    "num_heads": 4,
    "num_kv_heads": 1,
    "head_dim": 64,
    "max_position_tokens": 8192,
    "norm_eps": 1e-5,
    "rope": RopeConfig(theta=10_000.0),
    "tied_embeddings": False,
    "sliding_window": (None,) * 6,
}


def config(**changes: object) -> ModelConfig:
    return ModelConfig(**{**TINY, **changes})  # type: ignore[arg-type]


def test_tinygpt_has_the_parameters_of_the_text_it_comes_from() -> None:
    assert config().parameters == 5_838_080


def test_a_tied_head_is_one_tensor() -> None:
    tied = config(tied_embeddings=True)
    assert tied.parameters == 5_838_080 - 260 * 256
    assert [t.role for t in tied.tensors() if t.rows == 260] == [TensorRole.TIED]


def test_biases_and_qk_norms_are_vectors_beside_their_matrices() -> None:
    plain = {tensor.name for tensor in config().tensors()}
    full = config(qkv_bias=True, output_bias=True, mlp_bias=True, qk_norm=True)
    added = [tensor for tensor in full.tensors() if tensor.name not in plain]
    assert {tensor.role for tensor in added} == {TensorRole.VECTOR}
    assert sum(tensor.parameters for tensor in added) == 6 * (
        (256 + 64 + 64) + 256 + (1024 + 1024 + 256) + 2 * 64
    )


def test_every_tensor_has_a_name_of_its_own() -> None:
    names = [tensor.name for tensor in config(qkv_bias=True, qk_norm=True).tensors()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "changes", [{"sliding_window": (None,)}, {"num_kv_heads": 3}], ids=["windows", "kv_heads"]
)
def test_a_config_that_contradicts_itself_cannot_be_made(changes: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        config(**changes)
