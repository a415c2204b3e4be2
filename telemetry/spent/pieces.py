"""The pieces that a request's time is cut into, and the engine's clocks for those who wait."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from core.request import Obstacle
from core.wire import StepReport
from costmodel.account import LostCause


class Piece(StrEnum):
    """Disjoint; together they are the time from receipt to the end."""

    ACCEPT = "accept"  # from its receipt until it was submitted to the engine
    GRAMMAR = "grammar"  # until its grammar was compiled
    WAIT_STEP = "wait_step"  # until the step that ran when it came had ended, or the engine woke
    WAIT_KV = "wait_kv"  # in the queue, while it waited for blocks
    WAIT_SLOTS = "wait_slots"  # while as many requests ran as may
    WAIT_BUDGET = "wait_budget"  # while the tokens of steps were spent
    FLOOR_PREFILL = "floor_prefill"  # its shares of the floors of steps, for its prompt
    FLOOR_DECODE = "floor_decode"  # and for its answer
    MEMORY_SHORTFALL = "memory_shortfall"  # its shares of their lost time, by the step's causes
    COMPUTE_SHORTFALL = "compute_shortfall"
    UNKNOWN_PEAK = "unknown_peak"
    SAMPLE = "sample"
    HOST = "host"  # and time between records while it ran
    RECOMPUTE = "recompute"  # its shares of steps for tokens that had been computed before
    FAILED = "failed"  # in a step that failed it, or in an engine that ended
    OTHERS_PREFILL = "others_prefill"  # shares of others in steps that ran it: their prompts
    OTHERS_DECODE = "others_decode"  # and their answers
    STALLED = "stalled"  # preempted, until it was admitted again
    SAT_OUT = "sat_out"  # steps that it was in, but had no slice of
    DELIVER = "deliver"  # from the end of its last step until its tokens were handed over


PIECES: Final = tuple(Piece)

# What a step's lost time is shared by; where a request pays for it, it keeps its name.
LOST: Final = (
    (LostCause.MEMORY_SHORTFALL, Piece.MEMORY_SHORTFALL),
    (LostCause.COMPUTE_SHORTFALL, Piece.COMPUTE_SHORTFALL),
    (LostCause.UNKNOWN_PEAK, Piece.UNKNOWN_PEAK),
    (LostCause.SAMPLE, Piece.SAMPLE),
    (LostCause.HOST, Piece.HOST),
)

# The pieces that a step's record gives, in the order of a row of `telemetry/books/pieces.py`.
OF_STEPS: Final = (
    *(Piece.FLOOR_PREFILL, Piece.FLOOR_DECODE),
    *(piece for _, piece in LOST),
    *(Piece.RECOMPUTE, Piece.FAILED, Piece.OTHERS_PREFILL, Piece.OTHERS_DECODE),
)

_WAIT_FOR: Final = (
    (Obstacle.KV, Piece.WAIT_KV),
    (Obstacle.SLOTS, Piece.WAIT_SLOTS),
    (Obstacle.BUDGET, Piece.WAIT_BUDGET),
)
_UNNAMED: Final = len(_WAIT_FOR)  # nobody waited yet at the end of the step


class Clocks(NamedTuple):
    """Time that steps took so far, by what the queue waited for at their ends. Units: ns."""

    kv: int = 0
    slots: int = 0
    budget: int = 0
    unnamed: int = 0

    @property
    def steps_ns(self) -> int:
        return sum(self)

    def after(self, report: StepReport) -> Clocks:
        """Advance over a step. Those in the queue wait for one thing, but for grammars."""
        waiting, took_ns = report.pool.waiting, report.end_ns - report.start_ns
        if not waiting:
            return Clocks(self.kv, self.slots, self.budget, self.unnamed + took_ns)
        held_by = (k for k, (obstacle, _) in enumerate(_WAIT_FOR) if waiting.get(obstacle))
        advanced = list(self)
        advanced[next(held_by, _UNNAMED)] += took_ns
        return Clocks._make(advanced)

    def waited_since(self, then: Clocks) -> list[tuple[Piece, int]]:
        """Say what somebody in the queue waited for since `then`."""
        pieces = (*(piece for _, piece in _WAIT_FOR), Piece.WAIT_STEP)
        return [(piece, now - was) for piece, now, was in zip(pieces, self, then, strict=True)]
