"""Finds the parts of a quantised matrix among a checkpoint's tensors.

Sources: the formats that AutoGPTQ, AutoAWQ, compressed-tensors, DeepSeek-V3 and bitsandbytes write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch

from core.errors import ModelError
from engine.unpack import floats, integers
from engine.unpack.matrix import Array, Levels, Packed
from engine.unpack.method import Method, Quantisation

_FLOAT8 = "F8_E4M3"


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
        wide, high = self.tensors.shape(parts[0]), 32 // self.quantisation.bits
        awq = self.quantisation.method is Method.AWQ
        columns, rows = (wide[0], wide[1] * high) if awq else (wide[0] * high, wide[1])
        groups = self.tensors.shape(parts[2])
        order = f"{stem}.g_idx"
        self._fits(stem, rows, columns, groups[1], groups[0])
        return self._integers(stem, rows, columns, parts, order, partial(self._unpack_words, parts))

    def _unpack_words(self, parts: Sequence[str]) -> tuple[Array, Array, Array]:
        words, zero_words, scales = (self._numbers(part) for part in parts)
        told = self.quantisation
        if told.method is Method.AWQ:
            values, zeros = integers.awq(words, zero_words)
        else:
            values, zeros = integers.gptq(
                words, zero_words, told.bits, told.zero_is_stored_less_one
            )
        return values, zeros, np.ascontiguousarray(scales.astype(np.float32).T)

    def _compressed(self, stem: str) -> Packed:
        parts = [f"{stem}.{part}" for part in ("weight_packed", "weight_scale", "weight_shape")]
        self._need(parts)
        rows, columns = (int(size) for size in self._numbers(parts[2]))
        height, groups = self.tensors.shape(parts[1])
        self._fits(stem, rows, columns, height, groups)
        zeros = f"{stem}.weight_zero_point"
        everything = [*parts, zeros] if zeros in self.tensors else parts
        unpack = partial(self._unpack_compressed, parts, zeros, columns)
        order = f"{stem}.weight_g_idx"
        return self._integers(stem, rows, columns, everything, order, unpack)

    def _unpack_compressed(
        self, parts: Sequence[str], zeros: str, columns: int
    ) -> tuple[Array, Array, Array]:
        bits = self.quantisation.bits
        scales = self._numbers(parts[1])
        zero_words = self._numbers(zeros) if zeros in self.tensors else None
        values = integers.fields(self._numbers(parts[0]), bits)[:, :columns]
        return values, integers.compressed_zeros(zero_words, bits, scales.shape), scales

    def _integers(
        self,
        stem: str,
        rows: int,
        columns: int,
        parts: Sequence[str],
        order: str,
        unpack: Callable[[], tuple[Array, Array, Array]],
    ) -> Packed:
        bits = self.quantisation.bits

        def group_of() -> Array | None:
            """Give the group of each column where they are not in order."""
            if order not in self.tensors:
                return None
            told = self._numbers(order)
            groups = int(told.max(initial=0)) + 1
            in_order = np.arange(columns) // -(-columns // groups)
            return None if np.array_equal(told, in_order) else told

        def levels() -> Levels | None:
            return None if group_of() is not None else integers.levels_of(*unpack(), bits)

        kind = f"{self.quantisation.method} {bits}-bit"
        size = sum(map(self.tensors.bytes, parts))
        return Packed(
            kind, rows, columns, size, lambda: integers.dense(*unpack(), group_of()), levels
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
            weights = self._numbers(name).astype(np.float32)
            try:
                return floats.scaled(weights, self._numbers(found[0]), self.quantisation.block)
            except ModelError as error:
                raise ModelError(f"{name}: {error}") from None

        def levels() -> Levels | None:
            if kind == _FLOAT8:
                return None
            scales = self._numbers(found[0]).astype(np.float32).reshape(-1)
            if len(scales) not in (1, rows):
                return None
            each = np.broadcast_to(scales[:, None], (rows, 1))
            return Levels(self._numbers(name), np.ascontiguousarray(each), None, columns)

        size = self.tensors.bytes(name) + self.tensors.bytes(found[0])
        return Packed("FP8" if kind == _FLOAT8 else "int8", rows, columns, size, dense, levels)

    def _codes(self, stem: str) -> Packed:
        """Describe a matrix of bitsandbytes' NF4 or FP4 codes."""
        name = f"{stem}.weight"
        state = next(
            (
                n
                for k in ("nf4", "fp4")
                if (n := f"{name}.quant_state.bitsandbytes__{k}") in self.tensors
            ),
            None,
        )
        if state is None:
            raise ModelError(f"{name}: 4-bit codes without their quant_state")
        parts = [name, f"{name}.absmax", f"{name}.quant_map"]
        self._need(parts)
        try:
            told = json.loads(self._numbers(state).tobytes())
            rows, columns = (int(size) for size in told["shape"])
            block = int(told["blocksize"])
            nested = (
                (int(told["nested_blocksize"]), float(told["nested_offset"]))
                if (f"{name}.nested_absmax" in self.tensors)
                else None
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ModelError(f"{state}: is not a description of codes ({error})") from error
        if nested:
            outer = [f"{name}.nested_absmax", f"{name}.nested_quant_map"]
            self._need(outer)
            parts += outer

        def dense() -> Array:
            packed, absmax, table, *more = (self._numbers(part) for part in parts)
            if nested:
                absmax = floats.nested(absmax, more[1], more[0], *nested)
            try:
                return floats.codes(packed, table, absmax, block, (rows, columns))
            except ModelError as error:
                raise ModelError(f"{name}: {error}") from None

        size = sum(map(self.tensors.bytes, parts))
        return Packed(state[-3:].upper(), rows, columns, size, dense, lambda: None)

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
