"""Who pays for a step: exact shares of its bytes, FLOPs, floor and time. It knows no prices.

Weights, embedding bytes and matrix FLOPs are split by tokens, the head by rows, shared KV evenly
among its readers (`costmodel/work.py`); own KV and attention belong to their request. Tokens that
serve nobody are parts of their own, charged to a cause instead of a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from core.wire import SliceRecord
from costmodel.split import split_exactly
from costmodel.work import Arithmetic, Work


class WasteCause(StrEnum):
    RECOMPUTE = "recompute"  # positions that had been computed before a preemption
    OVERRUN = "overrun"  # sampled after a stop was found
    FAILED = "failed"  # the row failed, or the step raised


class Part(NamedTuple):
    """Tokens of one slice that share an account: its request's (`waste` None), or a cause's."""

    slice: int
    waste: WasteCause | None
    start: int
    tokens: int
    rows: int


class Charge(NamedTuple):
    """One part's exact share of its step. Units: bytes, FLOPs, ns."""

    part: Part
    bytes_read: int
    bytes_written: int
    flops: int
    floor_ns: int
    time_ns: int


def parts_of(slices: Sequence[SliceRecord], wasted: Mapping[int, WasteCause]) -> list[Part]:
    """Cut slices where their account changes.

    `wasted` maps a slice's index to why all of it is waste. Recomputed tokens lead their slice.
    """
    parts: list[Part] = []
    for index, piece in enumerate(slices):
        cause, again = wasted.get(index), piece.recomputed
        if cause is not None or again == 0:
            parts.append(Part(index, cause, piece.start, piece.length, piece.rows))
            continue
        fresh = piece.length - again
        rows = 0 if fresh else piece.rows
        parts.append(Part(index, WasteCause.RECOMPUTE, piece.start, again, rows))
        if fresh:
            parts.append(Part(index, None, piece.start + again, fresh, piece.rows))
    return parts


def charge(
    arithmetic: Arithmetic,
    work: Work,
    parts: Sequence[Part],
    *,
    floor_ns: int,
    time_ns: int,
    by_bytes: bool,
) -> list[Charge]:
    """Share a step out over its parts; time and floor by charged bytes, or else by charged FLOPs.

    Invariant: every column sums to the step's own number, to the unit.
    """
    if not parts:
        return []
    tokens = [part.tokens for part in parts]
    reads = split_exactly(work.weights_bytes + work.embedding_bytes, tokens)
    if work.lm_head_bytes:
        heads = split_exactly(work.lm_head_bytes, [part.rows for part in parts])
        reads = [a + b for a, b in zip(reads, heads, strict=True)]
    kv_reads = _kv_reads(work, parts)
    reads = [a + b for a, b in zip(reads, kv_reads, strict=True)]
    writes = [count * arithmetic.kv_token_bytes for count in tokens]
    per_token, per_row = arithmetic.linear_flops_per_token, arithmetic.lm_head_flops_per_row
    attention = _attention_flops(arithmetic, work, parts)
    flops = [
        part.tokens * per_token + part.rows * per_row + own
        for part, own in zip(parts, attention, strict=True)
    ]
    keys = [a + b for a, b in zip(reads, writes, strict=True)] if by_bytes else flops
    floors, times = split_exactly(floor_ns, keys), split_exactly(time_ns, keys)
    return list(map(Charge, parts, reads, writes, flops, floors, times))


def _attention_flops(arithmetic: Arithmetic, work: Work, parts: Sequence[Part]) -> Sequence[int]:
    if len(parts) == len(work.attention_flops_by_slice):
        return work.attention_flops_by_slice
    return [arithmetic.attention_flops(part.start, part.tokens) for part in parts]


def _kv_reads(work: Work, parts: Sequence[Part]) -> list[int]:
    """Give each part its slice's context read; a slice in two parts is split by their tokens."""
    by_slice = work.kv_read_bytes_by_slice
    if len(parts) == len(by_slice):
        return list(by_slice)
    reads: list[int] = []
    for index, total in enumerate(by_slice):
        tokens = [part.tokens for part in parts if part.slice == index]
        reads += split_exactly(total, tokens)
    return reads
