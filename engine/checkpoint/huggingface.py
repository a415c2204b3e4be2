"""Reads a Hugging Face directory: config.json, safetensors (one file or sharded), tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from core.errors import ModelError
from core.model import ModelConfig, TensorSpec
from engine.checkpoint.hf_config import read_config
from engine.checkpoint.source import (
    TEMPLATE_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    Checkpoint,
    Source,
    fingerprint,
)
from engine.checkpoint.tokenizer import to_json, tokenizer_config
from engine.checkpoint.vocabulary import id_of
from engine.headers.checks import check_shapes
from engine.headers.regular_file import require_file

INDEX_FILE: Final = "model.safetensors.index.json"
SPECIAL_TOKENS_FILE: Final = "special_tokens_map.json"
WEIGHTS_FILE: Final = "model.safetensors"
_PLAIN_FILE: Final = re.compile(r"[^/\\]+\.safetensors")
_BUFFERS: Final = re.compile(r"rotary_emb\.inv_freq$")  # older files hold it; the config says it
_HEAD: Final = "lm_head.weight"  # files of tied models may hold the embedding a second time
_KINDS: Final = ("F64", "F32", "F16", "BF16")
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
        ModelError: it holds no config.json or no safetensors, or its index names a missing file.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: no config.json in this directory")
    shards = _shards(folder)
    texts = [p for p in folder.iterdir() if p.suffix in (".json", ".jinja") and p.is_file()]
    return Source(folder.name, str(folder), fingerprint(texts + shards), lambda: _open(folder))


def _open(folder: Path) -> Checkpoint:
    generation = folder / "generation_config.json"
    config = read_config(
        read_json(folder / "config.json"),
        read_json(generation) if generation.is_file() else {},
        folder.name,
    )
    reading = _TensorReader(folder, config)
    files = _text_files(folder)
    config = _with_tokenizers_end(config, files)
    return Checkpoint(config, reading.read, files, reading.kind, bytes_of=reading.bytes_of)


def _with_tokenizers_end(config: ModelConfig, files: Mapping[str, str]) -> ModelConfig:
    """Add the tokenizer's own end of sequence to those that the model's files name."""
    eos = json.loads(files[TOKENIZER_CONFIG_FILE])["eos_token"]
    id = None if eos is None else id_of(eos, files[TOKENIZER_FILE])
    if id is None or id in config.eos_token_ids:
        return config
    return replace(config, eos_token_ids=(*config.eos_token_ids, id))


def _shards(folder: Path) -> list[Path]:
    """Find the files with the weights: those that the index names, or else the one file.

    Other *.safetensors beside them are not the model's, and are never opened.
    """
    if (folder / INDEX_FILE).is_file():
        paths = [folder / name for name in named_by(read_json(folder / INDEX_FILE), folder)]
    elif (folder / WEIGHTS_FILE).is_file():
        paths = [folder / WEIGHTS_FILE]
    else:
        paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelError(f"{folder}: no *.safetensors in this directory (other formats: convert)")
    for path in paths:
        require_file(path)
    return paths


def named_by(index: Mapping[str, Any], where: object) -> list[str]:
    """List the files that an index names, each once.

    Raises:
        ModelError: it is no index, or names a file outside the directory.
    """
    names = index.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError(f"{where}: {INDEX_FILE} has no weight_map")
    for name in names.values():
        if not isinstance(name, str) or not _PLAIN_FILE.fullmatch(name):
            raise ModelError(f"{where}: {INDEX_FILE} names {name!r}, no file of this directory")
    return sorted(set(names.values()))


class _TensorReader:
    """Opens each safetensors file once, memory-mapped, and finds tensors by our names."""

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._file_of: dict[str, Any] = {}
        for path in _shards(folder):
            try:
                opened = safe_open(path, framework="pt")
            except (SafetensorError, OSError, ValueError) as error:
                raise ModelError(f"{path}: not a readable safetensors file ({error})") from error
            if twice := self._file_of.keys() & set(opened.keys()):
                raise ModelError(f"{path}: tensor {min(twice)!r} is in another file, too")
            self._file_of |= dict.fromkeys(opened.keys(), opened)
        slices = {key: file.get_slice(key) for key, file in self._file_of.items()}
        shapes = {
            key: tuple(found.get_shape())
            for key, found in slices.items()
            if not _BUFFERS.search(key) and not (key == _HEAD and config.tied_embeddings)
        }
        check_shapes(config, shapes, hf_name, str(folder))
        for key in shapes:
            if (kind := slices[key].get_dtype()) not in _KINDS:
                raise ModelError(f"{folder}: {key} is stored as {kind}, which is not supported")

    def read(self, name: str) -> torch.Tensor:
        stored = hf_name(name)
        tensor: torch.Tensor = self._file_of[stored].get_tensor(stored)
        return tensor

    def kind(self, name: str) -> str:
        stored = hf_name(name)
        return str(self._file_of[stored].get_slice(stored).get_dtype())

    def bytes_of(self, spec: TensorSpec) -> int:
        """Size a tensor by its type's name: BF16 has 16 bits, F8_E4M3 has 8, BOOL a byte."""
        bits = _BITS.search(self.kind(spec.name))
        return spec.parameters * (int(bits[0]) if bits else 8) // 8


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


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises `ModelError` if the file holds none."""
    require_file(path)
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: not a JSON object")
    return value
