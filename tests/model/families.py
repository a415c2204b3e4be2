"""Tiny Hugging Face models of each family that we support, with random weights."""

from __future__ import annotations

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SIZES = {
    "vocab_size": 273,  # the bytes and a few more; no whole panels of 16 rows
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "attn_implementation": "eager",
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}

FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama with biases and gelu": (
        LlamaForCausalLM,
        LlamaConfig(
            **SIZES, attention_bias=True, mlp_bias=True, hidden_act="gelu_pytorch_tanh", head_dim=16
        ),
    ),
    "llama with llama3 rope": (LlamaForCausalLM, LlamaConfig(**SIZES, rope_parameters=LLAMA3_ROPE)),
    "llama with linear rope": (LlamaForCausalLM, LlamaConfig(**SIZES, rope_parameters=LINEAR_ROPE)),
    "mistral": (MistralForCausalLM, MistralConfig(**SIZES, sliding_window=24)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES)),
    "qwen2 with windows": (
        Qwen2ForCausalLM,
        Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=24, max_window_layers=1),
    ),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=16)),
}


def build(family: str) -> PreTrainedModel:
    """Build a family's model; every tensor is random, norms and biases too, so none goes unseen."""
    model_class, config = FAMILIES[family]
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.2
            parameter.copy_(noise + 1 if "norm" in name else noise)
    return model
