"""Slow or not, and by what: chosen from a request's pieces alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from telemetry.spent.pieces import Piece
from telemetry.why.case import Case

SLOW_RATIO: Final = 3  # without a goal: times what it would take alone …
SLOW_NS: Final = 50_000_000  # … and so much longer
_OWN_PART: Final = 0.8  # of the time above, for the part to stand for the whole
_LEAST_GROUP: Final = 0.35  # of what is above the floor; else the time is spread
_SECOND_GROUP: Final = 0.5  # of the first


class Part(StrEnum):
    """What of a request is judged."""

    TTFT = "ttft"
    TOKENS = "tokens"  # after the first one
    E2E = "e2e"


_PART_OF: Final = {"ttft": Part.TTFT, "itl": Part.TOKENS, "e2e": Part.E2E}


class Group(StrEnum):
    """Pieces that the same thing would help."""

    KV = "kv"
    QUEUE = "queue"
    SHARING = "sharing"
    SERVER = "server"
    LOSS = "loss"


GROUPS: Final[Mapping[Group, tuple[Piece, ...]]] = {
    Group.KV: (Piece.WAIT_KV, Piece.STALLED, Piece.RECOMPUTE),
    Group.QUEUE: (Piece.WAIT_STEP, Piece.WAIT_SLOTS, Piece.WAIT_BUDGET),
    Group.SHARING: (Piece.OTHERS_PREFILL, Piece.OTHERS_DECODE, Piece.SAT_OUT),
    Group.SERVER: (Piece.ACCEPT, Piece.GRAMMAR, Piece.DELIVER),
    Group.LOSS: (
        *(Piece.MEMORY_SHORTFALL, Piece.COMPUTE_SHORTFALL, Piece.UNKNOWN_PEAK),
        *(Piece.SAMPLE, Piece.HOST, Piece.FAILED),
    ),
}
_FLOORS: Final = (Piece.FLOOR_PREFILL, Piece.FLOOR_DECODE)


class Code(StrEnum):
    """What made it slow: a piece, the work itself, or nothing by itself."""

    PROMPT = "prompt"  # alone it would have missed its goal too
    TOKENS = "tokens"
    SPREAD = "spread"  # no group of pieces holds enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A judgement before it is put into words. Units: ns."""

    part: Part
    slow: bool
    goal_ns: int | None  # that it missed
    measured_ns: int
    alone_ns: int | None
    code: Piece | Code
    also: tuple[Piece, ...]
    spent_ns: Mapping[Piece, int]  # of the part


def judge(case: Case) -> Verdict:
    """Choose the part that was slow, and what most of the time above its floor went to."""
    part, goal_ns = _missed(case)
    slow = goal_ns is not None
    if not case.goals_ns and case.alone is not None:
        above_ns = case.e2e_ns - _alone_ns(case, Part.E2E)
        slow = above_ns > SLOW_NS and case.e2e_ns > SLOW_RATIO * (case.e2e_ns - above_ns)
        part = _largest_part(case, above_ns)
    spent_ns, measured_ns = spent_in(case, part), measured_in(case, part)
    alone_ns = None if case.alone is None else _alone_ns(case, part)
    code: Piece | Code
    also: tuple[Piece, ...] = ()
    per_token = max(case.tokens - 1, 1) if part is Part.TOKENS else 1
    if not slow or (goal_ns and alone_ns and alone_ns > goal_ns * per_token):
        code = _work(case, part)
    else:
        code, also = _cause(spent_ns, measured_ns)
    return Verdict(
        part=part,
        slow=slow,
        goal_ns=goal_ns,
        measured_ns=measured_ns,
        alone_ns=alone_ns,
        code=code,
        also=also,
        spent_ns=spent_ns,
    )


def spent_in(case: Case, part: Part) -> dict[Piece, int]:
    """Give the pieces of a part that are above zero."""
    if part is Part.TTFT:
        return dict(case.first_ns)
    if part is Part.E2E:
        return dict(case.spent_ns)
    rest = {piece: ns - case.first_ns.get(piece, 0) for piece, ns in case.spent_ns.items()}
    return {piece: ns for piece, ns in rest.items() if ns > 0}


def measured_in(case: Case, part: Part) -> int:
    if part is Part.TTFT:
        return case.ttft_ns or 0
    return case.e2e_ns - (case.ttft_ns or 0 if part is Part.TOKENS else 0)


def _missed(case: Case) -> tuple[Part, int | None]:
    """Give the goal that was missed by most, and its part."""
    measured_ns = {"ttft": case.ttft_ns, "itl": case.itl_ns, "e2e": case.e2e_ns}
    ratios = {
        name: ns / max(goal_ns, 1)
        for name, goal_ns in case.goals_ns.items()
        if (ns := measured_ns[name]) is not None
    }
    worst = max(ratios, key=ratios.__getitem__, default=None)
    if worst is None or ratios[worst] <= 1:
        return Part.E2E, None
    return _PART_OF[worst], case.goals_ns[worst]


def _largest_part(case: Case, above_ns: int) -> Part:
    """Say before or after the first token, if most of what is above its floor lies there."""
    if case.ttft_ns is None:
        return Part.E2E
    for part in (Part.TTFT, Part.TOKENS):
        if measured_in(case, part) - _alone_ns(case, part) >= _OWN_PART * above_ns:
            return part
    return Part.E2E


def _alone_ns(case: Case, part: Part) -> int:
    assert case.alone is not None
    prefill_ns, decode_ns = case.alone.prefill_ns, case.alone.decode_ns
    return {Part.TTFT: prefill_ns, Part.TOKENS: decode_ns}.get(part, prefill_ns + decode_ns)


def _work(case: Case, part: Part) -> Code:
    """Say which work makes up the most of a part's floor."""
    alone = case.alone
    decodes = alone is not None and alone.decode_ns > alone.prefill_ns
    return Code.TOKENS if part is Part.TOKENS or (part is Part.E2E and decodes) else Code.PROMPT


def _cause(
    spent_ns: Mapping[Piece, int], measured_ns: int
) -> tuple[Piece | Code, tuple[Piece, ...]]:
    """Choose the largest piece of the largest group, and of the second where it is near."""
    above_ns = measured_ns - sum(spent_ns.get(piece, 0) for piece in _FLOORS)
    sums = {g: sum(spent_ns.get(piece, 0) for piece in GROUPS[g]) for g in Group}
    first, second = sorted(Group, key=sums.__getitem__, reverse=True)[:2]

    def largest(group: Group) -> Piece:
        return max(GROUPS[group], key=lambda piece: spent_ns.get(piece, 0))

    if sums[first] < _LEAST_GROUP * above_ns or not sums[first]:
        held = (piece for piece in spent_ns if piece not in _FLOORS)
        return Code.SPREAD, tuple(sorted(held, key=spent_ns.__getitem__, reverse=True)[:3])
    near = sums[second] >= _SECOND_GROUP * sums[first]
    return largest(first), (largest(second),) if near else ()
