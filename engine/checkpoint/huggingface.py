"""Reads a Hugging Face directory: config.json, safetensors (one file or sharded), tokenizer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

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
from engine.checkpoint.tokenizer import to_json, tokenizer_config
from engine.unpack.find import Unpacker, named
from engine.unpack.matrix import Packed
from engine.unpack.method import Quantisation, read_quantisation

_BITS: Final = re.compile(r"\d+")
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
        ModelError: it holds no config.json or no safetensors.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: no config.json in this directory")
    if not list(folder.glob("*.safetensors")):
        raise ModelError(f"{folder}: no *.safetensors in this directory (other formats: convert)")
    files = [p for p in folder.iterdir() if p.suffix in (".json", ".safetensors", ".jinja")]
    return Source(folder.name, str(folder), fingerprint(files), lambda: _open(folder))


def _open(folder: Path) -> Checkpoint:
    generation = folder / "generation_config.json"
    raw = _read_json(folder / "config.json")
    told = _read_json(generation) if generation.is_file() else {}
    config = read_config(raw, told, folder.name)
    quantisation = read_quantisation(raw, folder.name)
    reading = _TensorReader(folder, config, quantisation)
    files = _text_files(folder)
    return Checkpoint(
        config,
        reading.read,
        files,
        reading.kind,
        reading.blocks,
        reading.bytes_of,
        reading.rows,
    )


class _Files:
    """Implements `Tensors`: opens each safetensors file once, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        self._file_of: dict[str, Any] = {}
        try:
            for path in sorted(folder.glob("*.safetensors")):
                opened = safe_open(path, framework="pt")
                self._file_of |= dict.fromkeys(opened.keys(), opened)
        except SafetensorError as error:
            raise ModelError(f"{path}: not a readable safetensors file ({error})") from error

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def get(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._file_of[name].get_tensor(name)
        return tensor

    def part(self, name: str) -> Any:
        """Give what is sliced by rows, and knows its shape and type."""
        return self._file_of[name].get_slice(name)

    def kind(self, name: str) -> str:
        return str(self.part(name).get_dtype())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.part(name).get_shape())

    def bytes(self, name: str) -> int:
        """Size a tensor by its type's name: BF16 has 16 bits, F8_E4M3 has 8, BOOL a byte."""
        bits = _BITS.search(self.kind(name))
        return math.prod(self.shape(name)) * (int(bits[0]) if bits else 8) // 8


class _TensorReader:
    """Finds tensors by our names, and unpacks what is quantised; one matrix of it is kept."""

    def __init__(
        self, folder: Path, config: ModelConfig, quantisation: Quantisation | None
    ) -> None:
        self._files = _Files(folder)
        self._packed: dict[str, Packed] = {}
        if quantisation is not None:
            unpacker = Unpacker(self._files, quantisation)
            stems = {s.name: hf_name(s.name).removesuffix(".weight") for s in config.tensors()}
            found = {name: unpacker.find(stem) for name, stem in stems.items()}
            self._packed = {name: packed for name, packed in found.items() if packed is not None}
        missing = [
            spec.name
            for spec in config.tensors()
            if spec.name not in self._packed and hf_name(spec.name) not in self._files
        ]
        if missing:
            raise ModelError(f"{folder}: {len(missing)} tensors are missing, first {missing[0]}")
        self._kept: tuple[str, np.ndarray] = ("", np.empty(0))

    def read(self, name: str) -> torch.Tensor:
        if name in self._packed:
            return torch.from_numpy(self._packed[name].dense())
        return self._files.get(hf_name(name))

    def rows(self, name: str) -> Rows:
        if packed := self._packed.get(name):
            dense = partial(self._unpacked, f"{name}, dense", packed.dense)
            shape = (packed.rows, packed.columns)
            return Rows(shape, lambda first, last: torch.from_numpy(dense()[first:last]))
        stored = self._files.part(hf_name(name))
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
        return packed.kind if packed else self._files.kind(hf_name(name))

    def bytes_of(self, spec: TensorSpec) -> int:
        packed = self._packed.get(spec.name)
        return packed.bytes if packed else self._files.bytes(hf_name(spec.name))


def _text_files(folder: Path) -> dict[str, str]:
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise ModelError(f"{folder}: no {TOKENIZER_FILE} (other tokenizer files are not supported)")
    config_path = folder / TOKENIZER_CONFIG_FILE
    config = _read_json(config_path) if config_path.is_file() else {}
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
    return token["content"] if isinstance(token, dict) else token


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ModelError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: not a JSON object")
    return value
