"""What a burst of steps cost, and who pays: each step's account and price, each one's share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from costmodel.account import StepAccounts, account_steps
from costmodel.charges import WASTE, WasteCause
from costmodel.floor import REGIMES
from costmodel.saving import Saving, saving_of
from costmodel.slices import ints
from costmodel.split import Ints, columns_by
from telemetry.bill.entry import Entry, Paid
from telemetry.bill.money import TimePrice
from telemetry.books.facts import Facts
from telemetry.books.pieces import pieces_by_request
from telemetry.engine.model import EngineModel
from telemetry.engine.proven import ProvenPeaks

_RECOMPUTE = WASTE.index(WasteCause.RECOMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstAccounts:
    """Units: `nusd` 1e-9 US dollars, 0 where time has no price.

    Invariant: what a step cost = what its requests paid + waste, to the unit.
    """

    engine: EngineModel  # with the peaks that the steps were held against
    steps: StepAccounts
    step_nusd: Ints  # of each step
    unused_nusd: Ints  # of the time before each step in which no step ran
    own_nusd: Ints  # of each part of `steps.charges`: its exact share of its step's; 0 of waste
    decode_nusd: Ints  # and only where it is of an answer
    paid: Sequence[Paid]  # of each of the facts' entries
    pieces: Ints  # of each of them, as `OF_STEPS`: where its steps' time went
    first_pieces: Ints  # and that of its steps up to the first token
    saving: Saving  # what the prefix index bought

    def pay(self, entries: Sequence[Entry]) -> None:
        """Put each request's shares on its bill."""
        shares = (self.paid, self.pieces.tolist(), self.first_pieces.tolist())
        for entry, paid, pieces, first_pieces in zip(entries, *shares, strict=True):
            entry.pay(paid, pieces, first_pieces)


class Booked(NamedTuple):
    """A burst that is on the bills."""

    facts: Facts
    accounts: BurstAccounts


class Book(Protocol):
    """A family of series that is written from steps."""

    def take(self, bursts: Sequence[Booked]) -> None: ...


def account_burst(
    engine: EngineModel, proven: ProvenPeaks, price: TimePrice, facts: Facts
) -> BurstAccounts:
    """Account for the steps of a burst, against the peaks that they prove themselves.

    Mutates: `proven`; `price`, which has then sold the time of the steps and the time before each.
    """
    records = (facts.reports, facts.slices, facts.wasted)
    share = engine.checkpoint_share
    steps = account_steps(engine.sums, engine.peaks, *records, share)
    if steps.violation.any():
        peaks = proven.learn(engine.peaks, facts.reports, steps)
        if peaks is not engine.peaks:
            engine = engine.with_peaks(peaks)
            steps = account_steps(engine.sums, peaks, *records, share)
    spent_ns = np.array((facts.unused_ns, steps.wall_ns)).T.ravel()
    unused_nusd, step_nusd = ints(price.of_all(spent_ns.tolist())).reshape(-1, 2).T
    parts = steps.charges.parts
    own_nusd = parts.share(step_nusd, steps.charges.time_ns) * (parts.waste == 0)
    decode_nusd = own_nusd * facts.decodes[parts.slice]
    pieces, first_pieces = pieces_by_request(facts, steps)
    return BurstAccounts(
        engine=engine,
        steps=steps,
        step_nusd=step_nusd,
        unused_nusd=unused_nusd,
        own_nusd=own_nusd,
        decode_nusd=decode_nusd,
        paid=paid_by_request(facts, steps, own_nusd, decode_nusd),
        pieces=pieces,
        first_pieces=first_pieces,
        saving=saving_of(engine.sums, engine.peaks, steps),
    )


def paid_by_request(
    facts: Facts, steps: StepAccounts, own_nusd: Ints, decode_nusd: Ints
) -> list[Paid]:
    """Sum up what each request pays of the steps, and the steps that served it.

    A slice served its request unless it failed or overran; a recomputed one did too. Its first
    part stands for it.
    """
    charges, parts = steps.charges, steps.charges.parts
    own, again = parts.waste == 0, parts.waste == _RECOMPUTE
    served = own | again
    served[1:] &= parts.slice[1:] > parts.slice[:-1]
    decodes = facts.decodes[parts.slice]
    wall_ns, regimes = steps.wall_ns[parts.step], steps.regimes[parts.step]
    paid = (
        *(charges.bytes_read, charges.bytes_written, charges.flops),
        *(charges.floor_ns, charges.floor_ns * decodes, charges.checkpoint_floor_ns),
        *(charges.time_ns, charges.time_ns * decodes),
        *(own_nusd, decode_nusd),
    )
    met = (
        *(np.ones_like(wall_ns), steps.slices.counts[parts.step], regimes == len(REGIMES)),
        *(wall_ns, *(wall_ns * (regimes == place) for place in range(len(REGIMES)))),
    )
    columns = np.array((*paid, *met, parts.tokens))
    columns[: len(paid)] *= own
    columns[len(paid) : -1] *= served
    columns[-1] *= again
    sums = columns_by(facts.requests[parts.slice], columns, len(facts.entries))
    return list(map(Paid._make, sums.T.tolist()))
