"""Writes small models as GGUF files in any block type, the way llama.cpp's converter does."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM

from tests.model import test_gguf
from tests.unit.kernels import file_blocks

CONFIG = LlamaConfig(
    vocab_size=272,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)


def random_blocks(kind: GGMLQuantizationType, rows: int, columns: int, seed: int) -> np.ndarray:
    """Draw rows of blocks. What gguf cannot quantise, and we have no kernel for, is all zeros."""
    if kind.name in file_blocks.KINDS:
        return file_blocks.draw(kind.name, rows, columns, seed)[0]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    try:
        values = np.random.default_rng(seed).standard_normal((rows, columns), np.float32)
        return gguf.quantize(values * np.float32(0.02), kind)
    except NotImplementedError:
        return np.zeros((rows, columns // block * size), np.uint8)


def write_gguf(path: Path, matrices: str, head: str) -> Path:
    """Write a model whose layers and embedding have one type, and its head another."""
    add, seeds = GGUFWriter.add_tensor, iter(range(1000))

    def add_quantised(writer: GGUFWriter, name: str, values: np.ndarray) -> None:
        if values.ndim == 1:
            add(writer, name, values)
            return
        kind = GGMLQuantizationType[head if name == "output.weight" else matrices]
        add(writer, name, random_blocks(kind, *values.shape, next(seeds)), raw_dtype=kind)

    with patch.object(GGUFWriter, "add_tensor", add_quantised):
        test_gguf.write(path, LlamaForCausalLM(CONFIG), "llama")
    return path
