"""What would help, where the records carry the arithmetic of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from telemetry.spent.pieces import Piece
from telemetry.why.case import Case, Limits
from telemetry.why.verdict import GROUPS, Code, Group, Verdict
from telemetry.why.words import span

LONGEST_ADVICE: Final = 160
_LEAST_STEP_TOKENS: Final = 16
_GRAMMARS_KEPT: Final = 32
_USUAL_GAP_NS: Final = 20_000_000  # between tokens, where the operator set no goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What would help; `basis` says whether its number was counted or is arithmetic."""

    text: str
    flag: str | None = None
    value: int | str | None = None
    basis: str = "counted"


def advice(case: Case, verdict: Verdict) -> list[Advice]:
    """Say what would help, where the records say so."""
    if not verdict.slow:
        return []
    given = _ADVICE.get(verdict.code)
    found = given(case, verdict) if given else None
    return [found] if found else []


def _more_slots(case: Case, verdict: Verdict) -> Advice | None:
    if case.limits is None:
        return None
    if not case.room_for:
        return Advice(text="no KV blocks were free for more: another replica, or --kv-memory")
    slots = case.limits.max_num_seqs + case.room_for
    free = f"KV blocks for {case.room_for:,} more were free"
    return Advice(text=f"{free}: --max-num-seqs {slots}", flag="--max-num-seqs", value=slots)


def _larger_steps(case: Case, verdict: Verdict) -> Advice | None:
    if case.limits is None:
        return None
    tokens = 2 * case.limits.step_tokens
    text = f"--max-num-batched-tokens {tokens}, or --slo itl=… to size steps by a goal"
    return Advice(text=text, flag="--max-num-batched-tokens", value=tokens)


def _smaller_steps(case: Case, verdict: Verdict) -> Advice | None:
    """Size a step so that its prompts fit a goal, by what prompt tokens of others took here."""
    goal_ns, limits = case.goals_ns.get("itl", _USUAL_GAP_NS), case.limits
    if limits is None or not case.others_prompt_tokens or case.itl_ns is None:
        return None
    spent_ns = case.spent_ns.get(Piece.OTHERS_PREFILL, 0)
    each_ns = spent_ns / case.others_prompt_tokens
    alone_ns = case.itl_ns - spent_ns / max(case.tokens - 1, 1)
    tokens = int((goal_ns - alone_ns) / each_ns) // _LEAST_STEP_TOKENS * _LEAST_STEP_TOKENS
    if not _LEAST_STEP_TOKENS <= tokens < limits.step_tokens:
        return None
    text = f"--max-num-batched-tokens {tokens} keeps such a step at or under {span(goal_ns)}"
    flag = "--max-num-batched-tokens"
    return Advice(text=text, flag=flag, value=tokens, basis="arithmetic")


def _more_kv(case: Case, verdict: Verdict) -> Advice | None:
    limits = case.limits
    if limits is None:
        return None
    have = f"the store holds {limits.kv_tokens:,} tokens: a larger --kv-memory"
    return Advice(text=have + _narrower(limits), flag="--kv-memory")


def _narrower(limits: Limits) -> str:
    if limits.int8_token_bytes is None:
        return ""
    widths = f"{limits.int8_token_bytes:,} instead of {limits.kv_token_bytes:,} bytes a token"
    return f", or --kv-dtype int8 ({widths})"


def _smaller_batch(case: Case, verdict: Verdict) -> Advice | None:
    """Bound the batch so that a token keeps a goal, by what each other request took here."""
    goal_ns, beside = case.goals_ns.get("itl"), case.mean_batch - 1
    if goal_ns is None or case.itl_ns is None or beside <= 0:
        return Advice(text="the price of a batch: fewer at once (--max-num-seqs), or a replica")
    each_ns = case.spent_ns.get(Piece.OTHERS_DECODE, 0) / max(case.tokens - 1, 1)
    slots = 1 + int((goal_ns - (case.itl_ns - each_ns)) / (each_ns / beside))
    if slots < 1:
        return None
    text = f"--max-num-seqs {slots} keeps a token at or under {span(goal_ns)}"
    return Advice(text=text, flag="--max-num-seqs", value=slots, basis="arithmetic")


def _less_prompt(case: Case, verdict: Verdict) -> Advice:
    bound = case.alone is not None and case.alone.prefill_compute_bound
    buys = (
        "twice the FLOP/s halves it, bandwidth buys nothing" if bound else "bandwidth shortens it"
    )
    return Advice(text=f"{buys}; a prefix that stays the same is cached", basis="arithmetic")


def _fewer_tokens(case: Case, verdict: Verdict) -> Advice:
    bound = case.alone is not None and case.alone.decode_compute_bound
    buys = (
        "FLOP/s shorten it" if bound else "narrower weights or bandwidth shorten it, FLOP/s do not"
    )
    return Advice(text=f"{buys}: floorline plan", basis="arithmetic")


def _always(text: str, flag: str | None = None) -> Callable[[Case, Verdict], Advice]:
    return lambda case, verdict: Advice(text=text, flag=flag)


_ADVICE: Final[Mapping[Piece | Code, Callable[[Case, Verdict], Advice | None]]] = {
    Piece.WAIT_SLOTS: _more_slots,
    Piece.WAIT_BUDGET: _larger_steps,
    Piece.SAT_OUT: _larger_steps,
    **dict.fromkeys(GROUPS[Group.KV], _more_kv),
    Piece.OTHERS_PREFILL: _smaller_steps,
    Piece.OTHERS_DECODE: _smaller_batch,
    Piece.MEMORY_SHORTFALL: _always("floorline calibrate on a quiet machine; floorline lab"),
    Piece.COMPUTE_SHORTFALL: _always("floorline calibrate on a quiet machine; floorline lab"),
    Piece.UNKNOWN_PEAK: _always("floorline calibrate, or --peak-bandwidth and --peak-flops"),
    Piece.GRAMMAR: _always(f"the same grammar again is free: {_GRAMMARS_KEPT} are kept"),
    Piece.ACCEPT: _always("look at the body's upload, the chat template and the prompt's length"),
    Piece.DELIVER: _always("the event loop was busy: fewer streams a server"),
    Code.PROMPT: _less_prompt,
    Code.TOKENS: _fewer_tokens,
}
