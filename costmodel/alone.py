"""The floor of a request that runs alone: what its waiting and its neighbours are held against."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from core.machine import Peaks
from core.request import RequestId
from core.wire import SliceRecord
from costmodel.floor import floors_of
from costmodel.slices import Ran, slices_of
from costmodel.sums import ModelSums

_POINTS: Final = 5  # contexts at which a step of the answer is looked at; between them it is linear


class AloneFloor(NamedTuple):
    """Units: ns. `compute_bound` is of the most of it."""

    prefill_ns: int
    decode_ns: int
    prefill_compute_bound: bool
    decode_compute_bound: bool


def alone_floor(
    sums: ModelSums, peaks: Peaks, *, cached: int, prompt: int, tokens: int, step_tokens: int
) -> AloneFloor | None:
    """Add up the floors of a prompt, of which `cached` tokens are there, and of its answer.

    The prompt runs in pieces of `step_tokens`, its last one gives the first of `tokens`; each
    further one takes a step.

    Returns: None where a peak that is needed is unknown.
    """
    starts = range(min(cached, prompt - 1), prompt, step_tokens)
    pieces = [(start, min(step_tokens, prompt - start)) for start in starts]
    points = np.unique(np.linspace(0, max(tokens - 2, 0), _POINTS).astype(np.int64))
    contexts = [(prompt + int(point), 1) for point in points] if tokens > 1 else []
    steps = [
        _alone(start, length, rows=int(start + length >= prompt))
        for start, length in [*pieces, *contexts]
    ]
    floors = floors_of(sums.works(slices_of(steps)), peaks)
    if not floors.known.all():
        return None
    prefill, decode = floors.s[: len(pieces)], floors.s[len(pieces) :]
    decode_s = float(decode[0]) if len(decode) == 1 else 0.0
    if len(decode) > 1:
        decode_s = float(np.trapezoid(decode, points) / (points[-1] - points[0])) * (tokens - 1)
    return AloneFloor(
        int(prefill.sum() * 1e9),
        int(decode_s * 1e9),
        bool(floors.compute_bound[: len(pieces)].mean() > 0.5),
        bool(len(decode) and floors.compute_bound[len(pieces) :].mean() > 0.5),
    )


def _alone(start: int, length: int, rows: int) -> Ran:
    piece = SliceRecord(RequestId(""), start, length, rows, 0, 0, 0)
    return Ran((piece,), (), length)
