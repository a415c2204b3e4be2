"""Published configurations, summed up by hand from their own numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.anatomy.fields import Fields, read_fields
from core.anatomy.parts import Anatomy, anatomy_of
from core.anatomy.read import read_anatomy
from core.errors import ModelError
from engine.checkpoint.hf_config import read_config

# the numbers below are the configurations' own, as published
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
QWEN3_06B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
QWEN3_8B = QWEN3_06B | {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "tie_word_embeddings": False,
}
QWEN3_30B = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
QWEN36_35B = {
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "vocab_size": 248320,
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
}
GEMMA3_27B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "vocab_size": 262208,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
    },
}
GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "attention_bias": True,
    "tie_word_embeddings": False,
}
GPT_OSS_120B = GPT_OSS_20B | {"num_hidden_layers": 36, "num_local_experts": 128}
MIXTRAL = {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}


def anatomy(raw: Mapping[str, object]) -> Anatomy:
    return read_anatomy(Fields(raw, "config.json"), "x")


def kv_numbers(found: Anatomy) -> int:
    return sum(store.numbers for store in found.stores)


def gqa(hidden: int, heads: int, kv_heads: int, dim: int) -> int:
    return 2 * hidden * heads * dim + 2 * hidden * kv_heads * dim


CASES = [
    # 2 norms a layer and the last; embedding and head apart
    (LLAMA_8B, 2 * 128256 * 4096 + 32 * (gqa(4096, 32, 8, 128) + 3 * 4096 * 14336 + 8192) + 4096,
     32 * 2 * 8 * 128),
    (LLAMA_70B, 2 * 128256 * 8192 + 80 * (gqa(8192, 64, 8, 128) + 3 * 8192 * 28672 + 16384) + 8192,
     80 * 2 * 8 * 128),
    (QWEN3_06B, 151936 * 1024 + 28 * (gqa(1024, 16, 8, 128) + 3 * 1024 * 3072 + 2048 + 256) + 1024,
     28 * 2 * 8 * 128),
    (QWEN3_8B, 2 * 151936 * 4096 + 36 * (gqa(4096, 32, 8, 128) + 3 * 4096 * 12288 + 8192 + 256)
     + 4096, 36 * 2 * 8 * 128),
    (QWEN3_30B, 2 * 151936 * 2048 + 48 * (gqa(2048, 32, 4, 128) + 128 * 2048
     + 128 * 3 * 2048 * 768 + 4096 + 256) + 2048, 48 * 2 * 4 * 128),
    (DEEPSEEK_V3, 2 * 129280 * 7168 + 7168 + 61 * (2 * 7168 + 1536 * 7168 + 1536
     + 128 * 192 * 1536 + 576 * 7168 + 512 + 128 * 256 * 512 + 7168 * 128 * 128)
     + 3 * 3 * 7168 * 18432 + 58 * (256 * 7168 + 256 + 257 * 3 * 7168 * 2048), 61 * 576),
    (GEMMA3_27B, 262208 * 5376 + 5376 + 62 * (gqa(5376, 32, 16, 128) + 3 * 5376 * 21504
     + 4 * 5376 + 256), 62 * 2 * 16 * 128),
    (GPT_OSS_20B, 2 * 201088 * 2880 + 2880 + 24 * (gqa(2880, 64, 8, 64) + 64 * 64 + 2 * 8 * 64
     + 2880 + 64 + 2 * 2880 + 32 * (2880 + 1) + 32 * (3 * 2880 * 2880 + 3 * 2880)),
     24 * 2 * 8 * 64),
    (GPT_OSS_120B, 2 * 201088 * 2880 + 2880 + 36 * (gqa(2880, 64, 8, 64) + 64 * 64 + 2 * 8 * 64
     + 2880 + 64 + 2 * 2880 + 128 * (2880 + 1) + 128 * (3 * 2880 * 2880 + 3 * 2880)),
     36 * 2 * 8 * 64),
    (MIXTRAL, 2 * 32000 * 4096 + 4096 + 32 * (gqa(4096, 32, 8, 128) + 8 * 4096
     + 8 * 3 * 4096 * 14336 + 2 * 4096), 32 * 2 * 8 * 128),
    (QWEN36_35B, 2 * 248320 * 2048 + 2048 + 40 * (2 * 2048 + 256 * 2048 + 257 * 3 * 2048 * 512
     + 2048) + 10 * (2048 * 16 * 256 * 3 + 2 * 2048 * 2 * 256 + 512)
     + 30 * (12288 * 2048 + 64 * 2048 + 8192 * 4 + 32 + 32 + 128 + 2048 * 4096),
     10 * 2 * 2 * 256),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "parameters", "kv"), CASES)
def test_a_published_configuration_has_its_parameters_and_keys(raw, parameters, kv) -> None:
    found = anatomy(raw)
    assert found.parameters == parameters
    assert kv_numbers(found) == kv


def test_a_recurrent_model_s_state_is_read_in_place_of_keys() -> None:
    found = anatomy(QWEN36_35B)
    assert len(found.attentions) == 10
    assert found.state_bytes == 30 * (4 * 32 * 128 * 128 + 2 * 8192 * 3)


def test_every_sixth_layer_of_gemma_3_sees_everything() -> None:
    windows = [layer.window for layer in anatomy(GEMMA3_27B).attentions]
    assert windows[:6] == [1024] * 5 + [None]
    assert windows.count(None) == 10


@pytest.mark.parametrize("raw", [LLAMA_8B, LLAMA_70B, QWEN3_06B, QWEN3_8B])
def test_what_is_served_is_described_alike_by_both_readers(raw: dict[str, object]) -> None:
    assert anatomy(raw) == anatomy_of(read_config(raw, {}, "x"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000 is not a whole number from"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: -1 is not a whole number from 1 to 1,000"),
        ({"hidden_size": float("nan")}, "hidden_size: nan is not a whole number"),
        ({"hidden_size": "4096"}, "hidden_size: '4096' is not a whole number"),
        ({"vocab_size": True}, "vocab_size: True is not a whole number"),
        ({"vocab_size": 10**400}, "vocab_size: 10000000000"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"num_key_value_heads": 7}, "num_key_value_heads: 7 is not a divisor of the 32 heads"),
        ({"attention_bias": "no"}, "attention_bias: 'no' is not true or false"),
        ({"model_type": "rwkv"}, "model_type: 'rwkv' is not one of"),
        ({"text_config": [1]}, "text_config: [1] is not a JSON object"),
    ],
)
def test_a_lying_field_is_one_line(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ModelError) as caught:
        anatomy(LLAMA_8B | change)
    assert str(caught.value).startswith("config.json: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "1" * 5000, "\xff"])
def test_a_file_that_is_no_configuration_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ModelError, match=r"is not JSON|is no JSON object"):
        read_fields(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, match="is no regular file"):
        read_fields(tmp_path / "config.json")


def test_a_configuration_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    assert read_anatomy(read_fields(path), "x") == anatomy(LLAMA_8B)
