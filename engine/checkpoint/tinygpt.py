"""The reference model with random weights, its tokenizer of bytes. No file is read."""

from __future__ import annotations

from typing import Final

import torch

from core.model import ModelConfig, RopeConfig, TensorRole
from engine.checkpoint.source import (
    TEMPLATE_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    Checkpoint,
    Source,
)
from engine.tokenizer.byte_pairs import byte_tokenizer, to_json, tokenizer_config

CONFIG: Final = ModelConfig(
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
    bos_token_id=256,
    eos_token_ids=(257, 259),
)

WEIGHT_STD: Final = 0.02
SPECIAL_TOKENS: Final = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")  # ids from 256 on
CHATML_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def source(seed: int) -> Source:
    return Source("tinygpt", f"tinygpt, seed {seed}", "", lambda: _open(seed))


def _open(seed: int) -> Checkpoint:
    weights = random_weights(CONFIG, seed)
    files = {
        TOKENIZER_FILE: to_json(byte_tokenizer(SPECIAL_TOKENS)),
        TOKENIZER_CONFIG_FILE: to_json(tokenizer_config(bos="<|bos|>", eos="<|eos|>")),
        TEMPLATE_FILE: CHATML_TEMPLATE,
    }
    return Checkpoint(CONFIG, weights.__getitem__, files)


def random_weights(config: ModelConfig, seed: int) -> dict[str, torch.Tensor]:
    """Draw matrices from a normal distribution, biases too; norms are 1. A seed fixes them all."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for spec in config.tensors():
        if spec.role is TensorRole.VECTOR and spec.name.endswith("norm"):
            weights[spec.name] = torch.ones(spec.columns)
        else:
            shape = (spec.rows, spec.columns) if spec.rows > 1 else (spec.columns,)
            weights[spec.name] = torch.randn(shape, generator=generator) * WEIGHT_STD
    return weights
