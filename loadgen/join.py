"""What the server says of the same window: its /metrics before and after, and in between.

Knows Floorline's names best, vLLM's and llama.cpp's a little. What is missing is None, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.observe import OK, Record
from loadgen.prompts import Target

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

RUNNING = (
    "floorline_requests_running",
    "vllm:num_requests_running",
    "llamacpp:requests_processing",
)


class Scrape:
    """One reading of /metrics: samples by name, each with its labels."""

    def __init__(self, text: str, t_s: float = 0.0) -> None:
        self.t_s = t_s
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in text.splitlines():
            if match := _SAMPLE.match(line):
                labels = dict(_LABEL.findall(match[2] or ""))
                self._samples.setdefault(match[1], []).append((labels, float(match[3])))

    def total(self, name: str, **labels: str) -> float | None:
        """Sum over the samples that carry `labels`; None where there is none."""
        found = [
            value for own, value in self._samples.get(name, ()) if labels.items() <= own.items()
        ]
        return sum(found) if found else None


@dataclass(frozen=True, slots=True)
class Window:
    """Differences between two readings."""

    first: Scrape
    last: Scrape

    def grew(self, name: str, **labels: str) -> float | None:
        """Give a counter's increase; a label that the first reading lacks began at zero."""
        after = self.last.total(name, **labels)
        return None if after is None else after - (self.first.total(name, **labels) or 0.0)

    def per(self, top: str, bottom: str, **labels: str) -> float | None:
        return divide(self.grew(top, **labels), self.grew(bottom, **labels))


def divide(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def server_view(scrapes: Sequence[Scrape], warmup_s: float) -> dict[str, Any]:
    """Join the window after the warm-up: efficiency, floors, use of bandwidth, batch, KV."""
    inside = [scrape for scrape in scrapes if scrape.t_s >= warmup_s]
    if len(inside) < 2:
        return {}
    window = Window(inside[0], inside[-1])
    step, floor = "floorline_step_duration_seconds", "floorline_step_floor_seconds"
    moved = window.grew("floorline_bytes_moved_total")
    level = {"level": "dram"}
    peak = window.last.total("floorline_peak_bytes_per_second", **level)
    busy_s = window.grew(f"{step}_sum")
    return {
        "efficiency": window.per(f"{floor}_sum", f"{step}_sum"),
        "step_ms": _ms(window.per(f"{step}_sum", f"{step}_count")),
        "floor_step_ms": _ms(window.per(f"{floor}_sum", f"{floor}_count")),
        "floor_decode_step_ms": _ms(divide(_decoding(window, "sum"), _decoding(window, "count"))),
        "mbu": divide(divide(moved, busy_s), peak),
        "mean_batch": window.per(
            "floorline_step_batch_requests_sum", "floorline_step_batch_requests_count"
        ),
        "mean_running": mean(_first(scrape, RUNNING) for scrape in inside),
        "kv_use": mean(map(_kv_use, inside)),
        "preemptions": window.grew("floorline_preemptions_total"),
        "floor_violations": window.grew("floorline_floor_violations_total"),
        "cost_usd": window.grew("floorline_cost_usd_total"),
    }


def _decoding(window: Window, part: str) -> float | None:
    """Sum the floors (or count the steps) in which some request got its next token."""
    name = f"floorline_step_floor_seconds_{part}"
    grown = [window.grew(name, kind=kind) for kind in ("decode", "mixed")]
    known = [value for value in grown if value is not None]
    return sum(known) if known else None


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else value_s * 1e3


def _first(scrape: Scrape, names: Iterable[str]) -> float | None:
    return next((value for name in names if (value := scrape.total(name)) is not None), None)


def _kv_use(scrape: Scrape) -> float | None:
    used = scrape.total("floorline_kv_blocks", state="referenced")
    if used is None:
        return _first(scrape, ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"))
    return divide(used, scrape.total("floorline_kv_blocks"))


# the bill's rows: what `usage`, `cost` and the counter call the same tokens
COUNTERS = {"prompt": "prompt", "output": "generated", "cached": "cached"}


def bill(
    records: Sequence[Record], scrapes: Sequence[Scrape], target: Target, requests: int
) -> dict[str, Any]:
    """Count the run's tokens in four ways, which must agree to the token.

    Ways are None where they cannot be compared: the server has no such number, a request ended
    without its usage, or others used the server meanwhile.
    Returns: `balanced` is None where no two ways could be compared.
    """
    billed = [record for record in records if record.usage]
    complete = bool(billed) and all(record.outcome == OK for record in records)
    window = Window(scrapes[0], scrapes[-1]) if len(scrapes) > 1 else None
    received = window.grew("floorline_requests_received_total") if window else None
    alone = received is not None and round(received) == requests
    rows: dict[str, dict[str, int | None]] = {
        "prompt": {
            "client": _sum(r.asked_prompt_tokens if target.prompts.exact else None for r in billed),
            "usage": _sum((r.usage or {}).get("prompt_tokens") for r in billed),
        },
        "output": {
            "client": _sum(r.counted_tokens for r in billed),
            "usage": _sum(r.output_tokens for r in billed),
        },
        "cached": {
            "usage": _sum(_cached(r) for r in billed),
            "cost": _sum((r.cost or {}).get("cached_tokens") for r in billed),
        },
    }
    for name, ways in rows.items():
        grew = window.grew("floorline_tokens_total", kind=COUNTERS[name]) if window else None
        ways["metrics"] = round(grew) if grew is not None and alone and complete else None
    compared = [
        {way for way in ways.values() if way is not None}
        for ways in rows.values()
        if sum(way is not None for way in ways.values()) > 1
    ]
    return {
        "tokens": rows,
        "balanced": all(len(values) == 1 for values in compared) if compared else None,
        "others_on_server": None if received is None else not alone,
        "cost_usd": _sum_money(records),
    }


def _cached(record: Record) -> int | None:
    details = (record.usage or {}).get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens")
    return cached if isinstance(cached, int) else None


def _sum(values: Iterable[int | None]) -> int | None:
    counts = list(values)
    known = [n for n in counts if n is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _sum_money(records: Iterable[Record]) -> float | None:
    costs = [record.cost.get("cost_usd") for record in records if record.cost]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None
