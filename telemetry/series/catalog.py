"""Every series we export, in one table. Nothing is counted here.

`docs/metrics.md` is made from it: `python -m docs.build.metrics_page > docs/metrics.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Final

from telemetry.series import labels as on
from telemetry.series.labels import Label, one

PREFIX: Final = "floorline_"
MODEL: Final = "model"  # the label that every series carries


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Needs(StrEnum):
    """The setting that has a metric exported."""

    NOTHING = ""
    PRICE = "--price-per-hour"
    SLO = "--slo"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table."""

    name: str  # without the prefix
    kind: MetricKind
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    needs: Needs = Needs.NOTHING

    @property
    def max_series(self) -> int:
        """Bound the lines of a scrape: a histogram has its buckets, +Inf, a sum and a count."""
        samples = len(self.buckets) + 3 if self.kind is MetricKind.HISTOGRAM else 1
        return prod(label.size for label in self.labels) * samples


def _geometric(first: float, ratio: float, count: int) -> tuple[float, ...]:
    return tuple(float(f"{first * ratio**k:.6g}") for k in range(count))


STEP_SECONDS: Final = _geometric(0.25e-3, 1.5, 25)  # to 4.2 s
TOKEN_SECONDS: Final = _geometric(0.5e-3, 20_000 ** (1 / 24), 25)  # to 10 s
FIRST_TOKEN_SECONDS: Final = _geometric(1e-3, 2, 18)  # to 131 s
REQUEST_SECONDS: Final = _geometric(10e-3, 2, 16)  # to 328 s
PHASE_SECONDS: Final = _geometric(0.5e-3, 2, 20)  # to 262 s
RATIOS: Final = (*(k / 20 for k in range(1, 21)), 1.1, 1.5)
BATCH: Final = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
BATCH_TOKENS: Final = _geometric(1, 2, 14)
INTENSITY: Final = _geometric(0.125, 2, 16)


def _counter(name: str, help: str, *labels: Label, needs: Needs = Needs.NOTHING) -> Metric:
    return Metric(name, MetricKind.COUNTER, help, labels, needs=needs)


def _gauge(name: str, help: str, *labels: Label, needs: Needs = Needs.NOTHING) -> Metric:
    return Metric(name, MetricKind.GAUGE, help, labels, needs=needs)


def _histogram(name: str, buckets: tuple[float, ...], help: str, *labels: Label) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, help, labels, buckets)


METRICS: Final = (
    # ── steps and their floors ──
    _histogram("step_duration_seconds", STEP_SECONDS,
        "Measured step: end − start of its record.", on.KIND),
    _histogram("step_floor_seconds", STEP_SECONDS,
        "Predicted floor of the same step, useful or not: "
        "max(bytes / peak bytes per s, FLOPs / peak FLOP per s).", on.KIND),
    _histogram("step_efficiency_ratio", RATIOS, "Whole floor / measured step.", on.KIND),
    _histogram("step_batch_requests", BATCH, "Requests in a step.", on.KIND),
    _histogram("step_batch_tokens", BATCH_TOKENS, "Tokens run in a step.", on.KIND),
    _histogram("arithmetic_intensity_flops_per_byte", INTENSITY,
        "FLOPs / bytes of a step's work.", on.KIND),
    _counter("floor_seconds_total",
        "Useful floor: floor − floor shares of wasted tokens; "
        "at most the forward time.", on.KIND, on.REGIME),
    _counter("checkpoint_floor_seconds_total",
        "That of the useful floor which the checkpoint's own bytes would take: less than "
        "floor_seconds_total where the copy that is served has more bytes."),
    _counter("lost_seconds_total",
        "Engine time above the useful floor, by cause; "
        "engine_wall_seconds_total = floor_seconds_total + this.", on.CAUSE),
    _counter("engine_wall_seconds_total",
        "Time since the engine was ready, all its lives together."),
    _counter("step_segment_seconds_total",
        "Time of the engine thread by what it did; disjoint.", on.SEGMENT),
    _counter("floor_violations_total",
        "Steps with forward < floor that prove no peak: the model or the peak is wrong."),
    _counter("peak_raises_total",
        "Measured peaks raised, as a step's bytes or FLOPs over its forward time were above them.",
        on.PEAK),
    _counter("bytes_moved_total",
        "Predicted bytes that steps had to move.", on.OP, on.COMPONENT),
    _counter("flops_total",
        "Predicted operations: 2 × matrix parameters × tokens, 4 × heads × head_dim × attended "
        "pairs, 2 × head parameters × rows.", on.FLOPS_COMPONENT),
    # ── peaks, and how much of them is used ──
    _gauge("peak_bytes_per_second",
        "Memory bandwidth that floors divide by.", on.SOURCE, on.LEVEL),
    _gauge("peak_read_bytes_per_second",
        "Bandwidth of steps that read at least so much, up to the next size; larger ones than all "
        "are read at the bandwidth of level=dram.", on.WORKING_SET),
    _gauge("peak_flops_per_second",
        "Arithmetic rate that floors divide by.", on.SOURCE, on.ARITHMETIC),
    _gauge("bandwidth_utilization_ratio",
        "MBU: Σ bytes / peak ÷ Σ step time, over the steps of the last 10 s."),
    _gauge("flops_utilization_ratio",
        "MFU: Σ FLOPs / peak ÷ Σ step time, over the steps of the last 10 s."),
    _gauge("cost_model_coverage_ratio",
        "Predicted / allocated bytes; other than 1 it is a bug, and no floor is made.", on.COVERED),
    _gauge("step_weight_bytes",
        "Bytes of the weights that a step reads whole: in the checkpoint's own types, and as they "
        "are held. NaN: not counted.", on.COPY),
    _counter("telemetry_seconds_total",
        "CPU time of the server process spent on telemetry."),
    # ── requests ──
    _histogram("time_to_first_token_seconds", FIRST_TOKEN_SECONDS,
        "First token sent − request received."),
    _histogram("inter_token_latency_seconds", TOKEN_SECONDS,
        "Token sent − token before it sent; resumed: a preemption lies between.", on.CONTEXT),
    _histogram("time_per_output_token_seconds", TOKEN_SECONDS,
        "(Last − first token) / (tokens − 1) of a request."),
    _histogram("request_duration_seconds", REQUEST_SECONDS,
        "End − request received; refused: having waited in vain.", on.FINISH_REASON),
    _histogram("request_phase_seconds", PHASE_SECONDS,
        "Time of an ended request in each phase; the four sum to its duration. "
        "stalled: from a preemption to the next token.", on.PHASE),
    _counter("requests_received_total",
        "Generations that passed validation: refused + finished + aborted + failed + live."),
    _gauge("requests_running", "Requests that hold KV blocks."),
    _gauge("requests_waiting",
        "Requests that wait, by what for; budget: for the next step; grammar: to be compiled.",
        on.WAIT_REASON),
    _counter("request_time_seconds_total",
        "Time of ended requests from receipt to the end, by what it went to; disjoint. "
        "Sums to request_duration_seconds_sum.", on.PIECE),
    _counter("slow_requests_total",
        "Ended requests that were slow: they missed an objective of --slo, or, without one, took "
        "over 3 × their floor alone and 50 ms more. By the part that was, and by what most of the "
        "time went to.", on.PART, on.SLOW_BY),
    _counter("requests_total",
        "Ended generations; stop: those that call tools too; refused: at once, or having waited "
        "in vain.", on.OUTCOME),
    _counter("tokens_total",
        "prompt, cached and generated: as usage counts them, a prompt once for all its choices; "
        "cached: of the prompt, found in the prefix index; recomputed: run again after a "
        "preemption; overrun: sampled after a stop was found.", on.TOKEN_KIND),
    _counter("preemptions_total", "Requests that lost their blocks to others."),
    _counter("slo_requests_total",
        "Ended requests that met or missed an objective; itl: mean of the request; "
        "one that failed or waited in vain missed all.",
        on.OBJECTIVE, on.SLO_OUTCOME, needs=Needs.SLO),
    # ── memory ──
    _gauge("kv_blocks",
        "Blocks of the KV store; cached: a known prefix that nobody holds.", on.BLOCK_STATE),
    _gauge("kv_bytes", "Blocks × block size × KV bytes per token.", on.BLOCK_STATE),
    _gauge("kv_bytes_per_token",
        "2 × layers × kv_heads × (head_dim × bytes per element + 2 in int8)."),
    _gauge("kv_headroom_requests",
        "Unreferenced blocks / blocks of a recent request's size; NaN before one ended.", on.SIZE),
    _counter("kv_block_seconds_total", "Σ blocks held × time held.", on.TENANT),
    _counter("prefix_tokens_total",
        "Known tokens of admitted requests: taken from the prefix index, or not.",
        on.PREFIX_RESULT),
    _counter("prefix_saved_seconds_total",
        "What the prefix index bought: Σ floor of the same step without it (cached tokens computed "
        "in it, no block shared) − floor of the step."),
    _counter("prefix_saved_bytes_total",
        "Σ bytes of the same step without the prefix index − bytes of the step."),
    # ── money ──
    _counter("cost_usd_total",
        "Time shares × price; tenant _shared pays idle and waste.",
        on.PAYER, on.COST, needs=Needs.PRICE),
    _gauge("cost_usd_per_million_tokens",
        "Money / tokens of the last minute, prefill per prompt token and decode per generated one; "
        "allocation spreads idle and waste over both; NaN without tokens.",
        on.DIRECTION, on.BASIS, needs=Needs.PRICE),
    _gauge("price_usd_per_hour", "What --price-per-hour says.", needs=Needs.PRICE),
    # ── the service ──
    _gauge("engine_up", "1 while an engine is ready."),
    _counter("engine_restarts_total", "Engines that were started after one had died."),
    _counter("engine_faults_total", "Faults that the engine reported, by exception.", on.FAULT),
    _counter("http_responses_total", "Responses.", on.ROUTE, on.CODE),
    _gauge("build_info", "1.", one("version")),
    _gauge("model_info", "1.",
        one("weights"), one("kv_dtype"), one("parameters"), one("layers"), one("hidden_size")),
    _gauge("kernel_info", "1.", one("backend"), one("isa")),
)  # fmt: skip
