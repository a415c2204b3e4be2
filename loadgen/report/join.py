"""What the server says of the same window: its /metrics before and after, and in between.

Knows Floorline's names best, vLLM's and llama.cpp's a little. What is missing is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from loadgen.report.measure import answered
from loadgen.run.record import Record
from loadgen.run.scrape import Scrape, ScrapeWindow, divide

RUNNING = (
    "floorline_requests_running",
    "vllm:num_requests_running",
    "llamacpp:requests_processing",
)
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
    )


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
