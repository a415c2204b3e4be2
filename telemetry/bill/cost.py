"""What one HTTP request's generations cost: the `cost` object of an answer, and its timings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from costmodel.floor import REGIMES
from telemetry.bill.entry import Entry, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class CostObject:
    """Additive fields are sums over the generations; ratios are ratios of sums.

    None means unknown: there is no token yet, no peak, or no price.
    """

    queue_ms: float
    ttft_ms: float | None
    prefill_ms: float
    decode_ms: float
    stalled_ms: float
    mean_itl_ms: float | None
    tokens_per_second: float | None
    floor_ms: float | None
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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Timings:
    """What the `server-timing` header carries. Units: ms."""

    queue: float
    prefill: float
    decode: float
    floor: float | None


def bill_of(entries: Sequence[Entry], now_ns: int, priced: bool) -> CostObject:
    """Sum what the entries were charged so far; times run from first receipt to last end.

    Raises:
        ValueError: no entries.
    """
    stages = {stage: _ms(sum(_stage_ns(e, stage, now_ns) for e in entries)) for stage in Stage}
    received_ns = min(e.received_ns for e in entries)
    firsts = [e.first_token_ns for e in entries if e.first_token_ns is not None]
    ended_ns = max(now_ns if e.ended_ns is None else e.ended_ns for e in entries)
    tokens, gaps = sum(e.tokens for e in entries), sum(max(e.tokens - 1, 0) for e in entries)
    time_ns, steps = sum(e.time_ns for e in entries), sum(e.steps for e in entries)
    floor_ns = _floor_ns(entries)
    return CostObject(
        queue_ms=stages[Stage.QUEUE],
        ttft_ms=_ms(min(firsts) - received_ns) if firsts else None,
        prefill_ms=stages[Stage.PREFILL],
        decode_ms=stages[Stage.DECODE],
        stalled_ms=stages[Stage.STALLED],
        mean_itl_ms=_ms(sum(e.itl_sum_ns for e in entries) / gaps) if gaps else None,
        tokens_per_second=_ratio(tokens * 1e9, ended_ns - received_ns),
        floor_ms=None if floor_ns is None else _ms(floor_ns),
        efficiency=None if floor_ns is None else _ratio(floor_ns, time_ns),
        bytes_read=sum(e.bytes_read for e in entries),
        bytes_written=sum(e.bytes_written for e in entries),
        flops=sum(e.flops for e in entries),
        kv_block_seconds=sum(e.kv_block_ns for e in entries) / 1e9,
        cached_tokens=sum(e.cached_tokens for e in entries),
        recomputed_tokens=sum(e.recomputed_tokens for e in entries),
        steps=steps,
        mean_batch=_ratio(sum(e.batch_sum for e in entries), steps),
        regime=_regime(entries),
        interference_ms=_ms(sum(e.steps_ns for e in entries) - time_ns),
        cost_usd=sum(e.nusd for e in entries) / 1e9 if priced else None,
    )


def timings_of(entries: Sequence[Entry], now_ns: int) -> Timings:
    floor_ns = _floor_ns(entries)
    queue, prefill, decode = (
        _ms(sum(_stage_ns(e, stage, now_ns) for e in entries))
        for stage in (Stage.QUEUE, Stage.PREFILL, Stage.DECODE)
    )
    return Timings(queue, prefill, decode, None if floor_ns is None else _ms(floor_ns))


def _stage_ns(entry: Entry, stage: Stage, now_ns: int) -> int:
    """Give a stage's time; the current stage's runs up to now."""
    running = entry.stage is stage and entry.ended_ns is None
    return entry.stage_ns[stage] + (max(now_ns - entry.since_ns, 0) if running else 0)


def _floor_ns(entries: Sequence[Entry]) -> int | None:
    if any(e.steps_without_floor for e in entries):
        return None
    return sum(e.floor_ns for e in entries)


def _regime(entries: Sequence[Entry]) -> str | None:
    """Give the regime with the most step time; of equals, the first in `REGIMES`."""
    sums = [sum(entry.regime_ns.get(regime, 0) for entry in entries) for regime in REGIMES]
    longest = max(sums)
    return str(REGIMES[sums.index(longest)]) if longest else None


def _ms(ns: float) -> float:
    return round(ns / 1e6, 6)


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None
