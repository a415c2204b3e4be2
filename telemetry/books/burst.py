"""Steps that are booked together: it moves their requests on and notes what happened to them.

What the steps cost is worked out for all of them at once, from these facts
(`telemetry/books/accounts.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from core.request import FinishReason, RequestId
from core.wire import SliceRecord, StepReport
from costmodel.charges import WasteCause
from telemetry.bill.entry import Stage
from telemetry.books.facts import Facts
from telemetry.books.ledger import Ledger
from telemetry.engine.clock import EngineClock

_MAX_STEPS: Final = 128  # booking a burst holds the event loop up: for 2 to 3 ms
_MAX_SLICES: Final = 1024

log = logging.getLogger("floorline.telemetry")


class Burst:
    """Collects steps, and then their facts.

    Invariant: a step is in all facts or in none.
    """

    def __init__(self, ledger: Ledger, clock: EngineClock) -> None:
        self._ledger, self._clock = ledger, clock
        self._due: list[tuple[StepReport, int]] = []
        self._due_slices = 0
        self._facts = Facts()
        self._place_of: dict[RequestId, int] = {}  # in the facts' entries
        self._stops = False  # whether the server found a stop of any of them

    def collect(self, report: StepReport, sent_ns: int) -> bool:
        """Keep a step, whose tokens went to the streams at `sent_ns`, until the burst is closed.

        Returns: whether the burst is full.
        """
        self._due.append((report, sent_ns))
        self._due_slices += len(report.slices)
        return len(self._due) >= _MAX_STEPS or self._due_slices >= _MAX_SLICES

    @property
    def empty(self) -> bool:
        return not self._due

    def close(self) -> Facts | None:
        """Apply the steps in order; one that fails is logged and left out.

        Mutates: the clock, and the entries of the requests that take part.
        Returns: the facts of the steps; None where none is left.
        """
        for report, sent_ns in self._due:
            try:
                self._apply(report, sent_ns)
            except Exception:
                log.exception("telemetry failed on step %d", report.index)
        self._time()
        return self._facts if self._facts.reports else None

    def _time(self) -> None:
        """Advance the clock: once for each run of steps that follow upon one another."""
        facts, begin = self._facts, 0
        for end, report in enumerate(facts.reports, 1):
            if end == len(facts.reports) or report.end_ns != facts.reports[end].start_ns:
                spans = self._clock.record(facts.reports[begin].start_ns, report.end_ns)
                facts.spans.append(spans)
                facts.unused_ns += [spans.resting, *[0] * (end - begin - 1)]
                begin = end

    def _apply(self, report: StepReport, sent_ns: int) -> None:
        """Move a step's requests on: they change stage, hold blocks, get their tokens and end.

        Raises:
            KeyError: a request that the ledger does not know.
        """
        facts, slices = self._facts, report.slices
        start_ns, end_ns = report.start_ns, report.end_ns
        changes = bool(report.admitted or report.preempted or report.ended)
        if changes:
            for ids in (report.preempted, report.admitted, [ended.id for ended in report.ended]):
                self._ledger.check(ids)
        places = self._places(slices)
        for id, at_ns in report.compiled:
            self._ledger.compiled(id, at_ns)
        waiters = self._ledger.waiters
        waiters.begin(report)
        facts.reports.append(report)
        facts.sent_ns.append(sent_ns)
        wasteful = self._stops or report.ended
        facts.wasted.append(self._wasted_by(report, places) if wasteful else {})
        facts.places += places
        if changes:
            self._look_ups(report, places)
            for id in report.preempted:
                self._ledger[id].preempted(start_ns)
            room_blocks = report.pool.free_blocks + report.pool.cached_blocks
            for id in report.admitted:
                self._ledger[id].admitted(start_ns, room_blocks)
            facts.preemptions += len(report.preempted)
        for place, piece in zip(places, slices, strict=True):
            entry = facts.entries[place]
            facts.block_ns[place] += entry.take_part(piece.blocks, start_ns, end_ns)
            facts.unanswered.append(entry.first_token_ns is None)
        waiters.close()
        self._deliver(report, sent_ns)
        if report.ended:
            facts.ended += self._ledger.release(report.ended, sent_ns)

    def _places(self, slices: Sequence[SliceRecord]) -> list[int]:
        """Find the place of each slice's request; a new one gets the next."""
        place_of, facts = self._place_of, self._facts
        try:
            return [place_of[piece.id] for piece in slices]
        except KeyError:
            for piece in slices:
                if piece.id not in place_of:
                    entry = self._ledger[piece.id]
                    place_of[piece.id] = len(facts.entries)
                    facts.entries.append(entry)
                    facts.block_ns.append(0)
                    self._stops |= entry.finish_tokens is not None
        return [place_of[piece.id] for piece in slices]

    def _wasted_by(self, report: StepReport, places: Sequence[int]) -> dict[int, WasteCause]:
        """Find the slices that served nobody: after a stop, or of a row that failed now."""
        wasted: dict[int, WasteCause] = {}
        if self._stops:
            for index, place in enumerate(places):
                if self._facts.entries[place].overran:
                    wasted[index] = WasteCause.OVERRUN
        if report.ended:
            failed = {ended.id for ended in report.ended if ended.reason is FinishReason.FAILED}
            failed -= {id for id, _ in report.tokens}
            for index, piece in enumerate(report.slices):
                if piece.id in failed:
                    wasted.setdefault(index, WasteCause.FAILED)
        return wasted

    def _look_ups(self, report: StepReport, places: Sequence[int]) -> None:
        """Note what the prefix index had for a step's admissions, before they change stage."""
        admitted, facts = set(report.admitted), self._facts
        for piece, place in zip(report.slices, places, strict=True):
            if piece.id in admitted:
                entry = facts.entries[place]
                facts.hit_tokens += piece.cached
                facts.missed_tokens += entry.prompt_tokens + entry.tokens - piece.cached
                first = entry.stage is Stage.QUEUE  # admission, as usage counts it
                if first and not entry.shares_prompt:
                    facts.cached_tokens += piece.cached
                    entry.cached_tokens = piece.cached

    def _deliver(self, report: StepReport, sent_ns: int) -> None:
        """Give the requests their tokens; those after a stop are not part of an answer."""
        facts, place_of, prompts, generated = self._facts, self._place_of, 0, 0
        for id, _ in report.tokens:
            entry = facts.entries[place_of[id]]
            if entry.finish_tokens is not None and entry.overran:
                continue
            generated += 1
            if entry.first_token_ns is None:
                prompts += entry.usage_prompt_tokens
                facts.first_token_ns.append(sent_ns - entry.received_ns)
            elif entry.resumed:
                facts.resumed_ns.append(sent_ns - entry.last_token_ns)
            else:
                facts.gap_ns.append(sent_ns - entry.last_token_ns)
                facts.gap_steps.append(len(facts.reports) - 1)
            entry.got_token(sent_ns)
        facts.prompt_tokens.append(prompts)
        facts.generated_tokens.append(generated)
