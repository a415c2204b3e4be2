"""Finds and joins the parts of a GGUF file that was split. No weights are read here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from core.errors import ModelError
from engine.headers.gguf_header import GgufFile, GgufTensor, read_file

# Source: llama.cpp's `llama_split_path`
_PART: Final = re.compile(r"(?P<base>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def parts_of(path: Path) -> list[Path]:
    """List all parts in order, whichever of them `path` is; a whole file is its only part.

    Raises:
        ModelError: a part is missing; the message names it.
    """
    named = _PART.fullmatch(path.name)
    if named is None:
        return [path]
    number, count = int(named["number"]), int(named["count"])
    if not 1 <= number <= count:
        raise ModelError(f"{path}: there is no part {number} of {count}")
    parts = []
    for i in range(1, count + 1):
        part = path.with_name(f"{named['base']}-{i:05}-of-{count:05}.gguf")
        if not part.exists():
            raise ModelError(f"{part}: this part is missing, of the {count} parts of {path}")
        parts.append(part)
    return parts


def base_name(path: Path) -> str:
    named = _PART.fullmatch(path.name)
    return named["base"] if named else path.stem


def read_parts(parts: list[Path]) -> GgufFile:
    """Read the tables of all parts as one; the metadata are those of the first.

    Raises:
        ModelError: a part is broken, is not what its name says, or tensors are there twice or lack.
    """
    files = [read_file(part) for part in parts]
    tensors: dict[str, GgufTensor] = {}
    for number, (part, file) in enumerate(zip(parts, files, strict=True)):
        said = (file.metadata.get("split.no", 0), file.metadata.get("split.count", 1) or 1)
        if said != (number, len(parts)):
            raise ModelError(
                f"{part}: by its split.no and split.count it is part {said[0]} of {said[1]} "
                f"(counted from 0), by its name part {number} of {len(parts)}"
            )
        if twice := tensors.keys() & file.tensors.keys():
            raise ModelError(f"{part}: tensor {min(twice)!r} is in an earlier part, too")
        tensors |= file.tensors
    total = files[0].metadata.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise ModelError(f"{parts[0]}: the parts hold {len(tensors)} tensors, not {total}")
    return GgufFile(files[0].metadata, tensors)
