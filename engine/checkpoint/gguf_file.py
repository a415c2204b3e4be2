"""Reads a GGUF file: metadata, dequantised tensors in Hugging Face's row order, tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gguf import GGMLQuantizationType, dequantize

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
from engine.headers.checks import check_shapes
from engine.headers.gguf_header import GgufTensor
from engine.headers.gguf_parts import base_name, parts_of, read_parts
from engine.headers.regular_file import require_file
from engine.tokenizer.byte_pairs import (
    BytePairVocabulary,
    Json,
    byte_pair_tokenizer,
    to_json,
    tokenizer_config,
)
from engine.tokenizer.scored_pieces import ScoredVocabulary, scored_pieces_tokenizer

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
_ROPE_FACTORS: Final = "rope_freqs.weight"
_ADD_BOS: Final = ("llama-bpe", "llama3", "llama-v3", "tekken")  # where the file does not say
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # Source: gguf.TokenType


def gguf_name(name: str) -> str:
    """Translate our tensor name: "layers.3.q_proj" is "blk.3.attn_q.weight"."""
    if not name.startswith("layers."):
        return f"{_NAMES[name]}.weight"
    _, layer, part, *bias = name.split(".")
    return f"blk.{layer}.{_NAMES[part]}.{'bias' if bias else 'weight'}"


def source(path: Path, name: str | None = None) -> Source:
    """Describe a GGUF file, or all parts of one that was split, whichever of them `path` is.

    Raises:
        ModelError: a part is missing, or is no file.
    """
    parts = parts_of(path)
    for part in parts:
        require_file(part)
    name = name or base_name(path)
    return Source(name, str(parts[0]), fingerprint(parts), lambda: _open(parts, name))


def _open(parts: list[Path], name: str) -> Checkpoint:
    file, where = read_parts(parts), str(parts[0])
    metadata, tensors = file.metadata, dict(file.tensors)
    # not a weight: it divides the frequencies of the rotary positions
    factors = _rope_factors(tensors.pop(_ROPE_FACTORS, None), where)
    shapes = {key: tensor.shape for key, tensor in tensors.items()}
    config = read_config(metadata, shapes, factors, name)
    check_shapes(config, shapes, gguf_name, where)
    reading = _TensorReader(tensors, config, metadata["general.architecture"] == "llama")
    try:
        files = _text_files(metadata, name)
    except KeyError as error:
        raise ModelError(f"{where}: the GGUF file lacks {error}") from error
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ModelError(f"{where}: the GGUF file describes no tokenizer: {error}") from error
    return Checkpoint(
        config,
        reading.read,
        files,
        reading.kind,
        reading.blocks,
        reading.bytes_of,
        reading.rows,
    )


def _rope_factors(tensor: GgufTensor | None, where: str) -> tuple[float, ...]:
    if tensor is None:
        return ()
    if tensor.tensor_type is not GGMLQuantizationType.F32 or len(tensor.shape) != 1:
        raise ModelError(f"{where}: {tensor.name} is no vector of fp32")
    return tuple(tensor.data.view(np.float32).tolist())


class _TensorReader:
    """Finds tensors by our names; the file stays memory-mapped, one tensor is fp32 at a time."""

    def __init__(
        self, tensors: dict[str, GgufTensor], config: ModelConfig, interleaved: bool
    ) -> None:
        self._tensors = tensors
        # llama files order the rows of q and k for rotation of neighbouring pairs, not of halves
        q, k = config.num_heads, config.num_kv_heads
        self._heads_of = {"q_proj": q, "k_proj": k} if interleaved else {}

    def read(self, name: str) -> torch.Tensor:
        return self._dequantised(name, 0, self._tensors[gguf_name(name)].shape[0])

    def rows(self, name: str) -> Rows:
        return Rows(self._tensors[gguf_name(name)].shape, partial(self._dequantised, name))

    def kind(self, name: str) -> str:
        return str(self._tensors[gguf_name(name)].tensor_type.name)

    def bytes_of(self, spec: TensorSpec) -> int:
        return int(self._tensors[gguf_name(spec.name)].n_bytes)

    def blocks(self, name: str) -> Blocks | None:
        """Give a matrix's quantised rows as they are, where the kernels take them so."""
        if (kind := self.kind(name)) not in KEPT_BLOCKS:
            return None
        return Blocks(self._tensors[gguf_name(name)].shape, partial(self._stored, name), kind)

    def _dequantised(self, name: str, first: int, last: int) -> torch.Tensor:
        tensor = self._tensors[gguf_name(name)]
        try:
            values = dequantize(self._stored(name, first, last), tensor.tensor_type)
        except NotImplementedError as error:
            kind = tensor.tensor_type.name
            raise ModelError(f"{tensor.name}: quantisation {kind} is not supported") from error
        dtype = _TORCH_TYPES.get(tensor.tensor_type, torch.float32)
        shape = last - first, *tensor.shape[1:]
        return torch.tensor(values).reshape(shape).to(dtype)  # a copy: the map is read-only

    def _stored(self, name: str, first: int, last: int) -> np.ndarray:
        """Give rows in our order, in the file's bytes; a number of a vector is a row."""
        tensor = self._tensors[gguf_name(name)]
        data = tensor.data.reshape(tensor.shape[0], -1)
        heads = next((h for part, h in self._heads_of.items() if part in name), None)
        if heads is None:
            return data[first:last]
        order = halves_from_pairs(np.arange(len(data)), heads)[first:last]
        return np.take(data, order, axis=0)


def halves_from_pairs(values: np.ndarray, heads: int) -> np.ndarray:
    """Undo the row order of llama GGUF files: rows 0, 2, 4 … of a head, then 1, 3, 5 …"""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _text_files(metadata: Mapping[str, Any], name: str) -> dict[str, str]:
    kind = metadata.get("tokenizer.ggml.model", "none")
    if kind not in _TOKENIZERS:
        kinds = ", ".join(_TOKENIZERS)
        raise ModelError(f"{name}: GGUF tokenizer {kind!r} is not supported (only {kinds})")
    tokens, bos = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.bos_token_id")
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    known = range(len(tokens))  # some files write 2^32 - 1 for "none"
    texts = tokenizer_config(*(tokens[i] if i in known else None for i in (bos, eos)))
    files = {
        TOKENIZER_FILE: to_json(_TOKENIZERS[kind](metadata)),
        TOKENIZER_CONFIG_FILE: to_json(texts),
    }
    template = metadata.get("tokenizer.chat_template")
    return files | ({TEMPLATE_FILE: template} if template else {})


def _byte_pairs(metadata: Mapping[str, Any]) -> Json:
    pre = metadata.get("tokenizer.ggml.pre", "default")
    return byte_pair_tokenizer(
        BytePairVocabulary(
            pre=pre,
            tokens=metadata["tokenizer.ggml.tokens"],
            merges=metadata["tokenizer.ggml.merges"],
            special=_of_kind(metadata, _CONTROL),
            added=_of_kind(metadata, _USER_DEFINED),
            bos_id=_bos_id(metadata, otherwise=pre in _ADD_BOS),
        )
    )


def _scored_pieces(metadata: Mapping[str, Any]) -> Json:
    unknown = _of_kind(metadata, _UNKNOWN)
    return scored_pieces_tokenizer(
        ScoredVocabulary(
            tokens=metadata["tokenizer.ggml.tokens"],
            scores=metadata["tokenizer.ggml.scores"],
            normal=_of_kind(metadata, _NORMAL),
            special=_of_kind(metadata, _CONTROL),
            added=_of_kind(metadata, _USER_DEFINED),
            unknown_id=min(unknown, default=None),
            space_prefix=metadata.get("tokenizer.ggml.add_space_prefix", True),
            bos_id=_bos_id(metadata, otherwise=True),
        )
    )


def _of_kind(metadata: Mapping[str, Any], kind: int) -> frozenset[int]:
    """Give the ids of the tokens of a kind; a file without kinds has normal ones only."""
    tokens = metadata["tokenizer.ggml.tokens"]
    kinds = metadata.get("tokenizer.ggml.token_type", (_NORMAL,) * len(tokens))
    return frozenset(i for i, own in enumerate(kinds) if own == kind)


def _bos_id(metadata: Mapping[str, Any], otherwise: bool) -> int | None:
    """Give the token that is put before every text; `otherwise` holds where the file is silent."""
    bos, tokens = metadata.get("tokenizer.ggml.bos_token_id"), metadata["tokenizer.ggml.tokens"]
    adds = metadata.get("tokenizer.ggml.add_bos_token", otherwise)
    return bos if adds and bos in range(len(tokens)) else None


_TOKENIZERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Json]]] = {
    "gpt2": _byte_pairs,
    "llama": _scored_pieces,
}
