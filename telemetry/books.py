"""Applies steps and ends to the requests they belong to: stages, tokens, charges, money, rent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from core.request import FinishReason
from core.wire import Ended, StepReport
from costmodel.account import StepAccount
from costmodel.charges import Charge, WasteCause
from costmodel.split import split_exactly
from telemetry.entry import Entry
from telemetry.labels import DECODE, MIXED, PREFILL
from telemetry.ledger import Ledger
from telemetry.memory_meters import MemoryMeters
from telemetry.money import Meter
from telemetry.money_meters import MoneyMeters
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
        self._charge(report, account, entries, now_ns)
        self._take_part(report, account, entries, wasted.keys())
        for id in report.preempted:
            self._ledger[id].preempted(report.start_ns)
        self._requests.preempted(len(report.preempted))
        for id in report.admitted:
            self._ledger[id].admitted(report.start_ns)
        for id, _ in report.tokens:
            self._token(self._ledger[id], mixed, now_ns)

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
            self._ledger.release(entry, event.reason, now_ns)
            self._requests.ended(entry)

    def _charge(
        self, report: StepReport, account: StepAccount, entries: Sequence[Entry], now_ns: int
    ) -> None:
        if not account.charges:
            self.spend_shared("waste", account.wall_ns, now_ns)
            return
        shares = [0] * len(account.charges)
        if account.wall_ns:
            nusd = self._meter.spend(account.wall_ns)
            shares = split_exactly(nusd, [charge.time_ns for charge in account.charges])
        for charge, share in zip(account.charges, shares, strict=True):
            if charge.part.waste is not None:
                self._waste(charge, share, now_ns)
                continue
            entry = entries[charge.part.slice]
            entry.pay(charge, share)
            if self._money is not None:
                decode = entry.is_decode(report.slices[charge.part.slice])
                bought = DECODE if decode else PREFILL
                self._money.used(entry.tenant, bought, share, now_ns)

    def _waste(self, charge: Charge, nusd: int, now_ns: int) -> None:
        if charge.part.waste is WasteCause.RECOMPUTE:
            self._requests.wasted("recomputed", charge.part.tokens)
        elif charge.part.waste is WasteCause.OVERRUN:
            self._requests.wasted("overrun", charge.part.rows)
        if self._money is not None:
            self._money.shared("waste", nusd, now_ns)

    def _take_part(
        self,
        report: StepReport,
        account: StepAccount,
        entries: Sequence[Entry],
        wasted: Collection[int],
    ) -> None:
        batch = len(entries)
        for index, (piece, entry) in enumerate(zip(report.slices, entries, strict=True)):
            rent = entry.rent(piece.blocks, report.start_ns, report.end_ns)
            self._memory.rent(entry.tenant, rent)
            if index not in wasted:
                entry.took_part(piece, batch, account.wall_ns, account.regime)

    def _token(self, entry: Entry, mixed: bool, now_ns: int) -> None:
        if entry.overran:
            return
        if self._money is not None:
            first = entry.first_token_ns is None
            self._money.tokens(entry.prompt_tokens if first else 0, 1, now_ns)
        self._requests.token(entry, now_ns, mixed)
        entry.got_token(now_ns)
