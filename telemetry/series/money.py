"""Books money by tenant and by what it bought, and the price of a million tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from costmodel.split import Ints
from telemetry.series.labels import SHARED_TENANT
from telemetry.series.registry import Instruments, Tally
from telemetry.series.window import Window

NUSD: Final = 1e-9

_PRICE_WINDOW_S: Final = 60


class Spent(NamedTuple):
    """What a step came to, and the tokens that it made part of an answer."""

    prefill_nusd: int = 0
    decode_nusd: int = 0
    total_nusd: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0


class MoneyMeters:
    """Exists only where there is a price."""

    def __init__(self, make: Instruments, nusd_per_hour: int) -> None:
        make.gauge("price_usd_per_hour").set(nusd_per_hour * NUSD)
        self._make = make
        self._cost: dict[tuple[str, str], Tally] = {}  # bounded: the ledger bounds tenants
        self._per_million = {
            (direction, basis): make.gauge(
                "cost_usd_per_million_tokens", direction=direction, basis=basis
            )
            for direction in ("input", "output")
            for basis in ("usage", "allocation")
        }
        self._window = Window(_PRICE_WINDOW_S, len(Spent._fields))

    def shared(self, component: str, nusd: int, now_ns: int) -> None:
        """Book idle or waste, which no tenant pays for."""
        self.book(SHARED_TENANT, component, nusd)
        self.spent(Spent(total_nusd=nusd), now_ns)

    def spent(self, spent: Spent, now_ns: int) -> None:
        """Take what some time came to into the last minute's price."""
        self._window.add(now_ns, spent)

    def spent_by_steps(self, columns: Sequence[Ints], now_ns: Ints) -> None:
        """Take what steps came to into it; the columns are those of `Spent`."""
        self._window.add_all(now_ns, columns)

    def book(self, tenant: str, component: str, nusd: int) -> None:
        """Put money on a tenant's account."""
        key = (tenant, component)
        if key not in self._cost:
            self._cost[key] = self._make.tally(
                "cost_usd_total", NUSD, tenant=tenant, component=component
            )
        self._cost[key].add(nusd)

    def refresh(self, now_ns: int) -> None:
        """Price the last minute's tokens; without tokens there is no price of one."""
        prefill, decode, total, prompt, generated = self._window.sums(now_ns)
        spread = total / (prefill + decode) if prefill + decode else math.nan
        for direction, nusd, tokens in (("input", prefill, prompt), ("output", decode, generated)):
            usd = nusd * NUSD * 1e6 / tokens if tokens else math.nan
            self._per_million[direction, "usage"].set(usd)
            self._per_million[direction, "allocation"].set(usd * spread)
