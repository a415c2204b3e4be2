"""What requests spent in the steps that ran them: their own shares, by cause, and the others'."""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodel.account import LostCause, StepAccounts
from costmodel.charges import WASTE, WasteCause
from costmodel.split import Bools, Ints, columns_by
from telemetry.books.facts import Facts
from telemetry.spent.pieces import LOST, OF_STEPS

_RECOMPUTE: Final = WASTE.index(WasteCause.RECOMPUTE)
_OVERRUN: Final = WASTE.index(WasteCause.OVERRUN)
_FAILED: Final = WASTE.index(WasteCause.FAILED)
_HOST: Final = [cause for cause, _ in LOST].index(LostCause.HOST)


def pieces_by_request(facts: Facts, steps: StepAccounts) -> tuple[Ints, Ints]:
    """Sum up the pieces of each request's steps, and of those up to its first token.

    Shapes: [entries, pieces + 2] and [entries, pieces]; pieces as `OF_STEPS`, and then the prompt
        tokens of others in these steps, and the steps that had some.
    Invariant: a step adds its whole time to each request that it ran and that had not ended.
    """
    charges, parts = steps.charges, steps.charges.parts
    time_ns, floor_ns = charges.time_ns, charges.floor_ns
    own, decodes = parts.waste == 0, facts.decodes[parts.slice]
    here = _firsts(steps) & (parts.waste != _OVERRUN)  # once for each slice of one that lives
    columns = np.array(
        (
            *(floor_ns * (own & ~decodes), floor_ns * (own & decodes)),
            *_lost_by_cause(steps, own),
            *(time_ns * (parts.waste == _RECOMPUTE), time_ns * (parts.waste == _FAILED)),
            *(_of_others(steps, time_ns, kind) * here for kind in (~decodes, decodes)),
        )
    )
    prompts = _of_others(steps, parts.tokens, ~decodes) * here
    request, count = facts.requests[parts.slice], len(facts.entries)
    sums = columns_by(request, np.concatenate((columns, (prompts, prompts > 0))), count).T
    unanswered = np.array(facts.unanswered, bool)[parts.slice]
    if not unanswered.any():
        return sums, np.zeros((count, len(OF_STEPS)), np.int64)
    return sums, columns_by(request, columns * unanswered, count).T


def _lost_by_cause(steps: StepAccounts, own: Bools) -> Ints:
    """Share what each part lost by the causes of its step; what rounding leaves is host time.

    Shapes: [causes, parts].
    """
    charges, step = steps.charges, steps.charges.parts.step
    lost = (charges.time_ns - charges.floor_ns) * own
    of_steps = np.zeros((len(LOST), len(steps.wall_ns)), np.int64)
    for place, (cause, _) in enumerate(LOST):
        of_steps[place] = steps.lost_ns.get(cause, 0)
    rate = lost / np.maximum(of_steps.sum(axis=0), 1)[step]
    shares: Ints = (of_steps[:, step] * rate).astype(np.int64)
    shares[_HOST] += lost - shares.sum(axis=0)
    return shares


def _firsts(steps: StepAccounts) -> Bools:
    """Mark the first part of each slice."""
    places = steps.charges.parts.slice
    first = np.ones(len(places), bool)
    first[1:] = places[1:] > places[:-1]
    return first


def _of_others(steps: StepAccounts, values: Ints, kind: Bools) -> Ints:
    """Sum, for each part, what the other slices of its step have of a kind."""
    parts, of_kind = steps.charges.parts, (values * kind)[None]
    if parts.alone:
        return np.zeros(len(values), np.int64)
    of_step = columns_by(parts.step, of_kind, len(steps.wall_ns))[0]
    of_slice = columns_by(parts.slice, of_kind, len(steps.slices.step))[0]
    others: Ints = of_step[parts.step] - of_slice[parts.slice]
    return others
