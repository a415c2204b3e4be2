"""What the server says of the same window: its /metrics before and after, and in between.

Knows Floorline's names best, vLLM's and llama.cpp's a little. What is missing is None, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from loadgen.report.measure import answered
from loadgen.run.record import Record

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

RUNNING = (
    "floorline_requests_running",
    "vllm:num_requests_running",
    "llamacpp:requests_processing",
)
KV_USE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio")


@dataclass(frozen=True)
class Scrape:
    """One reading of /metrics. It is parsed when it is first asked for a number."""

    text: str
    t_s: float = 0.0

    @cached_property
    def _samples(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, labels, value in _SAMPLE.findall(self.text):
            samples.setdefault(name, []).append((dict(_LABEL.findall(labels)), float(value)))
        return samples

    def total(self, *names: str, **labels: str) -> float | None:
        """Sum the first name's samples that carry `labels`, or the next one's; None without any."""
        for name in names:
            samples = self._samples.get(name, ())
            if found := [value for own, value in samples if labels.items() <= own.items()]:
                return sum(found)
        return None


@dataclass(frozen=True, slots=True)
class Window:
    """Differences between two readings."""

    first: Scrape
    last: Scrape

    def grew(self, name: str, **labels: str) -> float | None:
        """Give a counter's increase; a label that the first reading lacks began at zero."""
        after = self.last.total(name, **labels)
        return None if after is None else after - (self.first.total(name, **labels) or 0.0)

    def mean(self, histogram: str, *kinds: str) -> float | None:
        """Give a histogram's mean over the window; with `kinds`, over those of its series."""
        each = [{"kind": kind} for kind in kinds] or [{}]
        whole, count = (
            sum(self.grew(f"{histogram}_{part}", **labels) or 0.0 for labels in each)
            for part in ("sum", "count")
        )
        return divide(whole, count)


def divide(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def server_view(scrapes: Sequence[Scrape], warmup_s: float) -> dict[str, Any]:
    """Join the window after the warm-up: efficiency, floors, use of bandwidth, batch, KV."""
    inside = [scrape for scrape in scrapes if scrape.t_s >= warmup_s]
    if len(inside) < 2:
        return {}
    window = Window(inside[0], inside[-1])
    step, floor = "floorline_step_duration_seconds", "floorline_step_floor_seconds"
    busy_s = window.grew(f"{step}_sum")
    moved = divide(window.grew("floorline_bytes_moved_total"), busy_s)
    means_s = {
        "step_ms": window.mean(step),
        "floor_step_ms": window.mean(floor),
        "floor_prefill_step_ms": window.mean(floor, "prefill", "mixed"),
        "floor_decode_step_ms": window.mean(floor, "decode", "mixed"),
    }
    return {
        "efficiency": divide(window.grew(f"{floor}_sum"), busy_s),
        **{name: None if s is None else s * 1e3 for name, s in means_s.items()},
        "mbu": divide(moved, window.last.total("floorline_peak_bytes_per_second", level="dram")),
        "mean_batch": window.mean("floorline_step_batch_requests"),
        "mean_running": mean(scrape.total(*RUNNING) for scrape in inside),
        "kv_use": mean(map(_kv_use, inside)),
        "preemptions": window.grew("floorline_preemptions_total"),
    }


def _kv_use(scrape: Scrape) -> float | None:
    used = scrape.total("floorline_kv_blocks", state="referenced")
    share = divide(used, scrape.total("floorline_kv_blocks"))
    return scrape.total(*KV_USE) if used is None else share


def floors_ms(records: Iterable[Record], server: dict[str, Any]) -> dict[str, float | None]:
    """Give the least that each latency could have been, in the mean; None where it is not told.

    The first token waits at least for a step that runs a prompt, each later one for a step that
    gives a token; the whole takes at least the floor that the request was charged.
    """
    first, later = server.get("floor_prefill_step_ms"), server.get("floor_decode_step_ms")
    whole = mean(record.charged("floor_ms") for record in answered(records))
    return (
        dict.fromkeys(("ttft", "ttft_send"), first)
        | dict.fromkeys(("e2e", "e2e_send"), whole)
        | dict.fromkeys(("tpot", "tpot_net", "itl"), later)
    )
