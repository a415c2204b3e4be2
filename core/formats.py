"""How numbers are stored, and what computes with them. No sizes are computed here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class WeightFormat(StrEnum):
    """What `--weights` may ask for. The last three need the native kernels."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"
    INT4 = "int4"
    NATIVE = "native"  # each matrix as its checkpoint has it, where we have that format


class Backend(StrEnum):
    """What computes a step."""

    AUTO = "auto"  # the native kernels where they are compiled and run the model, else torch
    NATIVE = "native"
    TORCH = "torch"


class KVFormat(StrEnum):
    """How keys and values are stored. The last needs the native kernels."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"  # an fp16 scale for each token's key, and for its value, of each kv-head


class MatrixFormat(StrEnum):
    """How one matrix is stored."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"  # an fp32 scale an output feature
    INT8_G32 = "int8_g32"  # an fp16 scale for 32 input features: GGUF's Q8_0
    INT4_G32 = "int4_g32"  # an fp16 scale and minimum for 32: GGUF's Q4_1
    # GGUF's other blocks, in exactly their own bytes
    Q4_0 = "q4_0"
    Q5_0 = "q5_0"
    Q5_1 = "q5_1"
    Q4_K = "q4_k"
    Q5_K = "q5_k"
    Q6_K = "q6_k"
    IQ4_NL = "iq4_nl"
    IQ4_XS = "iq4_xs"
    MXFP4 = "mxfp4"


FILE_OWN: Final = frozenset(  # held as a file has them; nothing is quantised to these
    {
        *(MatrixFormat.Q4_0, MatrixFormat.Q5_0, MatrixFormat.Q5_1),
        *(MatrixFormat.Q4_K, MatrixFormat.Q5_K, MatrixFormat.Q6_K),
        *(MatrixFormat.IQ4_NL, MatrixFormat.IQ4_XS, MatrixFormat.MXFP4),
    }
)


@dataclass(frozen=True, slots=True)
class Storage:
    """How a model's matrices are stored; vectors are fp32 always.

    In panels, as the native kernels read them, the rows are padded to whole panels; else they lie
    one after another, as torch reads them.
    """

    matrices: MatrixFormat
    panels: bool = False
    exceptions: tuple[tuple[str, MatrixFormat], ...] = ()  # by `TensorSpec.name`

    def format_of(self, name: str) -> MatrixFormat:
        return next((kind for other, kind in self.exceptions if other == name), self.matrices)

    @property
    def formats(self) -> frozenset[MatrixFormat]:
        return frozenset({self.matrices, *(kind for _, kind in self.exceptions)})

    @property
    def usual_kv(self) -> KVFormat:
        """How keys and values are stored beside these weights where nothing is said."""
        return KVFormat.FP32 if self.formats == {MatrixFormat.FP32} else KVFormat.FP16


@dataclass(frozen=True, slots=True)
class Expansion:
    """Matrices of one of a checkpoint's types that are held in more bytes than it has them in."""

    kind: str  # as the checkpoint names it: Q4_K, BF16
    held: MatrixFormat
    file_bytes: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointBytes:
    """What a step needs of a checkpoint, in the checkpoint's own bytes."""

    step_bytes: int  # all tensors but an embedding that is only looked up
    expansions: tuple[Expansion, ...] = ()
