"""What the server says of the same window: its /metrics before and after, and in between.

Knows Floorline's names best, vLLM's and llama.cpp's a little. What is missing is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from loadgen.report.measure import answered
from loadgen.run.record import Record
from loadgen.run.scrape import Scrape, ScrapeWindow, divide

RUNNING = (
    "floorline_requests_running",
    "vllm:num_requests_running",
    "llamacpp:requests_processing",
)
LOST = "floorline_lost_seconds_total"
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
    )


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
