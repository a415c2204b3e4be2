"""What a burst of steps did, as columns. Accounts are worked out from them; books are fed both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from core.wire import StepReport
from costmodel.charges import WasteCause
from costmodel.slices import Slices
from costmodel.split import Bools, Ints, sums_by
from telemetry.bill.entry import Entry
from telemetry.engine.clock import Spans


class StepKind(StrEnum):
    """What a step's slices were run for."""

    PREFILL = "prefill"  # prompts only, or tokens that are computed again
    DECODE = "decode"  # answers only
    MIXED = "mixed"


KINDS: Final = tuple(StepKind)  # a column names a kind by its place here
_PREFILL, _DECODE, _MIXED = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Columns with a row for each step, slice or token, in order."""

    reports: Sequence[StepReport]
    entries: Sequence[Entry]  # of the requests that took part
    ended: Sequence[Entry]  # of the requests that the engine let go of

    # of each step
    sent_ns: Ints  # when its tokens went to the streams
    wasted: Sequence[Mapping[int, WasteCause]]  # its slices that served nobody, and why
    unused_ns: Sequence[int]  # the time before it in which no step ran
    kinds: Ints  # places in `KINDS`
    prompt_tokens: Ints  # that became part of answers in it
    generated_tokens: Ints

    # of each slice
    slices: Slices
    requests: Ints  # places in `entries`
    decodes: Bools  # whether it is of an answer, and not of a prompt or computed again
    block_ns: Ints  # blocks held × the time since its request's previous slice

    # of each token of an answer
    first_token_ns: Sequence[int]  # of first tokens: time since receipt
    resumed_ns: Sequence[int]  # of first tokens after a preemption: time since the one before
    gap_ns: Ints  # of all others: time since the one before
    gap_steps: Ints  # and the step of each

    # of all steps together
    spans: Spans  # what the clock found
    preemptions: int
    hit_tokens: int  # known tokens of admitted requests that the prefix index had
    missed_tokens: int  # and that it did not have
    cached_tokens: int  # hits as `usage` counts them

    @property
    def mixed(self) -> Bools:
        """Whether each step ran prompts beside answers."""
        mixed: Bools = self.kinds == _MIXED
        return mixed


def decodes_of(slices: Slices, prompt_tokens: Ints) -> Bools:
    """Say of each slice whether it is of an answer, by the length of its request's prompt."""
    decodes: Bools = (slices.start >= prompt_tokens) & (slices.recomputed == 0)
    return decodes


def kinds_of(slices: Slices, decodes: Bools) -> Ints:
    """Name each step, by its place in `KINDS`; one without slices is a decode step."""
    count = sums_by(slices.step, decodes, slices.steps)
    pure = np.where(count == slices.counts, _DECODE, _MIXED)
    return np.where((count == 0) & (slices.counts > 0), _PREFILL, pure)
