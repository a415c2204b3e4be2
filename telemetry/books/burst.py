"""Steps that are booked together: it moves their requests on and notes what happened to them.

What the steps cost is worked out for all of them at once, from these facts
(`telemetry/books/accounts.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from core.request import FinishReason, RequestId
from core.wire import StepReport
from costmodel.charges import WasteCause
from costmodel.slices import ints, slices_of
from telemetry.bill.entry import Entry, Stage
from telemetry.books.facts import Facts, decodes_of, kinds_of
from telemetry.books.ledger import Ledger
from telemetry.engine.clock import EngineClock, Spans

_MAX_STEPS: Final = 128  # booking a burst holds the event loop up: for 2 to 3 ms
_MAX_SLICES: Final = 1024

log = logging.getLogger("floorline.telemetry")


class Burst:
    """Collects steps, and then the columns of `telemetry/books/facts.py:Facts`.

    Invariant: a step is in all columns or in none.
    """

    def __init__(self, ledger: Ledger, clock: EngineClock) -> None:
        self._ledger, self._clock = ledger, clock
        self._due: list[tuple[StepReport, int]] = []
        self._due_slices = 0
        self._entries: list[Entry] = []
        self._place_of: dict[RequestId, int] = {}  # in `_entries`
        self._stops = False  # whether the server found a stop of any of them
        self._ended: list[Entry] = []
        self._reports: list[StepReport] = []
        self._sent_ns: list[int] = []
        self._wasted: list[dict[int, WasteCause]] = []
        self._spans: list[Spans] = []
        self._prompt_tokens: list[int] = []
        self._generated_tokens: list[int] = []
        self._requests: list[int] = []
        self._block_ns: list[int] = []
        self._first_token_ns: list[int] = []
        self._resumed_ns: list[int] = []
        self._gap_ns: list[int] = []
        self._gap_steps: list[int] = []
        self._preemptions = 0
        self._hit_tokens = self._missed_tokens = self._cached_tokens = 0

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
        return self._facts() if self._reports else None

    def _apply(self, report: StepReport, sent_ns: int) -> None:
        """Move a step's requests on: they change stage, hold blocks, get their tokens and end.

        Raises:
            KeyError: a request that the ledger does not know.
        """
        for ids in (report.preempted, report.admitted, [ended.id for ended in report.ended]):
            self._ledger.check(ids)
        places = self._places(report)
        self._reports.append(report)
        self._sent_ns.append(sent_ns)
        self._spans.append(self._clock.record(report.start_ns, report.end_ns))
        self._wasted.append(self._wasted_by(report, places))
        self._prompt_tokens.append(0)
        self._generated_tokens.append(0)
        self._requests += places
        entries, start_ns, end_ns = self._entries, report.start_ns, report.end_ns
        self._block_ns += [
            entries[place].hold_blocks(piece.blocks, start_ns, end_ns)
            for place, piece in zip(places, report.slices, strict=True)
        ]
        if report.admitted:
            self._look_ups(report, places)
        for id in report.preempted:
            self._ledger[id].preempted(start_ns)
            self._preemptions += 1
        for id in report.admitted:
            self._ledger[id].admitted(start_ns)
        self._deliver(report, sent_ns)
        self._ended += self._ledger.release(report.ended, sent_ns)

    def _places(self, report: StepReport) -> list[int]:
        """Find the place of each slice's request; a new one gets the next."""
        place_of = self._place_of
        for piece in report.slices:
            if piece.id not in place_of:
                entry = self._ledger[piece.id]
                place_of[piece.id] = len(self._entries)
                self._entries.append(entry)
                self._stops |= entry.finish_tokens is not None
        return [place_of[piece.id] for piece in report.slices]

    def _wasted_by(self, report: StepReport, places: Sequence[int]) -> dict[int, WasteCause]:
        """Find the slices that served nobody: after a stop, or of a row that failed now."""
        wasted: dict[int, WasteCause] = {}
        if self._stops:
            for index, place in enumerate(places):
                if self._entries[place].overran:
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
        admitted = set(report.admitted)
        for piece, place in zip(report.slices, places, strict=True):
            if piece.id in admitted:
                entry = self._entries[place]
                self._hit_tokens += piece.cached
                self._missed_tokens += entry.prompt_tokens + entry.tokens - piece.cached
                first = entry.stage is Stage.QUEUE  # admission, as usage counts it
                if first and not entry.shares_prompt:
                    self._cached_tokens += piece.cached
                    entry.cached_tokens = piece.cached

    def _deliver(self, report: StepReport, sent_ns: int) -> None:
        """Give the requests their tokens; those after a stop are not part of an answer."""
        step, generated = len(self._reports) - 1, 0
        entries, place_of = self._entries, self._place_of
        for id, _ in report.tokens:
            entry = entries[place_of[id]]
            if entry.finish_tokens is not None and entry.overran:
                continue
            generated += 1
            if entry.first_token_ns is None:
                self._prompt_tokens[step] += entry.usage_prompt_tokens
                self._first_token_ns.append(sent_ns - entry.received_ns)
            elif entry.resumed:
                self._resumed_ns.append(sent_ns - entry.last_token_ns)
            else:
                self._gap_ns.append(sent_ns - entry.last_token_ns)
                self._gap_steps.append(step)
            entry.got_token(sent_ns)
        self._generated_tokens[step] = generated

    def _facts(self) -> Facts:
        slices, requests = slices_of(self._reports), ints(self._requests)
        prompt_tokens = ints([entry.prompt_tokens for entry in self._entries])
        decodes = decodes_of(slices, prompt_tokens[requests])
        return Facts(
            reports=self._reports,
            entries=self._entries,
            ended=self._ended,
            sent_ns=ints(self._sent_ns),
            wasted=self._wasted,
            unused_ns=[spans.resting for spans in self._spans],
            kinds=kinds_of(slices, decodes),
            prompt_tokens=ints(self._prompt_tokens),
            generated_tokens=ints(self._generated_tokens),
            slices=slices,
            requests=requests,
            decodes=decodes,
            block_ns=ints(self._block_ns),
            first_token_ns=self._first_token_ns,
            resumed_ns=self._resumed_ns,
            gap_ns=ints(self._gap_ns),
            gap_steps=ints(self._gap_steps),
            spans=Spans(*map(sum, zip(*self._spans, strict=True))),
            preemptions=self._preemptions,
            hit_tokens=self._hit_tokens,
            missed_tokens=self._missed_tokens,
            cached_tokens=self._cached_tokens,
        )
