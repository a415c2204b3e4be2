"""The safetensors files of a directory: which they are, and their tensors by stored name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from core.errors import ModelError
from engine.headers.regular_file import require_file

INDEX_FILE: Final = "model.safetensors.index.json"
WEIGHTS_FILE: Final = "model.safetensors"
_PLAIN_FILE: Final = re.compile(r"[^/\\]+\.safetensors")
_BITS: Final = re.compile(r"\d+")


def shards(folder: Path) -> list[Path]:
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


class StoredTensors:
    """Implements `Tensors`: opens each file once, memory-mapped.

    Raises:
        ModelError: a file cannot be read, or two of them hold a tensor of one name.
    """

    def __init__(self, folder: Path) -> None:
        self._file_of: dict[str, Any] = {}
        for path in shards(folder):
            try:
                opened = safe_open(path, framework="pt")
            except (SafetensorError, OSError, ValueError) as error:
                raise ModelError(f"{path}: not a readable safetensors file ({error})") from error
            if twice := self._file_of.keys() & set(opened.keys()):
                raise ModelError(f"{path}: tensor {min(twice)!r} is in another file, too")
            self._file_of |= dict.fromkeys(opened.keys(), opened)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

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
