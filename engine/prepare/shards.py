"""Writes tensors of known sizes into safetensors files, a run of rows at a time.

Holds no tensor: what is at hand is one run. What a tensor's bytes mean is the packer's affair.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from core.formats import MatrixFormat, Storage
from core.inputs.quantities import scaled
from core.model import TensorRole, TensorSpec
from costmodel.storage import tensor_bytes

SHARD_BYTES: Final = 2**30
_SAY_EVERY_S: Final = 5.0
_ROWS: Final = {MatrixFormat.FP32: "F32", MatrixFormat.FP16: "F16"}


class WriteProgress:
    """Says how many bytes are written, how fast, and for how long still; at most every 5 s."""

    def __init__(
        self, total: int, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._say, self._now = total, say, now
        self._written, self._began = 0, now()
        self._told = self._began

    def wrote(self, size: int) -> None:
        self._written += size
        now, whole = self._now(), self._written == self._total
        if now - self._told < _SAY_EVERY_S and not whole:
            return
        self._told = now
        per_s = self._written / max(now - self._began, 1e-9)
        left = "" if whole else f", {(self._total - self._written) / per_s:,.0f} s left"
        shown = f"{scaled(self._written)}B of {scaled(self._total)}B"
        self._say(f"prepared {shown} ({self._written / self._total:.0%}), {scaled(per_s)}B/s{left}")


def shards(specs: Iterable[TensorSpec], storage: Storage) -> Iterator[list[TensorSpec]]:
    """Group tensors, in their order, into files of about `SHARD_BYTES`."""
    shard: list[TensorSpec] = []
    size = 0
    for spec in specs:
        shard.append(spec)
        size += tensor_bytes(spec, storage)
        if size >= SHARD_BYTES:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard


def write_shard(
    path: Path,
    specs: Sequence[TensorSpec],
    storage: Storage,
    runs: Callable[[TensorSpec], Iterable[np.ndarray]],
    wrote: Callable[[int], None],
) -> None:
    """Write one file: its header, then each tensor's runs, one after the other.

    Source: the safetensors format: the header's length in 8 bytes, the header in JSON, the bytes.
    """
    header, end = {}, 0
    aligned = sorted(specs, key=lambda spec: _TYPES_IN_ORDER.index(_described(spec, storage)[0]))
    for spec in aligned:
        dtype, shape = _described(spec, storage)
        begin, end = end, end + tensor_bytes(spec, storage)
        header[spec.name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for spec in aligned:
            begin = file.tell()
            for run in runs(spec):
                file.write(np.ascontiguousarray(run).reshape(-1).view(np.uint8).data)
                wrote(run.nbytes)
            assert file.tell() - begin == tensor_bytes(spec, storage), "a size is not as planned"


_TYPES_IN_ORDER: Final = ("F32", "F16", "U8")  # wide ones first: none begins at an odd address


def _described(spec: TensorSpec, storage: Storage) -> tuple[str, list[int]]:
    """Give a tensor's type and shape in the file: panels are bytes."""
    if spec.role is TensorRole.VECTOR:
        return "F32", [spec.columns]
    if storage.panels:
        return "U8", [tensor_bytes(spec, storage)]
    return _ROWS[storage.format_of(spec.name)], [spec.rows, spec.columns]
