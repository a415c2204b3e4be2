"""Says that a checkpoint is held in more bytes than it has: what it costs, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from core.formats import FILE_OWN, Backend, Expansion, MatrixFormat, WeightFormat
from core.inputs.quantities import scaled
from core.wire import Ready
from costmodel.copies import LargerCopy, larger_copy, uniform_step_bytes

_PLAIN: Final = frozenset({"F64", "F32", "F16", "BF16"})  # any other type is a GGUF block's
_OWN_BLOCKS: Final = frozenset({"Q4_1", "Q8_0", *(kind.name for kind in FILE_OWN)})
_OWN_BYTES: Final = _OWN_BLOCKS | {"F16", "BF16"}  # `--weights native` has them
_UNIFORM: Final = {
    WeightFormat.FP16: MatrixFormat.FP16,
    WeightFormat.INT8: MatrixFormat.INT8,
    WeightFormat.INT4: MatrixFormat.INT4_G32,
}


def copy_warning(ready: Ready) -> list[str]:
    """Write the warning in lines; none where the checkpoint is held in no more than its bytes."""
    copy = larger_copy(ready)
    if copy is None:
        return []
    ratio = copy.held_bytes / copy.file_bytes
    return [
        f"this checkpoint is held in {ratio:.2f} times its own bytes: a step needs "
        f"{_bytes(copy.file_bytes)} of it, and reads {_bytes(copy.held_bytes)}",
        f"floor per token at batch 1: {_ms(copy.file_floor_s)} for the checkpoint's bytes, "
        f"{_ms(copy.held_floor_s)} for those held; efficiency is told against the latter",
        "expanded: " + "; ".join(map(_expansion, copy.checkpoint.expansions)),
        "what helps: " + "; ".join(_advice(ready, copy)),
    ]


def _expansion(one: Expansion) -> str:
    return f"{one.kind} held as {one.held}, {_bytes(one.file_bytes)} as {_bytes(one.held_bytes)}"


def _advice(ready: Ready, copy: LargerCopy) -> Iterator[str]:
    kinds = {one.kind for one in copy.checkpoint.expansions}
    native = ready.backend != Backend.TORCH
    if native and ready.weights is not WeightFormat.NATIVE and kinds & _OWN_BYTES:
        shown = ", ".join(sorted(kinds & _OWN_BYTES))
        yield f"--weights native, which holds {shown} in its own bytes"
    for asked, kind in _UNIFORM.items():
        if asked is ready.weights or (not native and asked is not WeightFormat.FP16):
            continue
        if asked is WeightFormat.FP16 and ready.weights is WeightFormat.NATIVE and "BF16" in kinds:
            continue  # held in fp32 because fp16 lacks the range
        size = uniform_step_bytes(ready.model, kind, panels=native)
        if size < copy.held_bytes:
            range_too = ", if fp16 has their range" * (asked is WeightFormat.FP16)
            reads = f"which reads {_bytes(size)} and rounds the numbers anew"
            yield f"--weights {asked}, {reads}{range_too}"
    if not native:
        yield "the native backend, which holds F16 and blocks such as Q4_K as they are"
    if native and kinds - _PLAIN - _OWN_BLOCKS:
        yield "a file in Q4_K_M, or in IQ4_XS where it must be small: held in their own bytes"


def _ms(floor_s: float | None) -> str:
    return "unknown" if floor_s is None else f"{floor_s * 1e3:.3g} ms"


def _bytes(size: int) -> str:
    return f"{scaled(size)}B"
