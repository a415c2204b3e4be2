"""The floor curve: what the cost model allows at each rate, on the axes of the measured curve.

Reads what it needs from the server's own counters; it loads no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import Final

from costmodel.planning.capacity import decode_ceiling_tokens_per_s
from loadgen.report.measure import answered
from loadgen.run.record import Record
from loadgen.run.scrape import Scrape, ScrapeWindow, divide

_POINTS: Final = 60  # of the floor curve


@dataclass(frozen=True, slots=True)
class ServerWork:
    """What one server moves per step and per request, and how fast it could.

    Units: bytes, FLOPs, seconds.
    """

    weight_bytes: float  # per step, the head included
    kv_bytes_per_request: float  # read per decode step, at the mean context
    flops_per_token: float
    peak_bytes_per_s: float
    peak_flops_per_s: float
    prompt_tokens: float
    output_tokens: float


def work_of(scrapes: Sequence[Scrape], records: Sequence[Record]) -> ServerWork | None:
    """Derive the work from a run; None where the server does not tell enough."""
    known = [r for r in answered(records) if r.output_tokens is not None]
    if len(scrapes) < 2 or not known:
        return None
    window, last = ScrapeWindow(scrapes[0], scrapes[-1]), scrapes[-1]

    def grew(name: str, **labels: str) -> float:
        return window.grew(f"floorline_{name}", **labels) or 0.0

    tokens = grew("tokens_total", kind="prompt") + grew("tokens_total", kind="generated")
    parts = (grew("bytes_moved_total", op="read", component=c) for c in ("weights", "lm_head"))
    prompt = fmean(r.asked_prompt_tokens for r in known)
    output = fmean(r.output_tokens or 0 for r in known)
    work = ServerWork(
        weight_bytes=divide(sum(parts), grew("step_duration_seconds_count")) or 0.0,
        kv_bytes_per_request=(prompt + output / 2)
        * (last.total("floorline_kv_bytes_per_token") or 0.0),
        flops_per_token=divide(grew("flops_total"), tokens) or 0.0,
        peak_bytes_per_s=last.total("floorline_peak_bytes_per_second", level="dram") or 0.0,
        peak_flops_per_s=last.total("floorline_peak_flops_per_second") or 0.0,
        prompt_tokens=prompt,
        output_tokens=output,
    )
    return work if all(astuple(work)) else None


def capacity_per_s(work: ServerWork) -> float:
    """Bound the rate: KV reads alone must fit into the bandwidth, all FLOPs into the peak."""
    by_memory = work.peak_bytes_per_s / (work.output_tokens * work.kv_bytes_per_request)
    tokens = work.prompt_tokens + work.output_tokens
    return min(by_memory, work.peak_flops_per_s / (tokens * work.flops_per_token))


def floor_itl_s(work: ServerWork, rate: float) -> float | None:
    """Give the least inter-token latency at which `rate` requests per second can be sustained.

    In a steady state the batch is rate × output tokens × step time, so the step time solves
    s = (weights + rate·output·s·KV) / bandwidth. Below a batch of one, it is the lone request's.
    Returns: None at or above capacity, where no step time is sustainable.
    """
    if rate >= capacity_per_s(work):
        return None
    weight_bytes, kv_bytes = work.weight_bytes, work.kv_bytes_per_request
    steady_s = weight_bytes / (work.peak_bytes_per_s - rate * work.output_tokens * kv_bytes)
    alone_s = 1 / decode_ceiling_tokens_per_s(weight_bytes, kv_bytes, work.peak_bytes_per_s)
    return max(steady_s, alone_s)


@dataclass(frozen=True, slots=True)
class FloorPoint:
    rate: float  # requests per second
    itl_ms: float
    output_tokens_per_s: float


def floor_curve(work: ServerWork, highest_rate: float) -> list[FloorPoint]:
    """Sample the floor curve up to `highest_rate` or just below capacity."""
    end = min(highest_rate, 0.99 * capacity_per_s(work))
    rates = [end * (n + 1) / _POINTS for n in range(_POINTS)]
    return [
        FloorPoint(rate, itl_s * 1e3, rate * work.output_tokens)
        for rate in rates
        if (itl_s := floor_itl_s(work, rate)) is not None
    ]
