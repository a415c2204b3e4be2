"""Models and records that the cost model's tests share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import NamedTuple

from core.machine import Peak, Peaks, PeakSource
from core.model import ModelConfig, RopeConfig
from core.request import RequestId
from core.wire import PoolState, Segments, SliceRecord, StepReport
from costmodel.account import StepAccounts, account_steps
from costmodel.charges import WASTE, WasteCause
from costmodel.slices import slices_of
from costmodel.sums import ModelSums


def model(**changes: object) -> ModelConfig:
    """tinygpt, or a variation on it."""
    fields: dict[str, object] = {
        "name": "tinygpt",
        "vocab_size": 260,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_layers": 6,
        "num_heads": 4,
        "num_kv_heads": 1,
        "head_dim": 64,
        "max_position_tokens": 8192,
        "norm_eps": 1e-5,
        "rope": RopeConfig(theta=10_000.0),
        "tied_embeddings": False,
        "sliding_window": (None,) * 6,
    }
    return ModelConfig(**(fields | changes))  # type: ignore[arg-type]


TINYGPT = model()

POOL = PoolState(
    free_blocks=8,
    cached_blocks=0,
    referenced_blocks=0,
    running=0,
)


def peaks(
    bytes_per_s: float = 10e9,
    flops_per_s: float = 100e9,
    cache_bytes_per_s: float | None = None,
    cache_bytes: int = 0,
) -> Peaks:
    given = PeakSource.GIVEN
    return Peaks(
        dram=Peak(bytes_per_s, given),
        cache=None if cache_bytes_per_s is None else Peak(cache_bytes_per_s, given),
        cache_bytes=cache_bytes,
        flops=Peak(flops_per_s, given),
        arithmetic="fp32",
    )


def piece(
    id: str = "a",
    start: int = 0,
    length: int = 1,
    rows: int = 1,
    recomputed: int = 0,
    cached: int = 0,
    blocks: int = 1,
) -> SliceRecord:
    return SliceRecord(RequestId(id), start, length, rows, cached, recomputed, blocks)


def report(
    *slices: SliceRecord,
    index: int = 1,
    start_ns: int = 0,
    end_ns: int = 10_000_000,
    forward_ns: int = 8_000_000,
    sample_ns: int = 500_000,
    **changes: object,
) -> StepReport:
    """A step in which every slice with rows samples token 7; the rest of its time is `plan`."""
    plan_ns = end_ns - start_ns - forward_ns - sample_ns
    fields: dict[str, object] = {
        "index": index,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "segments": Segments(0, 0, plan_ns, 0, forward_ns, sample_ns, 0),
        "slices": slices,
        "shared": (),
        "distinct_token_ids": min(1, len(slices)),
        "tokens": tuple((s.id, 7) for s in slices if s.rows),
        "ended": (),
        "admitted": (),
        "preempted": (),
        "pool": POOL,
    }
    return StepReport(**(fields | changes))  # type: ignore[arg-type]


def account_step(
    sums: ModelSums, peaks: Peaks, report: StepReport, wasted: Mapping[int, WasteCause]
) -> StepAccounts:
    """Account for one step alone: columns of one row."""
    return account_steps(sums, peaks, [report], slices_of([report]), [wasted])


class Share(NamedTuple):
    """A row of the charges, in plain numbers."""

    slice: int
    waste: WasteCause | None
    start: int
    tokens: int
    rows: int
    bytes_read: int
    bytes_written: int
    flops: int
    floor_ns: int
    time_ns: int
    checkpoint_floor_ns: int


def shares_of(accounts: StepAccounts, step: int = 0) -> list[Share]:
    """Read what a step charges, part by part; its slices count from 0."""
    charges = accounts.charges
    columns = (*charges.parts[1:6], *charges[1:])
    rows = zip(*(column[charges.parts.step == step].tolist() for column in columns), strict=True)
    first = int(accounts.slices.first[step])
    return [Share(slice - first, WASTE[waste], *rest) for slice, waste, *rest in rows]


def row_of(accounts: StepAccounts, step: int) -> list[object]:
    """Read all that the columns say of one step."""
    work, floors = accounts.work, accounts.floors
    own = slice(*accounts.slices.first[step : step + 2])
    columns = [getattr(floors, field.name) for field in fields(floors)]
    columns += [getattr(work, f.name) for f in fields(work) if not f.name.endswith("by_slice")]
    columns += [accounts.regimes, accounts.wall_ns, accounts.violation, accounts.useful_floor_ns]
    row: list[object] = [repr(column[step].item()) for column in columns]  # NaN is itself
    row += [work.kv_read_bytes_by_slice[own].tolist(), accounts.lost_of(step)]
    return row + shares_of(accounts, step)
