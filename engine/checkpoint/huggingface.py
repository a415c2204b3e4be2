"""Reads a Hugging Face directory: config.json, safetensors (one file or sharded), tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from core.errors import ModelError
from core.model import ModelConfig, TensorSpec
from engine.checkpoint.hf_config import read_config
from engine.checkpoint.source import (
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
from engine.headers.safetensors_files import StoredTensors, read_json, shards
from engine.tokenizer.byte_pairs import to_json, tokenizer_config
from engine.tokenizer.vocabulary import id_of
from engine.unpack.find import Unpacker, named
from engine.unpack.matrix import Packed
from engine.unpack.method import Quantisation, read_quantisation

SPECIAL_TOKENS_FILE: Final = "special_tokens_map.json"
_BUFFERS: Final = re.compile(r"rotary_emb\.inv_freq$")  # older files hold it; the config says it
_HEAD: Final = "lm_head.weight"  # files of tied models may hold the embedding a second time
_KINDS: Final = ("F64", "F32", "F16", "BF16")
_NAMES = {
    "embed": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
    "input_norm": "input_layernorm.weight",
    "post_norm": "post_attention_layernorm.weight",
    **{f"{x}_proj": f"self_attn.{x}_proj.weight" for x in "qkvo"},
    **{f"{x}_norm": f"self_attn.{x}_norm.weight" for x in "qk"},
    **{f"{x}_proj": f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
}


def hf_name(name: str) -> str:
    """Translate our tensor name: "layers.3.q_proj" is "model.layers.3.self_attn.q_proj.weight"."""
    if not name.startswith("layers."):
        return _NAMES[name]
    _, layer, part, *bias = name.split(".")
    full = f"model.layers.{layer}.{_NAMES[part]}"
    return full.replace(".weight", ".bias") if bias else full


def source(folder: Path) -> Source:
    """Describe a directory by the files that matter in it.

    Raises:
        ModelError: it holds no config.json or no safetensors, or its index names a missing file.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: no config.json in this directory")
    weights = shards(folder)
    texts = [p for p in folder.iterdir() if p.suffix in (".json", ".jinja") and p.is_file()]
    return Source(folder.name, str(folder), fingerprint(texts + weights), lambda: _open(folder))


def _open(folder: Path) -> Checkpoint:
    generation = folder / "generation_config.json"
    raw = read_json(folder / "config.json")
    told = read_json(generation) if generation.is_file() else {}
    config = read_config(raw, told, folder.name)
    reading = _TensorReader(folder, config, read_quantisation(raw, folder.name))
    files = _text_files(folder)
    config = _with_tokenizers_end(config, files)
    return Checkpoint(
        config,
        reading.read,
        files,
        reading.kind,
        reading.blocks,
        reading.bytes_of,
        reading.rows,
    )


def _with_tokenizers_end(config: ModelConfig, files: Mapping[str, str]) -> ModelConfig:
    """Add the tokenizer's own end of sequence to those that the model's files name."""
    eos = json.loads(files[TOKENIZER_CONFIG_FILE])["eos_token"]
    id = None if eos is None else id_of(eos, files[TOKENIZER_FILE])
    if id is None or id in config.eos_token_ids:
        return config
    return replace(config, eos_token_ids=(*config.eos_token_ids, id))


class _TensorReader:
    """Finds tensors by our names, and unpacks what is quantised; one matrix of it is kept."""

    def __init__(
        self, folder: Path, config: ModelConfig, quantisation: Quantisation | None
    ) -> None:
        self._stored = StoredTensors(folder)
        self._packed: dict[str, Packed] = {}
        if quantisation is not None:
            unpacker = Unpacker(self._stored, quantisation)
            stems = {s.name: hf_name(s.name).removesuffix(".weight") for s in config.tensors()}
            found = {name: unpacker.find(stem) for name, stem in stems.items()}
            self._packed = {name: packed for name, packed in found.items() if packed is not None}
        self._check(folder, config)
        self._kept: tuple[str, np.ndarray] = ("", np.empty(0))

    def _check(self, folder: Path, config: ModelConfig) -> None:
        """Hold all headers against the config; the parts of a packed matrix stand for it.

        Raises:
            ModelError: a tensor is missing, of another shape, or of a type that is not read.
        """
        parts_begin = tuple(hf_name(name).removesuffix("weight") for name in self._packed)
        plain = [
            key
            for key in self._stored
            if not _BUFFERS.search(key) and not (key == _HEAD and config.tied_embeddings)
            if key.endswith(".bias") or not key.startswith(parts_begin)
        ]
        packed = {hf_name(name): (p.rows, p.columns) for name, p in self._packed.items()}
        shapes = {key: self._stored.shape(key) for key in plain} | packed
        check_shapes(config, shapes, hf_name, str(folder))
        for key in plain:
            if (kind := self._stored.kind(key)) not in _KINDS:
                raise ModelError(f"{folder}: {key} is stored as {kind}, which is not supported")

    def read(self, name: str) -> torch.Tensor:
        if name in self._packed:
            return torch.from_numpy(self._packed[name].dense())
        return self._stored.get(hf_name(name))

    def rows(self, name: str) -> Rows:
        if packed := self._packed.get(name):
            dense = partial(self._unpacked, f"{name}, dense", packed.dense)
            shape = (packed.rows, packed.columns)
            return Rows(shape, lambda first, last: torch.from_numpy(dense()[first:last]))
        stored = self._stored.part(hf_name(name))
        return Rows(tuple(stored.get_shape()), lambda first, last: stored[first:last])

    def blocks(self, name: str) -> Blocks | None:
        """Give the levels of a quantised matrix as GGUF's blocks, where these hold them."""
        packed = self._packed.get(name)
        if packed is None or packed.blocks_kind is None:
            return None

        def unpack() -> np.ndarray:
            with named(name):
                return packed.levels().blocks()

        raw = partial(self._unpacked, f"{name}, blocks", unpack)
        shape = (packed.rows, packed.columns)
        return Blocks(shape, lambda first, last: raw()[first:last], packed.blocks_kind)

    def _unpacked(self, key: str, unpack: Callable[[], np.ndarray]) -> np.ndarray:
        """Unpack a matrix once for all its runs of rows."""
        if self._kept[0] != key:
            self._kept = (key, unpack())
        return self._kept[1]

    def kind(self, name: str) -> str:
        packed = self._packed.get(name)
        return packed.kind if packed else self._stored.kind(hf_name(name))

    def bytes_of(self, spec: TensorSpec) -> int:
        packed = self._packed.get(spec.name)
        return packed.bytes if packed else self._stored.bytes(hf_name(spec.name))


def _text_files(folder: Path) -> dict[str, str]:
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise ModelError(f"{folder}: no {TOKENIZER_FILE} (other tokenizer files are not supported)")
    config_path = folder / TOKENIZER_CONFIG_FILE
    config = read_json(config_path) if config_path.is_file() else {}
    if (folder / SPECIAL_TOKENS_FILE).is_file():  # older than the config; what both say, that says
        config = {**read_json(folder / SPECIAL_TOKENS_FILE), **config}
    described = tokenizer_config(bos=_text(config, "bos_token"), eos=_text(config, "eos_token"))
    files = {
        TOKENIZER_FILE: path.read_text("utf-8"),
        TOKENIZER_CONFIG_FILE: to_json(described),
    }
    template = _template(folder, config)
    return files | ({TEMPLATE_FILE: template} if template else {})


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    if (folder / TEMPLATE_FILE).is_file():
        return (folder / TEMPLATE_FILE).read_text("utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several by name; the plain one is called default
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    return template


def _text(config: dict[str, Any], key: str) -> str | None:
    """Give a special token's text; some files hold it as an object with flags."""
    token = config.get(key)
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
