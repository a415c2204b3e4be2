"""Applies steps and ends to the requests they belong to: stages, tokens, charges, money, rent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from core.request import FinishReason
from core.wire import Ended, StepReport
from costmodel.account import StepAccount
from costmodel.charges import Part, WasteCause
from costmodel.split import split_exactly
from telemetry.entry import Entry
from telemetry.labels import DECODE, MIXED, PREFILL, SHARED_TENANT
from telemetry.ledger import Ledger
from telemetry.memory_meters import MemoryMeters
from telemetry.money import Meter
from telemetry.money_meters import MoneyMeters, Spent
from telemetry.request_meters import RequestMeters


def wasted_slices(report: StepReport, entries: Sequence[Entry]) -> dict[int, WasteCause]:
    """Find the slices that served nobody: after a stop, or of a row that failed in this step."""
    failed = {ended.id for ended in report.ended if ended.reason is FinishReason.FAILED}
    sampled = {id for id, _ in report.tokens} if failed else set()
    wasted: dict[int, WasteCause] = {}
    for index, entry in enumerate(entries):
        if entry.overran:
            wasted[index] = WasteCause.OVERRUN
        elif entry.id in failed and entry.id not in sampled:
            wasted[index] = WasteCause.FAILED
    return wasted


def kind_of(report: StepReport, entries: Sequence[Entry]) -> str:
    """Name a step by its slices: all of prompts, all of answers, or both."""
    decodes = [entry.is_decode(p) for p, entry in zip(report.slices, entries, strict=True)]
    if all(decodes):
        return DECODE
    return MIXED if any(decodes) else PREFILL


class Books:
    """Holds what requests and accounts are written to; it reads no clock.

    Invariant: what a step cost = what its requests paid + waste, to the unit.
    """

    def __init__(
        self,
        ledger: Ledger,
        requests: RequestMeters,
        memory: MemoryMeters,
        meter: Meter,
        money: MoneyMeters | None,
    ) -> None:
        self._ledger, self._requests, self._memory = ledger, requests, memory
        self._meter, self._money = meter, money

    def step(
        self,
        report: StepReport,
        account: StepAccount,
        entries: Sequence[Entry],
        wasted: Mapping[int, WasteCause],
        *,
        mixed: bool,
        now_ns: int,
    ) -> None:
        """Make a step's requests pay for it, then take their tokens."""
        prefill, decode, total = self._charge(report, account, entries)
        self._take_part(report, account, entries, wasted.keys())
        for id in report.preempted:
            self._ledger[id].preempted(report.start_ns)
        self._requests.preempted(len(report.preempted))
        for id in report.admitted:
            self._ledger[id].admitted(report.start_ns)
        prompt, generated = self._take_tokens(report, mixed, now_ns)
        self._requests.tokens(prompt, generated)
        if self._money is not None:
            self._money.spent(Spent(prefill, decode, total, prompt, generated), now_ns)

    def spend_shared(self, component: str, ns: int, now_ns: int) -> None:
        """Book time that no request pays for: idle or waste."""
        nusd = self._meter.spend(ns)
        if self._money is not None:
            self._money.shared(component, nusd, now_ns)

    def end(self, ended: Iterable[Ended], now_ns: int) -> None:
        """Take the engine's terminal events."""
        for event in ended:
            entry = self._ledger[event.id]
            if entry.blocks_since_ns is not None:
                self._memory.ended(entry.prompt_tokens + entry.tokens)
            if event.reason is FinishReason.LENGTH and not entry.tokens:  # max_tokens 0
                self._requests.tokens(entry.usage_prompt_tokens, 0)
            self._ledger.release(entry, event.reason, now_ns)
            self._requests.ended(entry)

    def _charge(
        self, report: StepReport, account: StepAccount, entries: Sequence[Entry]
    ) -> tuple[int, int, int]:
        """Share the step's price out as its time was; a step that ran nothing is waste.

        Returns: what went to prefill, to decode, and in all. Units: nano-USD.
        """
        charges, nusd = account.charges, self._meter.spend(account.wall_ns)
        if not charges:
            self._waste_money(nusd)
            return 0, 0, nusd
        shares = [0] * len(charges)
        if nusd:
            shares = split_exactly(nusd, [charge.time_ns for charge in charges])
        paid = {PREFILL: 0, DECODE: 0}
        for charge, share in zip(charges, shares, strict=True):
            part = charge.part
            if part.waste is not None:
                self._waste(part)
                self._waste_money(share)
                continue
            entry = entries[part.slice]
            entry.pay(charge, share)
            if share and self._money is not None:
                bought = DECODE if entry.is_decode(report.slices[part.slice]) else PREFILL
                self._money.book(entry.tenant, bought, share)
                paid[bought] += share
        return paid[PREFILL], paid[DECODE], nusd

    def _waste(self, part: Part) -> None:
        if part.waste is WasteCause.RECOMPUTE:
            self._requests.wasted("recomputed", part.tokens)
        elif part.waste is WasteCause.OVERRUN:
            self._requests.wasted("overrun", part.rows)

    def _waste_money(self, nusd: int) -> None:
        if self._money is not None:
            self._money.book(SHARED_TENANT, "waste", nusd)

    def _take_part(
        self,
        report: StepReport,
        account: StepAccount,
        entries: Sequence[Entry],
        wasted: Collection[int],
    ) -> None:
        batch, start_ns, end_ns = len(entries), report.start_ns, report.end_ns
        for index, (piece, entry) in enumerate(zip(report.slices, entries, strict=True)):
            rent = entry.rent(piece.blocks, start_ns, end_ns)
            self._memory.rent(entry.tenant, rent)
            if index not in wasted:
                entry.took_part(piece, batch, account.wall_ns, account.regime)

    def _take_tokens(self, report: StepReport, mixed: bool, now_ns: int) -> tuple[int, int]:
        """Give each entry its token.

        Returns: prompt tokens and generated ones that became part of answers.
        """
        prompt = generated = 0
        for id, _ in report.tokens:
            entry = self._ledger[id]
            if entry.overran:
                continue
            generated += 1
            if entry.first_token_ns is None:
                prompt += entry.usage_prompt_tokens
            self._requests.token(entry, now_ns, mixed)
            entry.got_token(now_ns)
        return prompt, generated
