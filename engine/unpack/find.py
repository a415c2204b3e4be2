"""Finds the parts of a quantised matrix among a checkpoint's tensors.

Sources: the formats that AutoGPTQ, AutoAWQ, compressed-tensors, DeepSeek-V3 and bitsandbytes write.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from core.errors import ModelError
from engine.unpack import floats, integers
from engine.unpack.matrix import BLOCK_COLUMNS, Array, Levels, Packed
from engine.unpack.method import Method, Quantisation

_FLOAT8 = "F8_E4M3"

Grouped = tuple[Array, Array, Array]  # values [N, K], zeros and scales [N, G]


@contextmanager
def named(tensor: str) -> Iterator[None]:
    """Say which tensor it was that did not fit."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{tensor}: {error}") from None


class Tensors(Protocol):
    """A checkpoint's tensors by the names in its files."""

    def __contains__(self, name: str) -> bool: ...
    def get(self, name: str) -> torch.Tensor: ...
    def kind(self, name: str) -> str: ...
    def shape(self, name: str) -> Sequence[int]: ...
    def bytes(self, name: str) -> int: ...


@dataclass(frozen=True, slots=True)
class Unpacker:
    """Unpacks the matrices of one checkpoint. Which are packed is told by the tensors there are."""

    tensors: Tensors
    quantisation: Quantisation

    def find(self, stem: str) -> Packed | None:
        """Describe the matrix `stem`; None where it is stored plainly.

        Raises:
            ModelError: a part is missing, or the parts do not fit each other.
        """
        method = self.quantisation.method
        if f"{stem}.qweight" in self.tensors:
            return self._words(stem)
        if f"{stem}.weight_packed" in self.tensors:
            return self._compressed(stem)
        if f"{stem}.weight" not in self.tensors:
            return None
        kind = self.tensors.kind(f"{stem}.weight")
        if kind == _FLOAT8 or (kind == "I8" and method is Method.COMPRESSED_TENSORS):
            return self._bytes(stem, kind)
        if f"{stem}.weight.absmax" in self.tensors:
            return self._codes(stem)
        return None

    def _words(self, stem: str) -> Packed:
        """Describe a matrix of GPTQ or AWQ."""
        parts = [f"{stem}.{part}" for part in ("qweight", "qzeros", "scales")]
        self._need(parts)
        wide, many = self.tensors.shape(parts[0]), 32 // self.quantisation.bits
        awq = self.quantisation.method is Method.AWQ
        columns, rows = (wide[0], wide[1] * many) if awq else (wide[0] * many, wide[1])
        groups, height = self.tensors.shape(parts[2])
        self._fits(stem, rows, columns, height, groups)

        def unpack() -> Grouped:
            told = self.quantisation
            words, zero_words, scales = (self._numbers(part) for part in parts)
            if awq:
                values, zeros = integers.awq(words, zero_words)
            else:
                less_one = told.zero_is_stored_less_one
                values, zeros = integers.gptq(words, zero_words, told.bits, less_one)
            return values, zeros, np.ascontiguousarray(scales.T)

        middle = self.quantisation.bits == 4 or self._all_alike(parts[1])
        return self._integers((rows, columns), groups, parts, f"{stem}.g_idx", unpack, middle)

    def _compressed(self, stem: str) -> Packed:
        """Describe a matrix of packed integers of compressed-tensors."""
        parts = [f"{stem}.{part}" for part in ("weight_packed", "weight_scale", "weight_shape")]
        self._need(parts)
        rows, columns = (int(size) for size in self._numbers(parts[2]))
        height, groups = self.tensors.shape(parts[1])
        self._fits(stem, rows, columns, height, groups)
        bits, zeros = self.quantisation.bits, f"{stem}.weight_zero_point"

        def unpack() -> Grouped:
            scales = self._numbers(parts[1])
            zero_words = self._numbers(zeros) if zeros in self.tensors else None
            values = integers.fields(self._numbers(parts[0]), bits)[:, :columns]
            return values, integers.compressed_zeros(zero_words, bits, scales.shape), scales

        everything = [*parts, zeros] if zeros in self.tensors else parts
        middle = bits == 4 or zeros not in self.tensors
        order = f"{stem}.weight_g_idx"
        return self._integers((rows, columns), groups, everything, order, unpack, middle)

    def _integers(
        self,
        shape: tuple[int, int],
        groups: int,
        parts: Sequence[str],
        order: str,
        unpack: Callable[[], Grouped],
        middle: bool,  # whether zeros are those that blocks can say
    ) -> Packed:
        (rows, columns), bits = shape, self.quantisation.bits
        group = columns // groups
        group_of = None  # of each column, where they are not in order
        if order in self.tensors:
            told = self._numbers(order)
            if not np.array_equal(told, np.arange(columns) // group):
                group_of = told
        whole = columns % BLOCK_COLUMNS == group % BLOCK_COLUMNS == 0
        blocks = {4: "Q4_1", 8: "Q8_0"}[bits] if whole and middle and group_of is None else None
        return Packed(
            f"{self.quantisation.method} {bits}-bit",
            rows,
            columns,
            sum(map(self.tensors.bytes, parts)),
            lambda: integers.dense(*unpack(), group_of),
            lambda: integers.levels_of(*unpack(), bits),
            blocks,
        )

    def _bytes(self, stem: str, kind: str) -> Packed:
        """Describe a matrix of 8-bit floats or of plain int8, with its scales."""
        name = f"{stem}.weight"
        found = [n for n in (f"{name}_scale_inv", f"{name}_scale") if n in self.tensors]
        if not found:
            raise ModelError(f"{name}: 8-bit weights without {stem}.weight_scale")
        rows, columns = self.tensors.shape(name)
        zeros = f"{stem}.weight_zero_point"
        if zeros in self.tensors and self._numbers(zeros).any():
            raise ModelError(f"{zeros}: int8 weights with a zero point are not supported")

        def dense() -> Array:
            weights, scales = self._numbers(name).astype(np.float32), self._numbers(found[0])
            with named(name):
                return floats.scaled(weights, scales, self.quantisation.block)

        def levels() -> Levels:
            scales = np.broadcast_to(self._numbers(found[0]).reshape(-1, 1), (rows, 1))
            return Levels(self._numbers(name), np.ascontiguousarray(scales), None, columns)

        by_row = math.prod(self.tensors.shape(found[0])) in (1, rows)
        whole = columns % BLOCK_COLUMNS == 0 and kind == "I8" and by_row
        size = self.tensors.bytes(name) + self.tensors.bytes(found[0])
        told = "FP8" if kind == _FLOAT8 else "int8"
        return Packed(told, rows, columns, size, dense, levels, "Q8_0" if whole else None)

    def _codes(self, stem: str) -> Packed:
        """Describe a matrix of bitsandbytes' NF4 or FP4 codes."""
        name = f"{stem}.weight"
        states = [f"{name}.quant_state.bitsandbytes__{kind}" for kind in ("nf4", "fp4")]
        state = states[0] if states[0] in self.tensors else states[1]
        parts = [name, f"{name}.absmax", f"{name}.quant_map", state]
        outer = [f"{name}.nested_absmax", f"{name}.nested_quant_map"]
        nested = outer[0] in self.tensors
        self._need(parts + (outer if nested else []))
        try:
            told = json.loads(self._numbers(state).tobytes())
            rows, columns = (int(size) for size in told["shape"])
            block = int(told["blocksize"])
            inner = (
                (int(told["nested_blocksize"]), float(told["nested_offset"])) if nested else None
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ModelError(f"{state} does not describe codes ({error})") from error

        def dense() -> Array:
            packed, absmax, table = (self._numbers(part) for part in parts[:3])
            if inner:
                scales, absmax_table = (self._numbers(part) for part in outer)
                absmax = floats.nested(absmax, absmax_table, scales, *inner)
            with named(name):
                return floats.codes(packed, table, absmax, block, (rows, columns))

        def levels() -> Levels:
            raise AssertionError("codes are no levels")

        size = sum(map(self.tensors.bytes, parts + (outer if nested else [])))
        return Packed(state[-3:].upper(), rows, columns, size, dense, levels)

    def _all_alike(self, name: str) -> bool:
        """Whether 8-bit zeros are all the middle."""
        middle = 127 if self.quantisation.zero_is_stored_less_one else 128
        return bool((integers.fields(self._numbers(name), 8) == middle).all())

    def _need(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.tensors:
                raise ModelError(f"{name} is missing beside the other parts of its matrix")

    def _fits(self, stem: str, rows: int, columns: int, height: int, groups: int) -> None:
        if height != rows or not groups or columns % groups:
            raise ModelError(
                f"{stem}: scales [{height}, {groups}] do not fit a matrix [{rows}, {columns}]"
            )

    def _numbers(self, name: str) -> Array:
        tensor = self.tensors.get(name)
        if tensor.is_floating_point():
            tensor = tensor.float()
        return tensor.numpy()
