"""What is known of a request when somebody asks why it was slow. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from core.formats import KVFormat
from core.machine import PeakSource
from core.request import FinishReason, RequestId
from core.wire import Ready
from costmodel.alone import AloneFloor, alone_floor
from costmodel.storage import kv_bytes_per_token
from telemetry.bill.entry import Entry
from telemetry.engine.model import EngineModel
from telemetry.spent.pieces import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the engine's flags came to."""

    max_num_seqs: int
    step_tokens: int
    block_size: int
    kv_tokens: int  # of the whole store
    kv_token_bytes: int
    int8_token_bytes: int | None  # None where the store is in int8

    @classmethod
    def of(cls, ready: Ready) -> Limits:
        int8 = kv_bytes_per_token(ready.model, KVFormat.INT8)
        return cls(
            max_num_seqs=ready.max_num_seqs,
            step_tokens=ready.max_step_tokens,
            block_size=ready.block_size,
            kv_tokens=ready.num_blocks * ready.block_size,
            kv_token_bytes=kv_bytes_per_token(ready.model, ready.kv_dtype),
            int8_token_bytes=None if ready.kv_dtype is KVFormat.INT8 else int8,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Units: ns, tokens."""

    id: RequestId
    reason: FinishReason | None  # None: it runs
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    steps: int
    mean_batch: float
    e2e_ns: int
    ttft_ns: int | None
    itl_ns: float | None  # the mean
    longest_gap_ns: int
    spent_ns: Mapping[Piece, int]
    first_ns: Mapping[Piece, int]  # of it, up to the first token
    alone: AloneFloor | None
    behind: int  # requests that were live when it came
    behind_own: int  # of its own tenant
    room_for: int  # more requests like it, for which blocks were free when it was admitted
    preemptions: int
    recomputed_tokens: int
    others_prompt_tokens: int  # in steps that ran it
    others_prompt_steps: int
    goals_ns: Mapping[str, int] = field(default_factory=dict)
    limits: Limits | None = None
    doubt: str | None = None  # why its floor may be wrong


_DOUBTFUL: Final = {
    PeakSource.DATASHEET: "the peaks are a data sheet's",
    PeakSource.GIVEN: "the peaks were given by flags",
}


def case_of(
    entry: Entry,
    engine: EngineModel | None,
    limits: Limits | None,
    goals_ns: Mapping[str, int],
    now_ns: int,
) -> Case:
    """Gather it for a request; one that runs is told of as far as its last step that is booked."""
    ended_ns = entry.ended_ns if entry.ended_ns is not None else max(now_ns, entry.life.mark_ns)
    first_ns, gaps = entry.first_token_ns, entry.tokens - 1
    paid, met = entry.paid, entry.life.met
    alone = doubt = None
    if engine is not None and limits is not None and not paid.steps_without_floor:
        alone = alone_floor(
            engine.sums,
            engine.peaks,
            cached=entry.cached_tokens,
            prompt=entry.prompt_tokens,
            tokens=entry.tokens,
            step_tokens=limits.step_tokens,
        )
        if engine.peaks.dram is not None:
            doubt = _DOUBTFUL.get(engine.peaks.dram.source)
    own_blocks = -(-(entry.prompt_tokens + entry.tokens) // limits.block_size) if limits else 0
    return Case(
        id=entry.id,
        reason=entry.finish_reason if entry.ended_ns is not None else None,
        prompt_tokens=entry.prompt_tokens,
        cached_tokens=entry.cached_tokens,
        tokens=entry.tokens,
        steps=paid.steps,
        mean_batch=paid.batch_sum / paid.steps if paid.steps else 0.0,
        e2e_ns=ended_ns - entry.received_ns,
        ttft_ns=None if first_ns is None else first_ns - entry.received_ns,
        itl_ns=entry.itl_sum_ns / gaps if gaps > 0 else None,
        longest_gap_ns=met.longest_gap_ns,
        spent_ns=entry.life.spent_ns(),
        first_ns=entry.life.first_ns(),
        alone=alone,
        behind=met.behind,
        behind_own=met.behind_own,
        room_for=met.room_blocks // own_blocks if own_blocks else 0,
        preemptions=met.preemptions,
        recomputed_tokens=paid.recomputed_tokens,
        others_prompt_tokens=met.others_prompt_tokens,
        others_prompt_steps=met.others_prompt_steps,
        goals_ns=goals_ns,
        limits=limits,
        doubt=doubt,
    )
