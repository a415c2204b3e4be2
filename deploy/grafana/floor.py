"""The dashboard "Floorline: floor": what a step had to move, how fast it could, how fast it did."""

from __future__ import annotations

from grafana_foundation_sdk.builders import heatmap, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana import panels
from deploy.grafana.panels import BLUE, CYAN, GREEN, GREY, ORANGE, PURPLE, RED, YELLOW
from deploy.grafana.promql import (
    REPLICA,
    WINDOW,
    busy_mean,
    mean,
    now,
    quantile,
    rate,
    ratio,
    select,
    share,
)

MBU = busy_mean("bandwidth_utilization_ratio")
MFU = busy_mean("flops_utilization_ratio")
_FORMAT = f"({rate('floor_seconds_total')} - {rate('checkpoint_floor_seconds_total')})"
DECODING, PREFILLING = "decode|mixed", "prefill|mixed"


def add_panels(dashboard: Dashboard) -> Dashboard:
    for panel in (*_numbers(), *_steps(), *_work(), *_latency()):
        dashboard = dashboard.with_panel(panel)
    return dashboard


def _numbers() -> tuple[stat.Panel, ...]:
    floor, measured = rate("step_floor_seconds_sum"), rate("step_duration_seconds_sum")
    return (
        panels.number("Efficiency", "Floor over measured, all steps.", "percentunit",
                      ratio(floor, measured), GREEN),
        panels.number("Generated tokens/s", "As `usage` counts them.", "none",
                      rate("tokens_total", kind="generated"), BLUE),
        panels.number("Memory bandwidth used", "MBU: predicted bytes/s over the peak, busy time.",
                      "percentunit", MBU, ORANGE),
        panels.number("Arithmetic used", "MFU: predicted FLOP/s over the peak, busy time.",
                      "percentunit", MFU, PURPLE),
        panels.number("First token, p50", "From receipt to the first token.", "s",
                      quantile(0.5, "time_to_first_token_seconds"), CYAN),
        panels.number("Floor violations", "Steps faster than their floor: must stay 0.", "none",
                      now("floor_violations_total"), GREEN, alarm_at=1),
    )  # fmt: skip


def _steps() -> tuple[timeseries.Panel | heatmap.Panel, ...]:
    return (
        panels.lines(
            "Step time: measured, and its floor",
            "Mean per kind of step. On this scale the distance between a line and its dashed "
            "floor is the efficiency.",
            "s",
            {
                "{{kind}}": mean("step_duration_seconds", "kind"),
                "{{kind}} floor": mean("step_floor_seconds", "kind"),
            },
            {"decode.*": BLUE, "prefill.*": ORANGE, "mixed.*": PURPLE},
            log=True,
        ),
        panels.heat(
            "Step efficiency",
            "Floor over measured of each step: how many fell into which bucket.",
            "percentunit",
            f"sum by (le) (increase({select('step_efficiency_ratio_bucket')}{WINDOW}))",
        ),
    )


def _work() -> tuple[timeseries.Panel, ...]:
    wall = rate("engine_wall_seconds_total")
    peaks = f"max by ({', '.join(REPLICA)}) ({select('peak_bytes_per_second', level='dram')})"
    return (
        panels.stack(
            "Where every second goes",
            "Useful floor, what a copy in more bytes adds to it, and lost time by cause.",
            "percentunit",
            {
                "useful floor": ratio(rate("checkpoint_floor_seconds_total"), wall),
                "format": ratio(_FORMAT, wall),
                "{{cause}}": share(rate("lost_seconds_total", "cause"), wall),
            },
            {"useful floor": GREEN, "format": BLUE, "memory_shortfall": ORANGE,
             "compute_shortfall": RED, "sample": CYAN, "host": PURPLE, "idle|calibration": GREY,
             "recompute|overrun|failed": YELLOW},
        ),
        panels.stack(
            "Bytes moved, by component",
            "Predicted work per second of wall time, under the peak of all replicas' memory.",
            "Bps",
            {
                "{{component}}": rate("bytes_moved_total", "component"),
                "peak": f"sum({peaks})",
            },
            {"weights": BLUE, "lm_head": CYAN, "embedding": YELLOW, "kv": ORANGE, "peak": RED},
            roof="peak",
        ),
        panels.lines(
            "Utilisation of the peaks",
            "MBU and MFU over the busy time of the last 10 s, each replica by how busy it was.",
            "percentunit",
            {
                "memory bandwidth": MBU,
                "arithmetic": MFU,
            },
            {"memory bandwidth": ORANGE, "arithmetic": PURPLE},
        ),
        panels.lines(
            "Batch",
            "Requests and tokens in a step.",
            "short",
            {
                "requests, mean": mean("step_batch_requests"),
                "requests, p95": quantile(0.95, "step_batch_requests"),
                "tokens, mean": mean("step_batch_tokens"),
            },
            {"requests, mean": BLUE, "requests, p95": CYAN, "tokens, mean": ORANGE},
        ),
    )  # fmt: skip


def _latency() -> tuple[timeseries.Panel, ...]:
    colors = {"p50": GREEN, "p90": YELLOW, "p99": ORANGE, "floor": RED}
    floor = rate("step_floor_seconds_sum", kind=PREFILLING)
    first_tokens = rate("time_to_first_token_seconds_count")
    return (
        panels.lines(
            "Time to first token, and its floor",
            "The floor: floor seconds of the steps that prefill, per first token.",
            "s",
            _percentiles("time_to_first_token_seconds", ratio(floor, first_tokens)),
            colors,
            log=True,
        ),
        panels.lines(
            "Time between tokens, and its floor",
            "Per token. The floor: the mean floor of a step that decodes.",
            "s",
            _percentiles("inter_token_latency_seconds", mean("step_floor_seconds", kind=DECODING)),
            colors,
            log=True,
        ),
    )


def _percentiles(histogram: str, floor: str) -> panels.Queries:
    percentiles = {f"p{round(q * 100)}": quantile(q, histogram) for q in (0.5, 0.9, 0.99)}
    return {**percentiles, "floor": floor}
