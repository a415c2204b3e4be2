"""Experiment 1: the reference condition, and all that is known before a request is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.inputs.quantities import scaled
from costmodel.floor import memory_peak
from lab.experiments.base import Bench, Experiment
from lab.measure.outcome import Account, LabRow, merged
from lab.measure.server import LoadResult
from loadgen.load.spec import PlanSpec
from loadgen.run.scrape import divide

SHARE_CONTEXT = 96  # the context at which the source text quotes the weights' share


class Reference(Experiment):
    number = 1
    title = "The reference condition"
    question = "Poisson traffic at 1.0/s, prompt 32–96, output 16–48, seed 7: what can be known?"
    quantity = "ms"
    x_name = "latency"

    prompt, context = 64, 80  # the means: of a prompt, and of the context while decoding

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen: dict[str, str] = {}

    @property
    def plan(self) -> PlanSpec:
        return PlanSpec(rate=4.0, requests=8) if self.short else PlanSpec(rate=1.0, requests=60)

    def predict(self) -> list[LabRow]:
        return [
            LabRow(series="floor", x="TTFT", predicted=self.subject.prefill(self.prompt).s * 1e3),
            LabRow(series="floor", x="ITL", predicted=self.subject.decode(1, self.context).s * 1e3),
        ]

    def measure(self, bench: Bench, rows: Sequence[LabRow]) -> list[LabRow]:
        with bench.serve() as server:
            load = server.load(self.plan)
        self._seen = seen(load)
        accounts = {"TTFT": per_request(load), "ITL": per_step(load)}
        done = []
        for row in rows:
            mean_ms = load.summary.metrics[str(row.x).lower()].mean
            done.append(replace(row, measured=mean_ms, account=accounts[str(row.x)]))
            bench.tick()
        return done

    def facts(self, rows: Sequence[LabRow]) -> list[tuple[str, str, str]]:
        sums, peaks = self.subject.sums, self.subject.peaks
        kv_bytes = SHARE_CONTEXT * sums.kv_token_bytes
        work = sums.uniform_step(1, SHARE_CONTEXT, 1)
        share = sums.stored_bytes / (sums.stored_bytes + kv_bytes)
        level, peak = memory_peak(work.bytes, peaks)
        assert peak is not None
        return [
            ("parameters", f"{sums.parameters:,}", ""),
            ("weight bytes", f"{sums.stored_bytes:,}", ""),
            ("KV bytes per token", f"{sums.kv_token_bytes:,}", self._seen.get("kv", "")),
            (f"weights' share of weights + KV at context {SHARE_CONTEXT}", f"{share:.1%}", ""),
            (
                f"weights' share of a step's bytes at context {SHARE_CONTEXT}",
                f"{work.weight_bytes / work.bytes:.1%}",
                "",
            ),
            (
                f"bandwidth: the peak of the {level}, and what the steps imply",
                scaled(peak.per_s, "B/s"),
                self._seen.get("bandwidth", ""),
            ),
            ("requests", str(self.plan.requests), self._seen.get("requests", "")),
            ("mean batch", "1", self._seen.get("batch", "")),
        ]

    def read(self, rows: Sequence[LabRow]) -> str:
        ttft, itl = rows
        if not (ttft.measured and itl.measured and itl.account and ttft.account):
            return "Nothing was measured."
        bound = "bytes" if self.subject.decode(1, self.context).memory_bound else "FLOPs"
        return (
            f"A decode step of one request is bound by {bound}: its floor is"
            f" {itl.predicted:.2f} ms, and a token came every {itl.measured:.2f} ms"
            f" ({itl.measured / itl.predicted:.1f} ×). The engine's busy time splits into"
            f" {itl.account.words()}. The first token has a floor of {ttft.predicted:.2f} ms and"
            f" took {ttft.measured:.2f} ms: {ttft.account.words()}."
        )


def seen(load: LoadResult) -> dict[str, str]:
    """Write what the counters say beside the predictions."""
    window, summary = load.window, load.summary
    batch = summary.server and summary.server.mean_batch
    moved = window.grew("floorline_bytes_moved_total")
    busy_s = window.grew("floorline_step_segment_seconds_total", segment="forward")
    kv_bytes = window.last.total("floorline_kv_bytes_per_token") or 0
    return {
        "kv": f"{kv_bytes:,.0f}",
        "bandwidth": scaled(divide(moved, busy_s), "B/s"),
        "requests": f"{summary.counted - summary.failed}",
        "batch": "n/a" if batch is None else f"{batch:.2f}",
    }


def per_step(load: LoadResult) -> Account:
    """Split the mean step, and what lies outside the engine per token."""
    steps = load.window.grew("floorline_step_duration_seconds_count") or 1.0
    return over(load.account(), steps, load.summary.metrics["itl"].mean)


def per_request(load: LoadResult) -> Account:
    """Split the mean prefilling step; the rest of a TTFT is waiting, HTTP and the client."""
    accounts = [step.account() for step in load.steps if step.kind != "decode"]
    return over(merged(accounts), len(accounts) or 1, load.summary.metrics["ttft"].mean)


def over(account: Account, count: float, latency_ms: float | None) -> Account:
    """Give the mean of `count`, and book what a known latency has beyond it to the server."""
    mean = {cause: seconds / count for cause, seconds in account.lost_s.items()}
    floor_s = account.floor_s / count
    if latency_ms is None:
        return Account(floor_s, mean)
    outside_s = latency_ms / 1e3 - floor_s - sum(mean.values())
    return Account(floor_s, mean | {"server": max(outside_s, 0.0)})
