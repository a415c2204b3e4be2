"""Writes on each request's entry what the steps of a burst charge it."""

from __future__ import annotations

import numpy as np

from costmodel.charges import WASTE, WasteCause
from costmodel.floor import REGIMES
from costmodel.split import Bools, Ints, sums_by
from telemetry.books.accounts import BurstAccounts
from telemetry.books.facts import Facts

_RECOMPUTE = WASTE.index(WasteCause.RECOMPUTE)


class Bills:
    """Invariant: what a step cost = what its requests paid + waste, to the unit."""

    def take(self, facts: Facts, accounts: BurstAccounts) -> None:
        """Charge each request its parts of the steps, and count the steps that served it."""
        steps, charges, parts = accounts.steps, accounts.steps.charges, accounts.steps.charges.parts
        entries, requests = facts.entries, facts.requests[accounts.steps.charges.parts.slice]

        def by_request(column: Ints | Bools) -> list[int]:
            sums: list[int] = sums_by(requests, column, len(entries)).tolist()
            return sums

        own = parts.waste == 0
        paid = (
            *(charges.bytes_read, charges.bytes_written, charges.flops),
            *(charges.floor_ns, charges.time_ns, accounts.part_nusd),
        )
        for entry, *amounts in zip(entries, *(by_request(c * own) for c in paid), strict=True):
            entry.pay(*amounts)

        # A slice served its request unless it failed or overran; a recomputed one did too. Its
        # first part stands for it.
        served = (np.diff(parts.slice, prepend=-1) > 0) & (parts.waste <= _RECOMPUTE)
        places = len(REGIMES) + 1  # the last is of steps without a floor
        keys = requests * places + steps.regimes[parts.step]

        def by_regime(column: Ints | Bools) -> list[list[int]]:
            sums = sums_by(keys, column, len(entries) * places)
            rows: list[list[int]] = sums.reshape(len(entries), places).tolist()
            return rows

        counts, wall_ns = by_regime(served), by_regime(steps.wall_ns[parts.step] * served)
        batch = by_request(steps.slices.counts[parts.step] * served)
        again = by_request(parts.tokens * (parts.waste == _RECOMPUTE))
        for entry, part in zip(
            entries, zip(counts, wall_ns, batch, again, strict=True), strict=True
        ):
            entry.took_part(*part)
