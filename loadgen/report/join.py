"""What the server says of the same window, and the floor curve that follows from its counters.

Knows Floorline's names best, vLLM's and llama.cpp's a little. What is missing is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Final

from costmodel.planning.capacity import decode_ceiling_tokens_per_s
from loadgen.report.measure import answered
from loadgen.run.record import Record
from loadgen.run.scrape import Scrape, ScrapeWindow, divide

RUNNING = (
    "floorline_requests_running",
    "vllm:num_requests_running",
    "llamacpp:requests_processing",
)
_POINTS: Final = 60  # of the floor curve
LOST = "floorline_lost_seconds_total"
REQUEST_TIME = "floorline_request_time_seconds_total"
SLOW = "floorline_slow_requests_total"
KV_USE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio")


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """The server's side of the window after the warm-up. None is what it does not tell."""

    efficiency: float | None = None  # floor / measured
    step_ms: float | None = None
    floor_step_ms: float | None = None
    floor_prefill_step_ms: float | None = None
    floor_decode_step_ms: float | None = None
    mbu: float | None = None  # bytes moved per second, as a share of the memory's peak
    mean_batch: float | None = None
    mean_running: float | None = None
    kv_use: float | None = None
    preemptions: float | None = None
    time_s: dict[str, float] = field(default_factory=dict)  # the engine's, by what it went to
    queued_time_s: dict[str, float] | None = None  # the same while requests waited
    request_time_s: dict[str, float] | None = None  # of those that ended, by what it went to
    slow: dict[str, float] | None = None  # how many of them were slow, by what made them so


def server_view(scrapes: Sequence[Scrape], warmup_s: float) -> ServerView | None:
    """Join the readings after the warm-up; None where there are not two."""
    inside = [scrape for scrape in scrapes if scrape.t_s >= warmup_s]
    if len(inside) < 2:
        return None
    window = ScrapeWindow(inside[0], inside[-1])
    step, floor = "floorline_step_duration_seconds", "floorline_step_floor_seconds"
    busy_s = window.grew(f"{step}_sum")
    moved = divide(window.grew("floorline_bytes_moved_total"), busy_s)
    means_s = {
        "step_ms": window.mean(step),
        "floor_step_ms": window.mean(floor),
        "floor_prefill_step_ms": window.mean(floor, "prefill", "mixed"),
        "floor_decode_step_ms": window.mean(floor, "decode", "mixed"),
    }
    return ServerView(
        efficiency=divide(window.grew(f"{floor}_sum"), busy_s),
        **{name: None if s is None else s * 1e3 for name, s in means_s.items()},
        mbu=divide(moved, window.last.total("floorline_peak_bytes_per_second", level="dram")),
        mean_batch=window.mean("floorline_step_batch_requests"),
        mean_running=mean(scrape.total(*RUNNING) for scrape in inside),
        kv_use=mean(map(_kv_use, inside)),
        preemptions=window.grew("floorline_preemptions_total"),
        time_s=_time_s([(inside[0], inside[-1])]),
        queued_time_s=_queued_time_s(inside),
        request_time_s=_grown_by(window, REQUEST_TIME, "cause"),
        slow=_grown_by(window, SLOW, "code"),
    )


def _grown_by(window: ScrapeWindow, name: str, label: str) -> dict[str, float] | None:
    """Give by how much each value of a label grew, the most first; None: not told."""
    values = window.last.values(label, name)
    grown = {value: window.grew(name, **{label: value}) or 0.0 for value in values}
    ordered = sorted(grown.items(), key=lambda part: part[1], reverse=True)
    return {value: more for value, more in ordered if more > 0} if values else None


def _time_s(spans: Iterable[tuple[Scrape, Scrape]]) -> dict[str, float]:
    """Split the engine's time by the time law: the useful floor, and what was lost by cause."""
    spent: dict[str, float] = {}
    for window in (ScrapeWindow(first, last) for first, last in spans):
        grown = {
            cause: window.grew(LOST, cause=cause) for cause in window.last.values("cause", LOST)
        }
        grown["useful floor"] = window.grew("floorline_floor_seconds_total")
        for name, seconds in grown.items():
            spent[name] = spent.get(name, 0.0) + (seconds or 0.0)
    ordered = sorted(spent.items(), key=lambda part: part[1], reverse=True)
    return {name: seconds for name, seconds in ordered if seconds > 0}


def _queued_time_s(scrapes: Sequence[Scrape]) -> dict[str, float] | None:
    """Split the time between the readings of which one saw a request wait; None: not told."""
    waiting = [scrape.total("floorline_requests_waiting") for scrape in scrapes]
    if None in waiting:
        return None
    spans = zip(pairwise(scrapes), pairwise(waiting), strict=True)
    return _time_s(span for span, seen in spans if any(seen))


def _kv_use(scrape: Scrape) -> float | None:
    used = scrape.total("floorline_kv_blocks", state="referenced")
    share = divide(used, scrape.total("floorline_kv_blocks"))
    return scrape.total(*KV_USE) if used is None else share


def floors_ms(records: Iterable[Record], server: ServerView | None) -> dict[str, float | None]:
    """Give the mean floor of each latency; None where the server does not report one.

    The first token waits at least for a step that runs a prompt, each later one for a step that
    gives a token; the whole takes at least the floor that the request was charged.
    """
    known = server or ServerView()
    first, later = known.floor_prefill_step_ms, known.floor_decode_step_ms
    whole = mean(record.charged("floor_ms") for record in answered(records))
    floors: dict[str, float | None] = dict.fromkeys(("ttft", "ttft_send"), first)
    floors |= dict.fromkeys(("e2e", "e2e_send"), whole)
    return floors | dict.fromkeys(("tpot", "tpot_net", "itl"), later)


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
