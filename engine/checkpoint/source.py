"""What a checkpoint is to the engine, whatever it was stored as. Nothing is read here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import torch

from core.errors import ModelError
from core.formats import FILE_OWN, MatrixFormat
from core.model import ModelConfig, TensorRole, TensorSpec
from costmodel.storage import PANEL_ROWS

TOKENIZER_FILE: Final = "tokenizer.json"
TOKENIZER_CONFIG_FILE: Final = "tokenizer_config.json"
TEMPLATE_FILE: Final = "chat_template.jinja"

KEPT_BLOCKS: Final = {  # GGUF's blocks that repack without loss, and what they become
    "Q4_1": MatrixFormat.INT4_G32,
    "Q8_0": MatrixFormat.INT8_G32,
    **{kind.name: kind for kind in sorted(FILE_OWN)},
}
_RUN_BYTES: Final = 64 * 2**20  # of fp32 that are at hand at a time while a matrix is read


@dataclass(frozen=True, slots=True)
class Rows:
    """A stored matrix whose rows are read a run at a time."""

    shape: tuple[int, ...]
    take: Callable[[int, int], torch.Tensor]  # rows [first, last), in the type they are stored in


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix as rows of quantised blocks."""

    shape: tuple[int, ...]  # in numbers
    take: Callable[[int, int], np.ndarray]  # rows [first, last): uint8 [rows, bytes]
    kind: str  # GGUF's name of the type


def row_runs(spec: TensorSpec) -> Iterator[tuple[int, int]]:
    """Cut a matrix into runs of rows, first and last: whole panels, each small as fp32."""
    rows = max(_RUN_BYTES // (4 * spec.columns) // PANEL_ROWS, 1) * PANEL_ROWS
    for first in range(0, spec.rows, rows):
        yield first, min(first + rows, spec.rows)


def _fp32(name: str) -> str:
    return "F32"


def _fp32_bytes(spec: TensorSpec) -> int:
    return 4 * spec.parameters


def _no_blocks(name: str) -> Blocks | None:
    return None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened source. Its functions take `TensorSpec.name`, or the spec itself."""

    config: ModelConfig
    # the tensor in its stored type (quantised blocks as fp32); a vector has one dimension
    read: Callable[[str], torch.Tensor]
    files: Mapping[str, str]  # texts by file name
    # the stored type, as safetensors and GGUF name it: F32, BF16, Q4_1; reads no weights
    kind: Callable[[str], str] = field(default=_fp32)
    # a matrix's own blocks; None if it has no blocks, or of a type that we do not keep
    blocks: Callable[[str], Blocks | None] = field(default=_no_blocks)
    bytes_of: Callable[[TensorSpec], int] = field(default=_fp32_bytes)  # as stored; reads nothing
    rows: Callable[[str], Rows] | None = None  # of a matrix; without it, `read` gives it whole

    def checked(self, spec: TensorSpec) -> torch.Tensor:
        """Read a tensor and compare it with the config.

        Raises:
            ModelError: another shape, or a number that is not finite.
        """
        tensor = self.read(spec.name)
        self.check_shape(spec, tuple(tensor.shape))
        return _finite(spec, tensor)

    def checked_runs(self, spec: TensorSpec) -> Iterator[torch.Tensor]:
        """Read a matrix by `row_runs`, and compare it with the config.

        Raises:
            ModelError: another shape, or a number that is not finite.
        """
        if self.rows is None:
            tensor = self.read(spec.name)
            rows = Rows(tuple(tensor.shape), lambda first, last: tensor[first:last])
        else:
            rows = self.rows(spec.name)
        self.check_shape(spec, rows.shape)
        for first, last in row_runs(spec):
            yield _finite(spec, rows.take(first, last))

    @staticmethod
    def check_shape(spec: TensorSpec, found: tuple[int, ...]) -> None:
        """Hold a stored shape against the config's.

        Raises:
            ModelError: it is another.
        """
        vector = spec.role is TensorRole.VECTOR
        shape = (spec.columns,) if vector else (spec.rows, spec.columns)
        if found != shape:
            raise ModelError(f"{spec.name}: shape {found}, the config says {shape}")


def _finite(spec: TensorSpec, tensor: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(tensor).all():
        raise ModelError(f"{spec.name}: holds NaN or infinity")
    return tensor


@dataclass(frozen=True, slots=True)
class Source:
    """A place that holds a checkpoint."""

    name: str
    identity: str  # names the place
    fingerprint: str  # of what lies there now: when it changes, a converted copy is stale
    open: Callable[[], Checkpoint]


def fingerprint(files: list[Path]) -> str:
    """Describe files by name, size and time of change. Cost: one stat a file."""
    stats = [(path.name, path.stat()) for path in sorted(files)]
    return " ".join(f"{name}:{stat.st_size}:{stat.st_mtime_ns}" for name, stat in stats)
