"""Reads the table at the head of a GGUF file: metadata and where each tensor lies. No weights.

Every count and length is held against the bytes that are left before anything is made of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from core.errors import ModelError
from engine.headers.regular_file import require_file

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)  # 1 had shorter lengths, and no file of it is in use
_MOST_ITEMS: Final = 2**24  # of an array; the longest in use, merges, has half a million
_MOST_DIMENSIONS: Final = 4  # Source: GGML_MAX_DIMS
_SCALARS: Final = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor in a mapped file."""

    name: str
    shape: tuple[int, ...]  # the outer dimension first, as everywhere but in the file
    tensor_type: GGMLQuantizationType
    data: np.ndarray  # [rows, bytes of a row] uint8; [bytes] of a vector

    @property
    def n_bytes(self) -> int:
        return int(self.data.nbytes)


@dataclass(frozen=True, slots=True)
class GgufFile:
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]


def read_file(path: Path) -> GgufFile:
    """Map a file and read its table. Cost: the table's bytes; weights stay on the disk.

    Raises:
        ModelError: it is no GGUF file, or it says of itself what its bytes do not hold.
    """
    require_file(path)
    try:
        if path.stat().st_size < len(_MAGIC):
            raise _Broken("it is empty or too short")
        return _Table(np.memmap(path, mode="r")).read()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (_Broken, ValueError) as error:
        raise ModelError(f"{path}: not a readable GGUF file ({error})") from error


class _Broken(Exception):
    """What is wrong with the file; the caller knows its name."""


class _Table:
    def __init__(self, data: np.ndarray) -> None:
        self._data, self._at, self._size = data, 0, len(data)

    def read(self) -> GgufFile:
        if self._take(4, "its magic") != _MAGIC:
            raise _Broken("it does not begin with GGUF")
        version = self._number("<I")
        if version not in _VERSIONS:
            big_endian = version and version & 0xFFFF == 0
            raise _Broken("it is big-endian" if big_endian else f"version {version} is not known")
        tensors, entries = self._number("<Q"), self._number("<Q")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._text("a key")
            if key in metadata:
                raise _Broken(f"key {key!r} is there twice")
            metadata[key] = self._value(key)
        places: dict[str, tuple[tuple[int, ...], GGMLQuantizationType, int]] = {}
        for _ in range(tensors):
            name = self._text("a tensor's name")
            if name in places:
                raise _Broken(f"tensor {name!r} is there twice")
            places[name] = self._place(name)
        return GgufFile(metadata, self._tensors(places, _alignment(metadata)))

    def _take(self, count: int, what: str) -> bytes:
        if count > self._size - self._at:
            left = self._size - self._at
            raise _Broken(f"{what} would have {count} bytes, and {left} are left in the file")
        taken = self._data[self._at : self._at + count].tobytes()
        self._at += count
        return taken

    def _number(self, layout: str) -> int:
        return int(struct.unpack(layout, self._take(struct.calcsize(layout), "a number"))[0])

    def _text(self, what: str) -> str:
        return self._take(self._number("<Q"), what).decode("utf-8")

    def _value(self, key: str) -> Any:
        kind = GGUFValueType(self._number("<I"))
        if kind is GGUFValueType.STRING:
            return self._text(key)
        if kind is not GGUFValueType.ARRAY:
            return self._items(key, kind, 1)[0]
        kind, count = GGUFValueType(self._number("<I")), self._number("<Q")
        smallest = 8 if kind is GGUFValueType.STRING else 1
        if count > _MOST_ITEMS or count * smallest > self._size - self._at:
            raise _Broken(f"{key} would have {count} items, more than a file of {self._size} bytes")
        if kind is GGUFValueType.STRING:
            return [self._text(key) for _ in range(count)]
        return self._items(key, kind, count)

    def _items(self, key: str, kind: GGUFValueType, count: int) -> list[Any]:
        if kind not in _SCALARS:
            raise _Broken(f"{key} holds arrays in an array")
        dtype = np.dtype(_SCALARS[kind])
        items: list[Any] = np.frombuffer(self._take(count * dtype.itemsize, key), dtype).tolist()
        return items

    def _place(self, name: str) -> tuple[tuple[int, ...], GGMLQuantizationType, int]:
        count = self._number("<I")
        if not 1 <= count <= _MOST_DIMENSIONS:
            raise _Broken(f"tensor {name!r} has {count} dimensions")
        shape = tuple(self._number("<Q") for _ in range(count))
        return shape, GGMLQuantizationType(self._number("<I")), self._number("<Q")

    def _tensors(
        self,
        places: Mapping[str, tuple[tuple[int, ...], GGMLQuantizationType, int]],
        alignment: int,
    ) -> dict[str, GgufTensor]:
        start = -(-self._at // alignment) * alignment
        tensors, end_of_last, last = {}, start, ""
        for name, (shape, kind, offset) in sorted(places.items(), key=lambda item: item[1][2]):
            columns, rows = shape[0], math.prod(shape[1:])  # the inner dimension comes first
            block, block_bytes = GGML_QUANT_SIZES[kind]
            if not columns or not rows or columns % block:
                raise _Broken(f"tensor {name!r} has shape {shape}, in blocks of {block}")
            row_bytes = columns // block * block_bytes
            begin, end = start + offset, start + offset + rows * row_bytes
            if end > self._size:
                short = end - self._size
                raise _Broken(f"tensor {name!r} ends {short} bytes behind the end of the file")
            if offset % alignment or begin < end_of_last:
                raise _Broken(f"tensor {name!r} lies within {last!r}, or between two places")
            end_of_last, last = end, name
            data = self._data[begin:end].reshape(*shape[:0:-1], row_bytes)
            tensors[name] = GgufTensor(name, shape[::-1], kind, data)
        return tensors


def _alignment(metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise _Broken(f"general.alignment is {alignment!r}, and no power of two")
    return alignment
