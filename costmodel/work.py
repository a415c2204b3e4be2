"""The bytes and FLOPs that steps have to move, by component: counted in `costmodel/sums.py`.

Activations and logits are left out: a perfect implementation need not move them, so that what is
counted is a true lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from costmodel.slices import Slices
from costmodel.split import Ints

Count = TypeVar("Count", int, Ints)  # of one step, or a column of many


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Generic[Count]):
    """What a step moves, or each of many; what is a slice's own is kept by slice too.

    A block that several slices read is moved once, and its read split evenly among them.
    """

    weights_bytes: Count
    lm_head_bytes: Count
    embedding_bytes: Count
    kv_read_bytes: Count
    kv_read_bytes_by_slice: Sequence[int] | Ints
    kv_write_bytes: Count
    linear_flops: Count
    attention_flops: Count
    lm_head_flops: Count

    @property
    def bytes_read(self) -> Count:
        return self.weights_bytes + self.lm_head_bytes + self.embedding_bytes + self.kv_read_bytes

    @property
    def bytes_total(self) -> Count:
        return self.bytes_read + self.kv_write_bytes

    @property
    def flops(self) -> Count:
        return self.linear_flops + self.attention_flops + self.lm_head_flops


def work_of_step(work: Work[Ints], slices: Slices, step: int) -> Work[int]:
    """Take one step's numbers out of the columns."""
    begin, end = slices.first[step : step + 2]
    return Work(
        weights_bytes=int(work.weights_bytes[step]),
        lm_head_bytes=int(work.lm_head_bytes[step]),
        embedding_bytes=int(work.embedding_bytes[step]),
        kv_read_bytes=int(work.kv_read_bytes[step]),
        kv_read_bytes_by_slice=tuple(map(int, work.kv_read_bytes_by_slice[begin:end])),
        kv_write_bytes=int(work.kv_write_bytes[step]),
        linear_flops=int(work.linear_flops[step]),
        attention_flops=int(work.attention_flops[step]),
        lm_head_flops=int(work.lm_head_flops[step]),
    )
