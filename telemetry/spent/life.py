"""One request's time, cut into pieces while its steps are booked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from core.request import FinishReason, RequestId
from core.wire import StepReport
from telemetry.spent.pieces import OF_STEPS, PIECES, Clocks, Piece


class Where(Enum):
    """What a request does between two steps of its own."""

    COMPILES = auto()  # its grammar
    NEW = auto()  # no step was booked since it came
    QUEUES = auto()
    RUNS = auto()
    STALLED = auto()


_REST: Final = {  # what the time up to the next thing is spent on
    Where.COMPILES: Piece.GRAMMAR,
    Where.NEW: Piece.WAIT_STEP,
    Where.QUEUES: Piece.WAIT_STEP,
    Where.STALLED: Piece.STALLED,
    Where.RUNS: Piece.DELIVER,
}


@dataclass(slots=True)
class Met:
    """What a request met, beside its time."""

    behind: int = 0  # requests that were live when it came
    behind_own: int = 0  # of its own tenant
    room_blocks: int = 0  # that nobody used in the step that admitted it
    preemptions: int = 0
    longest_gap_ns: int = 0  # between two of its tokens
    others_prompt_tokens: int = 0  # in steps that ran it
    others_prompt_steps: int = 0


class Waiters:
    """The engine's clocks as steps are booked, and who has come since the last of them."""

    def __init__(self) -> None:
        self.clocks = self.after = Clocks()  # before the step that is being booked, and after it
        self._new: list[tuple[RequestId, Life]] = []

    def join(self, id: RequestId, life: Life) -> None:
        self._new.append((id, life))

    def begin(self, report: StepReport) -> None:
        """Have those who came before a step's end meet it, but for those whom it admits."""
        self.after = self.clocks.after(report)
        if self._new:
            later = []
            for id, life in self._new:
                if life.mark_ns >= report.end_ns:
                    later.append((id, life))
                elif life.is_new and id not in report.admitted:
                    life.meets(report)
            self._new = later

    def close(self) -> None:
        """Leave the step that was begun behind."""
        self.clocks = self.after


class Life:
    """Only the books change it, in the order of the steps.

    All up to `mark_ns` is in a piece, but for the steps that ran it: `pay` brings these once their
    burst is accounted for.

    Invariant: after its end the pieces sum to the time from its receipt to its end.
    """

    __slots__ = (
        "_first",
        "_first_is_known",
        "_seen",
        "_spent",
        "_waiters",
        "_where",
        "mark_ns",
        "met",
    )

    def __init__(
        self, waiters: Waiters, received_ns: int, submitted_ns: int, has_grammar: bool = False
    ) -> None:
        self._waiters = waiters
        self._spent: dict[Piece, int] = {}
        self._first: dict[Piece, int] = {}  # up to the first token
        self._first_is_known = False
        self._where = Where.COMPILES if has_grammar else Where.NEW
        self._seen = waiters.clocks  # at the mark, once it has met a step
        self.met = Met()
        self.mark_ns = received_ns
        self._up_to(submitted_ns, Piece.ACCEPT)

    @property
    def is_new(self) -> bool:
        return self._where is Where.NEW

    def spent_ns(self) -> dict[Piece, int]:
        """Give the pieces that are not zero; until its end, they sum to the time up to its mark."""
        return {piece: self._spent[piece] for piece in PIECES if self._spent.get(piece)}

    def first_ns(self) -> dict[Piece, int]:
        """Give the pieces of the time to its first token; none where there was none."""
        if not self._first_is_known:
            return {}
        return {piece: self._first[piece] for piece in PIECES if self._first.get(piece)}

    def compiled(self, at_ns: int) -> None:
        """Its grammar is ready: it stands in the queue from now on."""
        self._up_to(at_ns, Piece.GRAMMAR)
        self._where = Where.NEW

    def meets(self, report: StepReport) -> None:
        """Take the first step that ended after it came, and that does not admit it."""
        ran_already = report.start_ns <= self.mark_ns
        self._up_to(report.end_ns if ran_already else report.start_ns, Piece.WAIT_STEP)
        self._seen = self._waiters.after if ran_already else self._waiters.clocks
        self._where = Where.QUEUES

    def admitted(self, start_ns: int) -> None:
        """Begin to run with a step from `start_ns` on."""
        if self._where is Where.QUEUES:
            self._waited(start_ns)
        elif self._where is Where.RUNS:
            self._sat_out(start_ns)
        else:
            self._up_to(start_ns, _REST[self._where])
        self._where, self._seen = Where.RUNS, self._waiters.clocks

    def preempted(self, start_ns: int) -> None:
        """Give up its blocks to a step from `start_ns` on."""
        self._sat_out(start_ns)
        self._where = Where.STALLED

    def ran(self, start_ns: int, end_ns: int) -> None:
        """Take a step that ran it: its time comes with `pay`."""
        if start_ns != self.mark_ns or self._where is not Where.RUNS:
            self.admitted(start_ns)
        self.mark_ns, self._seen = end_ns, self._waiters.after

    def got_first_token(self, sent_ns: int) -> None:
        """Close the time to the first token, which the last step gave."""
        self._first[Piece.DELIVER] = sent_ns - self.mark_ns
        self._first_is_known = True

    def pay(self, row: Sequence[int], first_row: Sequence[int]) -> None:
        """Add its pieces of the steps of a burst; those up to its first token are in `first_row`.

        Shapes: both as `OF_STEPS`; behind it in `row` what of others' prompts ran beside it:
        tokens, and steps that had some.
        """
        for spent, ns_by_piece in ((self._spent, row), (self._first, first_row)):
            for piece, ns in zip(OF_STEPS, ns_by_piece, strict=False):
                if ns:
                    spent[piece] = spent.get(piece, 0) + ns
        *_, tokens, steps = row
        self.met.others_prompt_tokens += tokens
        self.met.others_prompt_steps += steps

    def end(self, at_ns: int, reason: FinishReason) -> None:
        """Sort what is left after its last step."""
        if self._where is Where.QUEUES:
            self._waited(at_ns)
        elif reason is FinishReason.FAILED:
            self._up_to(at_ns, Piece.FAILED)
        else:
            self._up_to(at_ns, _REST[self._where])

    def _waited(self, until_ns: int) -> None:
        """Book the queue's time by what it waited for, and what no step covers as `wait_step`."""
        clocks = self._waiters.clocks
        for piece, ns in clocks.waited_since(self._seen):
            self._add(piece, ns)
            self.mark_ns += ns
        self._seen = clocks
        self._up_to(until_ns, Piece.WAIT_STEP)

    def _sat_out(self, until_ns: int) -> None:
        """Book steps that did not run it, and what no step covers as the engine's own time."""
        clocks = self._waiters.clocks
        without_ns = clocks.steps_ns - self._seen.steps_ns
        self._add(Piece.SAT_OUT, without_ns)
        self.mark_ns += without_ns
        self._seen = clocks
        self._up_to(until_ns, Piece.HOST)

    def _up_to(self, at_ns: int, piece: Piece) -> None:
        """Book the time from the mark.

        A moment before the mark takes time back from `accept`: an engine that was idle may begin a
        step a little before the server notes that it has submitted the request.
        """
        self._add(piece if at_ns >= self.mark_ns else Piece.ACCEPT, at_ns - self.mark_ns)
        self.mark_ns = at_ns

    def _add(self, piece: Piece, ns: int) -> None:
        if ns:
            self._spent[piece] = self._spent.get(piece, 0) + ns
            if not self._first_is_known:
                self._first[piece] = self._first.get(piece, 0) + ns
