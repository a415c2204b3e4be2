"""`config.json` in the spellings that checkpoints use, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json

from core.errors import ModelError
from core.model import Activation, ModelConfig, RopeConfig, RopeScaling
from engine.checkpoint.hf_config import read_config

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
}


def read(**changes: Any) -> ModelConfig:
    return read_config({**BASE, **changes}, {}, "a-model")


def test_what_is_not_said_has_the_familys_default() -> None:
    config = read()
    assert (config.num_kv_heads, config.head_dim) == (8, 8)
    assert config.rope == RopeConfig(theta=10_000.0)
    assert config.sliding_window == (None,) * 4
    flags = (config.tied_embeddings, config.qkv_bias, config.output_bias, config.mlp_bias)
    assert not any(flags)
    assert config.activation is Activation.SILU


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 4}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 4}},
    ],
    ids=["old", "middle", "transformers 5"],
)
def test_all_spellings_of_rope_scaling_mean_the_same(spelling: dict[str, Any]) -> None:
    expected = RopeConfig(theta=5e5, scaling=RopeScaling.LINEAR, factor=4.0)
    assert read(**spelling).rope == expected


def test_biases_and_norms_follow_the_architecture() -> None:
    qwen2 = read(architectures=["Qwen2ForCausalLM"])
    qwen3 = read(architectures=["Qwen3ForCausalLM"], attention_bias=True)
    assert (qwen2.qkv_bias, qwen2.output_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen3.qkv_bias, qwen3.output_bias, qwen3.qk_norm) == (True, True, True)


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 32}, (32, 32, 32, 32)),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, (None,) * 4),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 32}, (None,) * 4),
        (
            {
                "architectures": ["Qwen2ForCausalLM"],
                "use_sliding_window": True,
                "sliding_window": 32,
                "max_window_layers": 3,
            },
            (None, None, None, 32),
        ),
        (
            {
                "architectures": ["Qwen3ForCausalLM"],
                "use_sliding_window": True,
                "sliding_window": 32,
                "layer_types": ["full_attention", "sliding_attention"] * 2,
            },
            (None, 32, None, 32),
        ),
        ({"sliding_window": 32}, (None,) * 4),
    ],
)
def test_windows_follow_the_architecture(
    changes: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    assert read(**changes).sliding_window == windows


def test_end_of_sequence_ids_come_from_both_files_once_each() -> None:
    config = read_config({**BASE, "eos_token_id": 5}, {"eos_token_id": [7, 5]}, "a-model")
    assert config.eos_token_ids == (5, 7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architecture GPT2LMHeadModel is not supported"),
        ({"architectures": []}, "architecture none named is not supported"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "rope scaling 'yarn'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_act": "relu"}, "activation 'relu'"),
    ],
    ids=str,
)
def test_what_we_do_not_run_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        read(**changes)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ModelError, match="lacks 'hidden_size'"):
        read_config({k: v for k, v in BASE.items() if k != "hidden_size"}, {}, "a-model")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_key_value_heads": 3},
        {"num_attention_heads": 0},
        {"num_hidden_layers": "four"},
        {"rope_scaling": "linear"},
        {"rope_scaling": {"type": "linear", "factor": "four"}},
    ],
    ids=str,
)
def test_a_config_that_describes_no_model_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"a-model: config\.json describes no model: ."):
        read(**changes)


def test_a_config_survives_its_file() -> None:
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    }
    mistral = read(architectures=["MistralForCausalLM"], sliding_window=32, eos_token_id=[1, 2])
    for config in (read(rope_parameters=llama3), mistral):
        assert json.decode(json.encode(config), type=ModelConfig) == config
