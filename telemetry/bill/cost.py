"""What one HTTP request's generations cost: the `cost` object of an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.floor import REGIMES
from telemetry.bill.entry import Entry, Paid, Stage
from telemetry.spent.pieces import PIECES, Piece


@dataclass(frozen=True, slots=True)
class Why:
    """Why an answer was slow, in a word, in a sentence, and what would help."""

    code: str
    sentence: str
    advice: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostObject:
    """Additive fields are sums over the generations; ratios are ratios of sums.

    `prefill_…` and `decode_…` split floor and lost time by what a step ran for the request: its
    prompt and what is run again, or its answer. `spent_ms` is where the time went from receipt to
    the end, in pieces that sum to it; zeros are left out. None means unknown: there is no token
    yet, no peak, or no price; of `why`, that the answer was not slow.
    """

    queue_ms: float
    ttft_ms: float | None
    prefill_ms: float
    decode_ms: float
    stalled_ms: float
    mean_itl_ms: float | None
    tokens_per_second: float | None
    floor_ms: float | None
    prefill_floor_ms: float | None
    decode_floor_ms: float | None
    checkpoint_floor_ms: float | None
    lost_ms: float | None
    prefill_lost_ms: float | None
    decode_lost_ms: float | None
    efficiency: float | None
    bytes_read: int
    bytes_written: int
    flops: int
    kv_block_seconds: float
    cached_tokens: int
    recomputed_tokens: int
    steps: int
    mean_batch: float | None
    regime: str | None
    interference_ms: float
    cost_usd: float | None
    spent_ms: Mapping[Piece, float]
    why: Why | None


def bill_of(
    entries: Sequence[Entry], now_ns: int, *, priced: bool, why: Why | None = None
) -> CostObject:
    """Sum what the entries were charged so far; times run from first receipt to last end.

    Raises:
        ValueError: no entries.
    """
    spent_ns = [entry.stages_ns(now_ns) for entry in entries]
    stages = {stage: _ms(sum(ns[stage] for ns in spent_ns)) for stage in spent_ns[0]}
    paid = Paid.sum(entry.paid for entry in entries)
    received_ns = min(e.received_ns for e in entries)
    firsts = [e.first_token_ns for e in entries if e.first_token_ns is not None]
    ended_ns = max(now_ns if e.ended_ns is None else e.ended_ns for e in entries)
    floored = not paid.steps_without_floor
    lost_ns = paid.time_ns - paid.floor_ns
    decode_lost_ns = paid.decode_time_ns - paid.decode_floor_ns
    tokens, gaps = sum(e.tokens for e in entries), sum(max(e.tokens - 1, 0) for e in entries)
    return CostObject(
        queue_ms=stages[Stage.QUEUE],
        ttft_ms=_ms(min(firsts) - received_ns) if firsts else None,
        prefill_ms=stages[Stage.PREFILL],
        decode_ms=stages[Stage.DECODE],
        stalled_ms=stages[Stage.STALLED],
        mean_itl_ms=_ms(sum(e.itl_sum_ns for e in entries) / gaps) if gaps else None,
        tokens_per_second=_ratio(tokens * 1e9, ended_ns - received_ns),
        floor_ms=_ms(paid.floor_ns) if floored else None,
        prefill_floor_ms=_ms(paid.floor_ns - paid.decode_floor_ns) if floored else None,
        decode_floor_ms=_ms(paid.decode_floor_ns) if floored else None,
        checkpoint_floor_ms=_ms(paid.checkpoint_floor_ns) if floored else None,
        lost_ms=_ms(lost_ns) if floored else None,
        prefill_lost_ms=_ms(lost_ns - decode_lost_ns) if floored else None,
        decode_lost_ms=_ms(decode_lost_ns) if floored else None,
        efficiency=_ratio(paid.floor_ns, paid.time_ns) if floored else None,
        bytes_read=paid.bytes_read,
        bytes_written=paid.bytes_written,
        flops=paid.flops,
        kv_block_seconds=sum(e.kv_block_ns for e in entries) / 1e9,
        cached_tokens=sum(e.cached_tokens for e in entries),
        recomputed_tokens=paid.recomputed_tokens,
        steps=paid.steps,
        mean_batch=_ratio(paid.batch_sum, paid.steps),
        regime=_regime(paid),
        interference_ms=_ms(paid.steps_ns - paid.time_ns),
        cost_usd=paid.nusd / 1e9 if priced else None,
        spent_ms=_spent_ms(entries),
        why=why,
    )


def _spent_ms(entries: Sequence[Entry]) -> dict[Piece, float]:
    pieces: Counter[Piece] = Counter()
    for entry in entries:
        pieces.update(entry.life.spent_ns())
    return {piece: _ms(pieces[piece]) for piece in PIECES if pieces[piece]}


def _regime(paid: Paid) -> str | None:
    """Give the regime with the most step time; of equals, the first in `REGIMES`."""
    spent_ns = paid.memory_ns, paid.compute_ns, paid.overhead_ns
    longest_ns = max(spent_ns)
    return str(REGIMES[spent_ns.index(longest_ns)]) if longest_ns else None


def _ms(ns: float) -> float:
    return round(ns / 1e6, 6)


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None
