"""What a burst of steps did. Accounts are worked out from it; books are fed both."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

import numpy as np

from core.wire import StepReport
from costmodel.charges import WasteCause
from costmodel.slices import Slices, ints, slices_of
from costmodel.split import Bools, Ints
from telemetry.bill.entry import Entry
from telemetry.engine.clock import Spans


class StepKind(StrEnum):
    """What a step's slices were run for."""

    PREFILL = "prefill"  # prompts only, or tokens that are computed again
    DECODE = "decode"  # answers only
    MIXED = "mixed"


KINDS: Final = tuple(StepKind)  # a column names a kind by its place here
_PREFILL, _DECODE, MIXED = range(3)


@dataclass(eq=False, kw_only=True)
class Facts:
    """Lists with an item for each step, request, slice or token, in order.

    `telemetry/books/burst.py:Burst` fills them. A column, once asked for, does not grow any more.
    """

    # of each step
    reports: list[StepReport] = field(default_factory=list)
    sent_ns: list[int] = field(default_factory=list)  # when its tokens went to the streams
    wasted: list[dict[int, WasteCause]] = field(default_factory=list)  # slices that served nobody
    unused_ns: list[int] = field(default_factory=list)  # before it, in which no step ran
    prompt_tokens: list[int] = field(default_factory=list)  # that became part of answers in it
    generated_tokens: list[int] = field(default_factory=list)

    # of each request that took part
    entries: list[Entry] = field(default_factory=list)
    block_ns: list[int] = field(default_factory=list)  # blocks held × time

    # of each slice
    places: list[int] = field(default_factory=list)  # of its request in `entries`
    unanswered: list[bool] = field(default_factory=list)  # whether it had no token before

    # of each token of an answer
    first_token_ns: list[int] = field(default_factory=list)  # of first ones: time since receipt
    resumed_ns: list[int] = field(default_factory=list)  # after a preemption: since the one before
    gap_ns: list[int] = field(default_factory=list)  # of all others: since the one before
    gap_steps: list[int] = field(default_factory=list)  # and the step of each

    # of all steps together
    spans: list[Spans] = field(default_factory=list)  # what the clock found
    ended: list[Entry] = field(default_factory=list)  # of requests that the engine let go of
    preemptions: int = 0
    hit_tokens: int = 0  # known tokens of admitted requests that the prefix index had
    missed_tokens: int = 0  # and that it did not have
    cached_tokens: int = 0  # hits as `usage` counts them

    @cached_property
    def slices(self) -> Slices:
        return slices_of(self.reports)

    @cached_property
    def requests(self) -> Ints:
        """The place of each slice's request."""
        return ints(self.places)

    @cached_property
    def decodes(self) -> Bools:
        """Whether each slice is of an answer, and not of a prompt or computed again."""
        prompts = ints([entry.prompt_tokens for entry in self.entries])
        slices = self.slices
        decodes: Bools = (slices.start >= prompts[self.requests]) & (slices.recomputed == 0)
        return decodes

    @cached_property
    def kinds(self) -> Ints:
        """The place of each step's kind in `KINDS`; one without slices is a decode step."""
        counts = self.slices.counts
        decodes = self.slices.by_step(self.decodes)
        pure = np.where(decodes == counts, _DECODE, MIXED)
        return np.where((decodes == 0) & (counts > 0), _PREFILL, pure)
