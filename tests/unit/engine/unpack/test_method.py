"""Which quantised checkpoints are taken, and how the others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import ModelError
from engine.unpack.method import Method, Quantisation, read_quantisation

W4 = {"group_0": {"weights": {"num_bits": 4, "group_size": 128}, "targets": ["Linear"]}}
FLOATS = {"quant_method": "compressed-tensors", "format": "float-quantized"}
W8 = {"group_0": {"weights": {"num_bits": 8, "block_structure": [64, 32]}}}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"quant_method": "gptq", "bits": 4}, Quantisation(Method.GPTQ, 4)),
        ({"quant_method": "gptq", "bits": 8}, Quantisation(Method.GPTQ, 8)),
        (
            {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"},
            Quantisation(Method.GPTQ, 4, zero_is_stored_less_one=False),
        ),
        ({"quant_method": "awq", "bits": 4, "version": "GEMM"}, Quantisation(Method.AWQ, 4)),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": W4},
            Quantisation(Method.COMPRESSED_TENSORS, 4),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": W8,
            },
            Quantisation(Method.COMPRESSED_TENSORS, 8, block=(64, 32)),
        ),
        ({"quant_method": "fp8"}, Quantisation(Method.FP8, 8)),
        (
            {"quant_method": "fp8", "weight_block_size": [64, 128]},
            Quantisation(Method.FP8, 8, block=(64, 128)),
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            Quantisation(Method.BITSANDBYTES),
        ),
    ],
)
def test_a_known_method_is_read(told: dict[str, Any], expected: Quantisation) -> None:
    assert read_quantisation({"quantization_config": told}, "m") == expected


def test_a_config_without_a_word_of_it_is_plain() -> None:
    assert read_quantisation({}, "m") is None


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"quant_method": "aqlm"}, "quantisation by 'aqlm' is not supported; bring bf16"),
        ({"bits": 4}, "quantisation by 'not named' is not supported"),
        ({"quant_method": "gptq", "bits": 3}, "gptq weights of 3 bits are not supported"),
        ({"quant_method": "gptq", "bits": "4"}, "gptq weights of '4' bits"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "AWQ weights laid out as 'gemv'"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "8-bit bitsandbytes is not"),
        (
            {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
            "compressed-tensors of format 'nvfp4-pack-quantized' are not supported",
        ),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized"},
            "4 bits or 8 for all, not none",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": W4 | {"group_1": {"weights": {"num_bits": 8}}},
            },
            "not 4, 8",
        ),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "two positive numbers"),
        ({"quant_method": "fp8", "weight_block_size": "128"}, "two positive numbers"),
        ("gptq", "quantization_config is not an object"),
    ],
)
def test_what_is_not_unpacked_is_refused_by_name(told: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read_quantisation({"quantization_config": told}, "m")
