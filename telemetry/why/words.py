"""A verdict in one sentence. Numbers round down."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from core.request import FinishReason
from telemetry.spent.pieces import Piece
from telemetry.why.case import Case
from telemetry.why.verdict import GROUPS, Code, Group, Part, Verdict

LONGEST_SENTENCE: Final = 220


def span(ns: float) -> str:
    """Write a time with three digits: milliseconds below a second."""
    value, unit = (ns / 1e9, "s") if ns >= 1e9 else (ns / 1e6, "ms")
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    scale = 10**digits
    return f"{math.floor(value * scale + 1e-9) / scale:.{digits}f} {unit}"


def sentence(case: Case, verdict: Verdict) -> str:
    """Say in one sentence what took the time."""
    if not verdict.slow:
        return _ended(case) + _not_slow(case, verdict)
    told = _MEANINGS[verdict.code](case, verdict)
    if verdict.also and verdict.code is not Code.SPREAD:
        (second,) = verdict.also
        told += f"; {_amount(verdict, second)} {_SHORT[second]}"
    return f"{_ended(case)}{_headline(case, verdict)}{told}."


# ── the parts of a sentence ──


def _ended(case: Case) -> str:
    """Tell first that it did not end by itself."""
    words = {
        FinishReason.ABORTED: "The client hung up. ",
        FinishReason.REFUSED: "Refused: it waited too long. ",
        FinishReason.FAILED: "It failed. ",
    }
    return "" if case.reason is None else words.get(case.reason, "")


def _headline(case: Case, verdict: Verdict) -> str:
    took = span(verdict.measured_ns)
    if verdict.part is Part.TTFT:
        return f"First token after {took}{_goal(verdict)}: "
    if verdict.part is Part.TOKENS and case.itl_ns is not None:
        ratio = ""
        if verdict.alone_ns:
            ratio = f", {verdict.measured_ns / verdict.alone_ns:.1f} × their floor"
        return f"Tokens {span(case.itl_ns)} each{_goal(verdict)}{ratio}: "
    return f"Answer after {took}{_goal(verdict)}: "


def _goal(verdict: Verdict) -> str:
    return "" if verdict.goal_ns is None else f", goal {span(verdict.goal_ns)}"


def _amount(verdict: Verdict, *pieces: Piece) -> str:
    ns = sum(verdict.spent_ns.get(piece, 0) for piece in pieces)
    return f"{span(ns)} ({100 * ns // max(verdict.measured_ns, 1)} %)"


def _not_slow(case: Case, verdict: Verdict) -> str:
    took, alone_ns = span(case.e2e_ns), verdict.alone_ns
    if case.tokens > 1 and case.itl_ns is not None:
        took = f"{case.tokens} tokens at {span(case.itl_ns)} each"
    if case.alone is None or not alone_ns:
        return f"Not slow: {took}."
    whole_ns = case.alone.prefill_ns + case.alone.decode_ns
    ratio = f"{case.e2e_ns / max(whole_ns, 1):.1f} × the {span(whole_ns)} that it takes at best"
    return f"Not slow: {took}, in all {span(case.e2e_ns)}, {ratio}."


def _behind(case: Case) -> str:
    others = case.behind - case.behind_own
    of_others = f", {others} of other tenants" if others else ""
    return f"behind {case.behind} {_plural('request', case.behind)}{of_others}"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _a_step(case: Case, verdict: Verdict, piece: Piece) -> str:
    return span(verdict.spent_ns.get(piece, 0) / max(case.steps, 1))


def _slots(case: Case, verdict: Verdict) -> str:
    slots = f"one of {case.limits.max_num_seqs} slots" if case.limits else "a slot"
    return f"{_amount(verdict, Piece.WAIT_SLOTS)} waiting for {slots} {_behind(case)}"


def _budget(case: Case, verdict: Verdict) -> str:
    size = f" of {case.limits.step_tokens} tokens" if case.limits else ""
    return f"{_amount(verdict, Piece.WAIT_BUDGET)} waiting for room in steps{size}"


def _kv(case: Case, verdict: Verdict) -> str:
    told = f"{_amount(verdict, *GROUPS[Group.KV])} for want of KV blocks"
    if not case.preemptions:
        return f"{told}, {_behind(case)}"
    times = f"{case.preemptions} {_plural('time', case.preemptions)}"
    return f"{told}: preempted {times}, {case.recomputed_tokens:,} tokens computed again"


def _others_prefill(case: Case, verdict: Verdict) -> str:
    work = f"{case.others_prompt_tokens:,} prompt tokens of others"
    where = f"in {case.others_prompt_steps} of its {case.steps} steps"
    gap = f"; longest gap {span(case.longest_gap_ns)}" if case.longest_gap_ns else ""
    return f"{_amount(verdict, Piece.OTHERS_PREFILL)} computing {work} {where}{gap}"


def _others_decode(case: Case, verdict: Verdict) -> str:
    others = f"{max(case.mean_batch - 1, 0):.1f} others that ran beside it"
    return f"{_amount(verdict, Piece.OTHERS_DECODE)} for {others}"


def _prompt(case: Case, verdict: Verdict) -> str:
    alone = case.alone
    assert alone is not None
    bound = "arithmetic" if alone.prefill_compute_bound else "bytes"
    count = f"{case.prompt_tokens - case.cached_tokens:,} uncached prompt tokens"
    amount = _share(alone.prefill_ns, verdict)
    return f"{amount} is the least that {count} take here, bound by {bound}"


def _tokens(case: Case, verdict: Verdict) -> str:
    alone = case.alone
    assert alone is not None
    bound = "arithmetic" if alone.decode_compute_bound else "bytes"
    each = span(alone.decode_ns / max(case.tokens - 1, 1))
    work = f"{case.tokens:,} tokens of {each} each at best, bound by {bound}"
    return f"{_share(alone.decode_ns, verdict)} is {work}"


def _share(ns: int, verdict: Verdict) -> str:
    return f"{span(ns)} ({100 * ns // max(verdict.measured_ns, 1)} %)"


def _spread(case: Case, verdict: Verdict) -> str:
    told = (f"{_amount(verdict, piece)} {_SHORT[piece]}" for piece in verdict.also)
    return f"spread over {', '.join(told)}"


def _plainly(words: str, piece: Piece) -> Callable[[Case, Verdict], str]:
    """Make the words of a piece that needs its amount alone."""
    return lambda case, verdict: f"{_amount(verdict, piece)} {words}"


def _by_step(words: str, piece: Piece) -> Callable[[Case, Verdict], str]:
    return lambda case, verdict: (
        f"{_amount(verdict, piece)} {words}, {_a_step(case, verdict, piece)} a step"
    )


_UNEXPLAINED: Final = "the records do not say why"
_MEANINGS: Final[Mapping[Piece | Code, Callable[[Case, Verdict], str]]] = {
    Piece.WAIT_SLOTS: _slots,
    Piece.WAIT_BUDGET: _budget,
    Piece.WAIT_STEP: _plainly("waiting for the step that ran when it came", Piece.WAIT_STEP),
    **dict.fromkeys(GROUPS[Group.KV], _kv),
    Piece.OTHERS_PREFILL: _others_prefill,
    Piece.OTHERS_DECODE: _others_decode,
    Piece.SAT_OUT: _plainly("in steps that had no room for it", Piece.SAT_OUT),
    Piece.MEMORY_SHORTFALL: _plainly(
        f"above the floor of its bytes; {_UNEXPLAINED}", Piece.MEMORY_SHORTFALL
    ),
    Piece.COMPUTE_SHORTFALL: _plainly(
        f"above the floor of its arithmetic; {_UNEXPLAINED}", Piece.COMPUTE_SHORTFALL
    ),
    Piece.UNKNOWN_PEAK: _plainly("in forward passes; no peak is known", Piece.UNKNOWN_PEAK),
    Piece.SAMPLE: _by_step("in sampling", Piece.SAMPLE),
    Piece.HOST: _by_step("in the engine's own Python", Piece.HOST),
    Piece.FAILED: _plainly("in steps that failed", Piece.FAILED),
    Piece.ACCEPT: _plainly("before it reached the engine", Piece.ACCEPT),
    Piece.GRAMMAR: _plainly("compiling its grammar", Piece.GRAMMAR),
    Piece.DELIVER: _plainly("between a step's end and its tokens' sending", Piece.DELIVER),
    Code.PROMPT: _prompt,
    Code.TOKENS: _tokens,
    Code.SPREAD: _spread,
}
_SHORT: Final[Mapping[Piece, str]] = {
    Piece.ACCEPT: "before the engine had it",
    Piece.GRAMMAR: "for its grammar",
    Piece.WAIT_STEP: "for the step that ran",
    Piece.WAIT_KV: "for KV blocks",
    Piece.WAIT_SLOTS: "for a slot",
    Piece.WAIT_BUDGET: "for room in a step",
    Piece.FLOOR_PREFILL: "its prompt's floor",
    Piece.FLOOR_DECODE: "its tokens' floor",
    Piece.MEMORY_SHORTFALL: "above the floor of bytes",
    Piece.COMPUTE_SHORTFALL: "above the floor of arithmetic",
    Piece.UNKNOWN_PEAK: "without a known peak",
    Piece.SAMPLE: "sampling",
    Piece.HOST: "the engine's Python",
    Piece.RECOMPUTE: "computing again",
    Piece.FAILED: "in failed steps",
    Piece.OTHERS_PREFILL: "others' prompts",
    Piece.OTHERS_DECODE: "others' tokens",
    Piece.STALLED: "preempted",
    Piece.SAT_OUT: "in steps without it",
    Piece.DELIVER: "until it was sent",
}
