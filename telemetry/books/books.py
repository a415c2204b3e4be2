"""Applies steps and ends to the requests they belong to: stages, tokens, charges, money, rent."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from core.request import FinishReason
from core.wire import Ended, StepReport
from costmodel.account import StepAccounts
from costmodel.charges import WASTE, Parts, WasteCause
from costmodel.floor import REGIMES
from costmodel.slices import ints
from costmodel.split import Bools, Ints, split_exactly, sums_by
from telemetry.bill.money import Meter
from telemetry.books.burst import Burst
from telemetry.books.ledger import Ledger
from telemetry.series.labels import DECODE, KINDS, MIXED, PREFILL, SHARED_TENANT
from telemetry.series.memory import MemoryMeters
from telemetry.series.money import MoneyMeters
from telemetry.series.requests import RequestMeters

_RECOMPUTE, _OVERRUN = WASTE.index(WasteCause.RECOMPUTE), WASTE.index(WasteCause.OVERRUN)


def decodes_of(burst: Burst, accounts: StepAccounts) -> Bools:
    """Say of each slice whether it is of an answer; others are of prompts, or run tokens again."""
    slices = accounts.slices
    prompts = ints([entry.prompt_tokens for entry in burst.entries])[ints(burst.seats)]
    decodes: Bools = (slices.start >= prompts) & (slices.recomputed == 0)
    return decodes


def kinds_of(decodes: Bools, accounts: StepAccounts) -> Ints:
    """Name each step, by its place in `KINDS`: all of prompts, all of answers, or both."""
    slices = accounts.slices
    count = sums_by(slices.step, decodes, slices.steps)
    pure = np.where(count == slices.counts, KINDS.index(DECODE), KINDS.index(MIXED))
    return np.where((count == 0) & (slices.counts > 0), KINDS.index(PREFILL), pure)


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

    def take(
        self, report: StepReport, sent_ns: int, seats: list[int], shared_ns: int, burst: Burst
    ) -> None:
        """Move a step's requests on and give them their tokens; `shared_ns` lay before it."""
        shared_nusd = self._meter.spend(shared_ns) if shared_ns else 0
        nusd = self._meter.spend(report.end_ns - report.start_ns)
        burst.add(report, sent_ns, seats, shared_nusd, nusd)
        for id in report.preempted:
            self._ledger[id].preempted(report.start_ns)
            self._requests.preempted()
        for id in report.admitted:
            self._ledger[id].admitted(report.start_ns)
        self._take_tokens(report, sent_ns, burst)
        self.end(report.ended, sent_ns)

    def _take_tokens(self, report: StepReport, sent_ns: int, burst: Burst) -> None:
        step, generated = len(burst.reports) - 1, 0
        entries, seat_of, gaps_ns = burst.entries, burst.seat_of, burst.gaps_ns
        for id, _ in report.tokens:
            entry = entries[seat_of[id]]
            if entry.finish_tokens is not None and entry.overran:
                continue
            generated += 1
            if entry.first_token_ns is None:
                burst.prompt_tokens[step] += entry.usage_prompt_tokens
                self._requests.first_token(sent_ns - entry.received_ns)
            elif entry.resumed:
                self._requests.resumed(sent_ns - entry.last_token_ns)
            else:
                gaps_ns.append(sent_ns - entry.last_token_ns)
            entry.got_token(sent_ns)
        burst.gap_steps += [step] * (len(gaps_ns) - len(burst.gap_steps))
        burst.generated_tokens[step] = generated

    def charge(self, burst: Burst, accounts: StepAccounts) -> Ints:
        """Make the requests of a burst pay for its steps.

        Returns: the kind of each step, by its place in `KINDS`.
        """
        decodes = decodes_of(burst, accounts)
        kinds = kinds_of(decodes, accounts)
        seats, parts = ints(burst.seats), accounts.charges.parts
        shares = np.zeros_like(parts.step)
        if self._money is not None:
            shares = split_exactly(ints(burst.nusd), accounts.charges.time_ns, parts.step)
            self._book_money(self._money, burst, parts, shares, decodes[parts.slice])
        self._pay(burst, accounts, seats[parts.slice], shares)
        rents = sums_by(seats, ints(burst.rents), len(burst.entries)).tolist()
        for entry, rent in zip(burst.entries, rents, strict=True):
            self._memory.rent(entry.tenant, rent)
        self._requests.tokens(sum(burst.prompt_tokens), sum(burst.generated_tokens))
        mixed = (kinds == KINDS.index(MIXED))[ints(burst.gap_steps)]
        self._requests.gaps(ints(burst.gaps_ns), mixed)
        again, over = (parts.waste == cause for cause in (_RECOMPUTE, _OVERRUN))
        self._requests.wasted("recomputed", int(parts.tokens[again].sum()))
        self._requests.wasted("overrun", int(parts.rows[over].sum()))
        return kinds

    def _pay(self, burst: Burst, accounts: StepAccounts, seats: Ints, nusd: Ints) -> None:
        """Sum each request's charges, and the steps that served it, and put them on its bill."""
        charges, parts, count = accounts.charges, accounts.charges.parts, len(burst.entries)
        own = parts.waste == 0
        columns = (
            *(charges.bytes_read, charges.bytes_written, charges.flops),
            *(charges.floor_ns, charges.time_ns, nusd),
        )
        paid = [sums_by(seats, column * own, count).tolist() for column in columns]
        # a slice served its request, were it to run tokens again, unless it failed or overran;
        # its first part stands for it
        served = (np.diff(parts.slice, prepend=-1) > 0) & (parts.waste <= _RECOMPUTE)
        places = len(REGIMES) + 1  # the last is of steps without a floor
        keys = seats * places + accounts.regimes[parts.step]
        wall_ns = accounts.wall_ns[parts.step] * served
        batch = accounts.slices.counts[parts.step] * served
        again = parts.tokens * (parts.waste == _RECOMPUTE)
        by_regime = (
            sums_by(keys, column, count * places).reshape(count, places).tolist()
            for column in (served, wall_ns)
        )
        sums = (sums_by(seats, column, count).tolist() for column in (batch, again))
        for entry, charged, part in zip(
            burst.entries, zip(*paid, strict=True), zip(*by_regime, *sums, strict=True), strict=True
        ):
            entry.pay(*charged)
            entry.took_part(*part)

    def _book_money(
        self, money: MoneyMeters, burst: Burst, parts: Parts, shares: Ints, decodes: Bools
    ) -> None:
        """Put money on the tenants' accounts, waste and idle on the shared one."""
        own = shares * (parts.waste == 0)
        bought = {PREFILL: own * ~decodes, DECODE: own * decodes}
        seats = ints(burst.seats)[parts.slice]
        for component, nusd in bought.items():
            by_seat = sums_by(seats, nusd, len(burst.entries)).tolist()
            for entry, amount in zip(burst.entries, by_seat, strict=True):
                if amount:
                    money.book(entry.tenant, component, amount)
        money.book(SHARED_TENANT, "waste", sum(burst.nusd) - int(own.sum()))
        money.book(SHARED_TENANT, "idle", sum(burst.shared_nusd))
        prefill, decode = (
            sums_by(parts.step, nusd, len(burst.reports)) for nusd in bought.values()
        )
        total = ints(burst.nusd) + ints(burst.shared_nusd)
        tokens = ints(burst.prompt_tokens), ints(burst.generated_tokens)
        money.spent_by_steps((prefill, decode, total, *tokens), ints(burst.sent_ns))

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
