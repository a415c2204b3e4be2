"""Reads a GGUF file: metadata, dequantised tensors in Hugging Face's row order, tokenizer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor, dequantize

from core.errors import ModelError
from core.model import ModelConfig, TensorSpec
from engine.checkpoint.gguf_config import read_config
from engine.checkpoint.source import (
    KEPT_BLOCKS,
    TEMPLATE_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    Blocks,
    Checkpoint,
    Rows,
    Source,
    fingerprint,
)
from engine.checkpoint.tokenizer import (
    BytePairVocabulary,
    byte_pair_tokenizer,
    to_json,
    tokenizer_config,
)

_NAMES: Final = {
    "embed": "token_embd",
    "final_norm": "output_norm",
    "lm_head": "output",
    "input_norm": "attn_norm",
    "post_norm": "ffn_norm",
    "o_proj": "attn_output",
    **{f"{x}_proj": f"attn_{x}" for x in "qkv"},
    **{f"{x}_norm": f"attn_{x}_norm" for x in "qk"},
    **{f"{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")},
}
_TORCH_TYPES: Final = {
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}
_CONTROL, _USER_DEFINED = 3, 4  # Source: gguf.TokenType


def gguf_name(name: str) -> str:
    """Translate our tensor name: "layers.3.q_proj" is "blk.3.attn_q.weight"."""
    if not name.startswith("layers."):
        return f"{_NAMES[name]}.weight"
    _, layer, part, *bias = name.split(".")
    return f"blk.{layer}.{_NAMES[part]}.{'bias' if bias else 'weight'}"


def source(path: Path, name: str) -> Source:
    return Source(name, str(path), fingerprint([path]), lambda: _open(path, name))


def _open(path: Path, name: str) -> Checkpoint:
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{path}: not a readable GGUF file ({error})") from error
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    shapes = {key: _rows_columns(tensor) for key, tensor in tensors.items()}
    config = read_config(metadata, shapes, name)
    missing = [s.name for s in config.tensors() if gguf_name(s.name) not in tensors]
    if missing:
        raise ModelError(f"{path}: {len(missing)} tensors are missing, first {missing[0]}")
    interleaved = metadata["general.architecture"] == "llama"
    reading = _TensorReader(tensors, config, interleaved)
    try:
        files = _text_files(metadata, name)
    except KeyError as error:
        raise ModelError(f"{path}: the GGUF file lacks {error}") from error
    return Checkpoint(
        config,
        reading.read,
        files,
        reading.kind,
        reading.blocks,
        reading.bytes_of,
        reading.rows,
    )


def _rows_columns(tensor: ReaderTensor) -> tuple[int, int]:
    columns, *rows = (int(size) for size in tensor.shape)  # GGUF names the inner dimension first
    return (rows[0] if rows else 1), columns


class _TensorReader:
    """Finds tensors by our names; the file stays memory-mapped, one tensor is fp32 at a time."""

    def __init__(
        self, tensors: dict[str, ReaderTensor], config: ModelConfig, interleaved: bool
    ) -> None:
        self._tensors = tensors
        # llama files order the rows of q and k for rotation of neighbouring pairs, not of halves
        q, k = config.num_heads, config.num_kv_heads
        self._heads_of = {"q_proj": q, "k_proj": k} if interleaved else {}

    def read(self, name: str) -> torch.Tensor:
        return self._dequantised(name, 0, len(self._tensors[gguf_name(name)].data))

    def rows(self, name: str) -> Rows:
        return Rows(self._shape(name), partial(self._dequantised, name))

    def kind(self, name: str) -> str:
        return str(self._tensors[gguf_name(name)].tensor_type.name)

    def bytes_of(self, spec: TensorSpec) -> int:
        return int(self._tensors[gguf_name(spec.name)].n_bytes)

    def blocks(self, name: str) -> Blocks | None:
        """Give a matrix's quantised rows as they are, where the kernels take them so."""
        if (kind := self.kind(name)) not in KEPT_BLOCKS:
            return None
        return Blocks(self._shape(name), partial(self._stored, name), kind)

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(size) for size in reversed(self._tensors[gguf_name(name)].shape))

    def _dequantised(self, name: str, first: int, last: int) -> torch.Tensor:
        tensor = self._tensors[gguf_name(name)]
        try:
            values = dequantize(self._stored(name, first, last), tensor.tensor_type)
        except NotImplementedError as error:
            kind = tensor.tensor_type.name
            raise ModelError(f"{tensor.name}: quantisation {kind} is not supported") from error
        dtype = _TORCH_TYPES.get(tensor.tensor_type, torch.float32)
        return torch.tensor(values).to(dtype)  # a copy: the file's map is read-only

    def _stored(self, name: str, first: int, last: int) -> np.ndarray:
        """Give rows in our order, as the file has them."""
        data: np.ndarray = self._tensors[gguf_name(name)].data
        heads = next((h for part, h in self._heads_of.items() if part in name), None)
        if heads is None:
            return data[first:last]
        order = halves_from_pairs(np.arange(len(data)), heads)[first:last]
        return np.take(data, order, axis=0)


def halves_from_pairs(values: np.ndarray, heads: int) -> np.ndarray:
    """Undo the row order of llama GGUF files: rows 0, 2, 4 … of a head, then 1, 3, 5 …"""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _text_files(metadata: dict[str, Any], name: str) -> dict[str, str]:
    model = metadata.get("tokenizer.ggml.model", "none")
    if model != "gpt2":
        raise ModelError(f"{name}: GGUF tokenizer {model!r} is not supported (only gpt2)")
    tokens, bos = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.bos_token_id")
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    types = metadata.get("tokenizer.ggml.token_type", ())
    pre = metadata.get("tokenizer.ggml.pre", "default")
    adds_bos = metadata.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe")
    vocabulary = BytePairVocabulary(
        pre=pre,
        tokens=tokens,
        merges=metadata["tokenizer.ggml.merges"],
        special=frozenset(i for i, kind in enumerate(types) if kind == _CONTROL),
        added=frozenset(i for i, kind in enumerate(types) if kind == _USER_DEFINED),
        bos_id=bos if adds_bos and bos in range(len(tokens)) else None,
    )
    known = range(len(tokens))  # some files write 2^32 - 1 for "none"
    texts = tokenizer_config(*(tokens[i] if i in known else None for i in (bos, eos)))
    files = {
        TOKENIZER_FILE: to_json(byte_pair_tokenizer(vocabulary)),
        TOKENIZER_CONFIG_FILE: to_json(texts),
    }
    template = metadata.get("tokenizer.chat_template")
    return files | ({TEMPLATE_FILE: template} if template else {})
