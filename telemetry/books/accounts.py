"""What a burst of steps cost, and who pays: the account of each step, and its price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from costmodel.account import StepAccounts, account_steps
from costmodel.saving import Saving, saving_of
from costmodel.slices import ints
from costmodel.split import Ints, split_exactly
from telemetry.bill.money import TimePrice
from telemetry.books.facts import Facts
from telemetry.engine.model import EngineModel


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstAccounts:
    """Units: `nusd` 1e-9 US dollars, 0 where time has no price."""

    steps: StepAccounts
    step_nusd: Ints  # of each step
    unused_nusd: Ints  # of the time before each step in which no step ran
    part_nusd: Ints  # of each part of `steps.charges`: its exact share of its step's
    saving: Saving  # what the prefix index bought


class Book(Protocol):
    """Whatever is written from steps: a family of series, the bills, the history."""

    def take(self, facts: Facts, accounts: BurstAccounts) -> None: ...


def account_burst(engine: EngineModel, price: TimePrice, facts: Facts) -> BurstAccounts:
    """Account for the steps of a burst.

    Mutates: `price`, which has then sold the time of the steps and the time before each.
    """
    sums, peaks = engine.sums, engine.peaks
    steps = account_steps(sums, peaks, facts.reports, facts.slices, facts.wasted)
    unused_nusd, step_nusd = [], []
    for unused_ns, wall_ns in zip(facts.unused_ns, steps.wall_ns.tolist(), strict=True):
        unused_nusd.append(price.of_next(unused_ns) if unused_ns else 0)
        step_nusd.append(price.of_next(wall_ns))
    nusd, parts = ints(step_nusd), steps.charges.parts
    shares = split_exactly(nusd, steps.charges.time_ns, parts.step) if nusd.any() else None
    return BurstAccounts(
        steps=steps,
        step_nusd=nusd,
        unused_nusd=ints(unused_nusd),
        part_nusd=np.zeros_like(parts.step) if shares is None else shares,
        saving=saving_of(sums, peaks, steps),
    )
