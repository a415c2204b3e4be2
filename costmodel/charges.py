"""Who pays for a step: exact shares of its bytes, FLOPs, floor and time. It knows no prices.

Weights, embedding bytes and matrix FLOPs are split by tokens, the head by rows, shared KV evenly
among its readers (`costmodel/sums.py`); own KV and attention belong to their request. Tokens that
serve nobody are parts of their own, charged to a cause instead of a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from costmodel.slices import Slices
from costmodel.split import Bools, Ints, split_exactly
from costmodel.sums import ModelSums
from costmodel.work import Work


class WasteCause(StrEnum):
    RECOMPUTE = "recompute"  # positions that had been computed before a preemption
    OVERRUN = "overrun"  # sampled after a stop was found
    FAILED = "failed"  # the row failed, or the step raised


WASTE: Final = (None, *WasteCause)  # a column names a cause by its place here; 0 is none


class Parts(NamedTuple):
    """Columns with a row for each part: tokens of one slice that share an account.

    That is their request's, or a cause's. `slice` counts through all steps; `waste` is a place in
    `WASTE`.
    """

    step: Ints
    slice: Ints
    waste: Ints
    start: Ints
    tokens: Ints
    rows: Ints
    alone: bool  # whether each step has one part

    def share(self, totals: Ints, weights: Ints) -> Ints:
        """Share each step's total among its parts, exactly."""
        return totals if self.alone else split_exactly(totals, weights, self.step)


class Charges(NamedTuple):
    """Columns with a row for each part: its exact share of its step. Units: bytes, FLOPs, ns."""

    parts: Parts
    bytes_read: Ints
    bytes_written: Ints
    flops: Ints
    floor_ns: Ints
    time_ns: Ints
    checkpoint_floor_ns: Ints  # of weights in the checkpoint's own bytes


def parts_of(slices: Slices, wasted: Sequence[Mapping[int, WasteCause]]) -> Parts:
    """Cut slices where their account changes.

    `wasted` maps, for each step, a slice's index to why all of it is waste. Recomputed tokens lead
    their slice.
    """
    waste, every = np.zeros(len(slices.step), np.int64), np.arange(len(slices.step))
    if not (any(wasted) or slices.recomputed.any()):
        own = slices.start, slices.length, slices.rows
        return Parts(slices.step, every, waste, *own, slices.alone)
    for step, causes in enumerate(wasted):
        for place, cause in causes.items():
            waste[slices.first[step] + place] = WASTE.index(cause)
    again = np.where(waste == 0, slices.recomputed, 0)
    waste[again > 0] = WASTE.index(WasteCause.RECOMPUTE)
    cut = (again > 0) & (again < slices.length)
    index = np.repeat(every, 1 + cut)
    rest = np.diff(index, prepend=-1) == 0  # what its request pays for, of a slice that is cut
    lead = cut[index] & ~rest
    again, length = again[index], slices.length[index]
    return Parts(
        step=slices.step[index],
        slice=index,
        waste=np.where(rest, 0, waste[index]),
        start=slices.start[index] + np.where(rest, again, 0),
        tokens=np.where(lead, again, np.where(rest, length - again, length)),
        rows=np.where(lead, 0, slices.rows[index]),
        alone=slices.alone and not cut.any(),
    )


def charge(
    sums: ModelSums,
    work: Work,
    parts: Parts,
    *,
    floor_ns: Ints,
    checkpoint_floor_ns: Ints,
    time_ns: Ints,
    by_bytes: Bools,
) -> Charges:
    """Share steps out over their parts; time and floor by charged bytes, or else by charged FLOPs.

    Invariant: every column sums, over a step's parts, to the step's own number, to the unit.
    """
    tokens, rows, own = parts.tokens, parts.rows, work.kv_read_bytes_by_slice
    if len(own) < len(tokens):  # a slice was cut
        own = split_exactly(own, tokens, parts.slice)
    read = parts.share(work.weights_bytes + work.embedding_bytes, tokens) + own
    read += parts.share(work.lm_head_bytes, rows)
    written = tokens * sums.kv_token_bytes
    flops = tokens * sums.linear_flops_per_token + rows * sums.lm_head_flops_per_row
    flops += sums.attention_flops(parts.start, tokens)
    keys = np.where(by_bytes[parts.step], read + written, flops)
    shared_ns = own_floor_ns = parts.share(floor_ns, keys)
    if checkpoint_floor_ns is not floor_ns:
        own_floor_ns = parts.share(checkpoint_floor_ns, keys)
    return Charges(
        parts=parts,
        bytes_read=read,
        bytes_written=written,
        flops=flops,
        floor_ns=shared_ns,
        time_ns=parts.share(time_ns, keys),
        checkpoint_floor_ns=own_floor_ns,
    )
