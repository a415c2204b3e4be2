"""Books money by tenant and by what it bought, and the price of a million tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from costmodel.slices import ints
from costmodel.split import sums_by
from telemetry.books.accounts import Booked
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

    def take(self, bursts: Sequence[Booked]) -> None:
        """Put money on the tenants' accounts, waste and unused time on the shared one."""
        paid_nusd = 0
        for facts, accounts in bursts:
            for entry, own in zip(facts.entries, accounts.paid, strict=True):
                paid_nusd += own.nusd
                prefill_nusd = own.nusd - own.decode_nusd
                for component, nusd in (("prefill", prefill_nusd), ("decode", own.decode_nusd)):
                    if nusd:
                        self._charge(entry.tenant, component, nusd)
        all_facts, all_accounts = zip(*bursts, strict=True)
        step_nusd, unused_nusd, own_nusd, decode_nusd = (
            np.concatenate([getattr(accounts, name) for accounts in all_accounts])
            for name in ("step_nusd", "unused_nusd", "own_nusd", "decode_nusd")
        )
        self._charge(SHARED_TENANT, "waste", int(step_nusd.sum()) - paid_nusd)
        self._charge(SHARED_TENANT, "idle", int(unused_nusd.sum()))
        sent_ns, prompt_tokens, generated_tokens = (
            ints([number for facts in all_facts for number in getattr(facts, name)])
            for name in ("sent_ns", "prompt_tokens", "generated_tokens")
        )
        begins = accumulate((len(facts.reports) for facts in all_facts), initial=0)
        step = np.concatenate(
            [b + a.steps.charges.parts.step for b, a in zip(begins, all_accounts, strict=False)]
        )
        own_nusd, decode_nusd = (
            sums_by(step, nusd, len(step_nusd)) for nusd in (own_nusd, decode_nusd)
        )
        spent = (own_nusd - decode_nusd, decode_nusd, step_nusd + unused_nusd)
        self._minute.record_all(sent_ns, np.array((*spent, prompt_tokens, generated_tokens)))

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
