"""Books money by tenant and by what it bought, and the price of a million tokens."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from costmodel.slices import ints
from costmodel.split import sums_by
from telemetry.books.accounts import BurstAccounts
from telemetry.books.facts import Facts
from telemetry.books.ledger import SHARED_TENANT
from telemetry.series.recent_sums import RecentSums
from telemetry.series.registry import Counter, Instruments

NUSD: Final = 1e-9

_PRICE_WINDOW_S: Final = 60


class MoneySeries:
    """Exists only where there is a price."""

    def __init__(self, make: Instruments, nusd_per_hour: int) -> None:
        make.gauge("price_usd_per_hour").set(nusd_per_hour * NUSD)
        self._make = make
        self._cost: dict[tuple[str, str], Counter] = {}  # bounded: the ledger bounds tenants
        self._per_million = {
            (direction, basis): make.gauge(
                "cost_usd_per_million_tokens", direction=direction, basis=basis
            )
            for direction in ("input", "output")
            for basis in ("usage", "allocation")
        }
        # nano-USD of prefill, of decode, of all time; tokens of prompts and of answers
        self._minute = RecentSums(_PRICE_WINDOW_S, 5)

    def take(self, facts: Facts, accounts: BurstAccounts) -> None:
        """Put money on the tenants' accounts, waste and unused time on the shared one."""
        paid_nusd = 0
        for entry, own in zip(facts.entries, accounts.shares, strict=True):
            paid_nusd += own.nusd
            for component, nusd in (
                ("prefill", own.nusd - own.decode_nusd),
                ("decode", own.decode_nusd),
            ):
                if nusd:
                    self._charge(entry.tenant, component, nusd)
        self._charge(SHARED_TENANT, "waste", int(accounts.step_nusd.sum()) - paid_nusd)
        self._charge(SHARED_TENANT, "idle", int(accounts.unused_nusd.sum()))
        parts, steps = accounts.steps.charges.parts, len(facts.reports)
        own_nusd = accounts.part_nusd * (parts.waste == 0)
        own_by_step = sums_by(parts.step, own_nusd, steps)
        decode_by_step = sums_by(parts.step, own_nusd * facts.decodes[parts.slice], steps)
        spent = (
            *(own_by_step - decode_by_step, decode_by_step),
            accounts.step_nusd + accounts.unused_nusd,
            *(facts.prompt_tokens, facts.generated_tokens),
        )
        self._minute.record_all(ints(facts.sent_ns), np.array(spent))

    def shared(self, component: str, nusd: int, now_ns: int) -> None:
        """Book time that no tenant pays for: idle or waste."""
        self._charge(SHARED_TENANT, component, nusd)
        self._minute.record(now_ns, (0, 0, nusd, 0, 0))

    def _charge(self, tenant: str, component: str, nusd: int) -> None:
        key = (tenant, component)
        if key not in self._cost:
            self._cost[key] = self._make.counter(
                "cost_usd_total", NUSD, tenant=tenant, component=component
            )
        self._cost[key].inc(nusd)

    def refresh(self, now_ns: int) -> None:
        """Price the last minute's tokens; NaN where there were none."""
        prefill, decode, total, prompt, generated = self._minute.sums(now_ns)
        spread = total / (prefill + decode) if prefill + decode else math.nan
        for direction, nusd, tokens in (("input", prefill, prompt), ("output", decode, generated)):
            usd = nusd * NUSD * 1e6 / tokens if tokens else math.nan
            self._per_million[direction, "usage"].set(usd)
            self._per_million[direction, "allocation"].set(usd * spread)
