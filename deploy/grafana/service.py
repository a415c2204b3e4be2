"""The dashboard "Floorline: service": load, memory, money and health of the replicas."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana import panels
from deploy.grafana.panels import BLUE, CYAN, GREEN, GREY, ORANGE, PURPLE, RED, YELLOW
from deploy.grafana.promql import REPLICA, mean, now, rate, ratio, select, share

HOUR_S, MILLION = 3600, 1e6
WALL = "engine_wall_seconds_total"


def add_panels(dashboard: Dashboard) -> Dashboard:
    for panel in (
        *_numbers(),
        *_load(),
        *_times(),
        *_memory(),
        *_prefixes(),
        *_money(),
        *_health(),
    ):
        dashboard = dashboard.with_panel(panel)
    return dashboard


def _numbers() -> tuple[stat.Panel, ...]:
    used = now("kv_blocks", state="referenced")
    return (
        panels.number("Engines up", "Replicas that answer.", "none", now("engine_up"), GREEN),
        panels.number("Running", "Requests in the batch.", "none", now("requests_running"), BLUE),
        panels.number("Waiting", "Requests in the queue.", "none", now("requests_waiting"), ORANGE),
        panels.number("KV blocks in use", "Referenced over all.", "percentunit",
                      ratio(used, now("kv_blocks")), PURPLE, alarm_at=0.95),
        panels.number("Restarts", "Engines started again.", "none",
                      now("engine_restarts_total"), GREEN, alarm_at=1),
        panels.number("Faults", "Steps that raised: our bugs.", "none",
                      now("engine_faults_total"), GREEN, alarm_at=1),
    )  # fmt: skip


def _load() -> tuple[timeseries.Panel, ...]:
    return (
        panels.stack(
            "Requests running and waiting",
            "Waiting by reason: no KV blocks, no slot, the step's token budget spent, a grammar.",
            "short",
            {
                "running": now("requests_running"),
                "waiting: {{reason}}": now("requests_waiting", "reason"),
            },
            {
                "running": GREEN,
                ".*kv": RED,
                ".*slots": ORANGE,
                ".*budget": YELLOW,
                ".*grammar": PURPLE,
            },
        ),
        panels.lines(
            "Requests by outcome",
            "Ended requests per second.",
            "reqps",
            {"{{outcome}}": rate("requests_total", "outcome")},
            {"stop": GREEN, "length": BLUE, "aborted": GREY, "failed": RED, "refused": ORANGE},
        ),
        panels.lines(
            "Tokens",
            "Tokens per second; prompt and generated as `usage` counts them.",
            "short",
            {"{{kind}}": rate("tokens_total", "kind")},
            {
                "prompt": BLUE,
                "cached": CYAN,
                "generated": GREEN,
                "recomputed": RED,
                "overrun": YELLOW,
            },
        ),
    )


def _times() -> tuple[timeseries.Panel, ...]:
    return (
        panels.stack(
            "A request's time, by phase",
            "Mean seconds per request.",
            "s",
            {"{{phase}}": mean("request_phase_seconds", "phase")},
            {"queue": ORANGE, "prefill": BLUE, "decode": GREEN, "stalled": RED},
        ),
        panels.stack(
            "A request's time, by what it went to",
            "Mean seconds per ended request: waits, its floor, what was lost above it, others.",
            "s",
            {"{{cause}}": _per_request("request_time_seconds_total", "cause")},
            {
                "floor_.*": GREEN,
                "wait_.*": ORANGE,
                "others_.*": BLUE,
                ".*_shortfall": RED,
                "host|sample|deliver|accept": PURPLE,
                "stalled|sat_out|recompute": YELLOW,
            },
        ),
        panels.stack(
            "Slow requests, by what made them so",
            "Per second. They missed an objective, or took over 3 × their floor alone.",
            "reqps",
            {"{{code}}": rate("slow_requests_total", "code")},
            {"wait_.*": ORANGE, "others_.*": BLUE, ".*_shortfall": RED, "prompt|tokens": GREEN},
        ),
    )


def _per_request(seconds: str, label: str) -> str:
    return share(rate(seconds, label), rate("request_duration_seconds_count"))


def _memory() -> tuple[timeseries.Panel, ...]:
    return (
        panels.stack(
            "KV blocks",
            "Free, kept for reuse, and referenced by live requests.",
            "short",
            {"{{state}}": now("kv_blocks", "state")},
            {"free": GREY, "cached": BLUE, "referenced": ORANGE},
        ),
        panels.lines(
            "KV headroom",
            "How many more requests of recent size fit.",
            "short",
            {"{{size}} request": now("kv_headroom_requests", "size")},
            {"p50 request": GREEN, "p95 request": ORANGE},
        ),
    )


def _prefixes() -> tuple[timeseries.Panel, ...]:
    hits, all_tokens = rate("prefix_tokens_total", result="hit"), rate("prefix_tokens_total")
    return (
        panels.lines(
            "Prefix hits",
            "Share of the known tokens of admitted requests that the index had.",
            "percentunit",
            {"hits": ratio(hits, all_tokens)},
            {"hits": CYAN},
        ),
        panels.lines(
            "Prefix savings",
            "Floor seconds per engine second: the steps without the index minus those that ran.",
            "percentunit",
            {"saved": ratio(rate("prefix_saved_seconds_total"), rate(WALL))},
            {"saved": GREEN},
        ),
    )


def _money() -> tuple[timeseries.Panel, ...]:
    hourly = f"{rate('cost_usd_total', 'tenant', 'component')} * {HOUR_S}"
    return (
        panels.stack(
            "Money by tenant",
            "USD per hour; `_shared` is idle time and waste. The pile is the price of the machine.",
            "currencyUSD",
            {"{{tenant}}: {{component}}": hourly},
            {".*prefill": BLUE, ".*decode": GREEN, ".*idle": GREY, ".*waste": YELLOW},
        ),
        panels.lines(
            "USD per million tokens",
            "Basis usage leaves idle time out, allocation puts all of it in.",
            "currencyUSD",
            _per_million(),
            {"input, usage": BLUE, "output, usage": GREEN,
             "input, allocation": CYAN, "output, allocation": ORANGE},
        ),
    )  # fmt: skip


def _health() -> tuple[timeseries.Panel, ...]:
    return (
        panels.lines(
            "HTTP responses",
            "Per second, by route and status.",
            "reqps",
            {"{{code}} {{route}}": rate("http_responses_total", "route", "code")},
            {"5.*": RED, "4.*": ORANGE},
        ),
        panels.lines(
            "Objectives",
            "Share of the requests that met each objective of --slo.",
            "percentunit",
            {"{{objective}}": _share_met()},
            {"ttft": GREEN, "itl": BLUE, "e2e": PURPLE},
        ),
        panels.lines(
            "Preemptions",
            "Requests per second that gave their blocks back and will be computed again.",
            "reqps",
            {"preemptions": rate("preemptions_total")},
            {"preemptions": RED},
        ),
        panels.lines(
            "What telemetry costs",
            "CPU time of the server processes, as a share of the engines' time.",
            "percentunit",
            {"telemetry": ratio(rate("telemetry_seconds_total"), rate(WALL))},
            {"telemetry": PURPLE},
        ),
    )


def _share_met() -> str:
    met = rate("slo_requests_total", "objective", outcome="met")
    return ratio(met, rate("slo_requests_total", "objective"))


def _per_million() -> panels.Queries:
    """Divide the replicas' money by their tokens; a replica without a price has none of either."""
    priced = f"and on ({', '.join(REPLICA)}) {select('price_usd_per_hour')}"
    spread = ratio(rate("cost_usd_total"), rate("cost_usd_total", component="prefill|decode"))
    found = {}
    for direction, part, kind in (
        ("input", "prefill", "prompt"),
        ("output", "decode", "generated"),
    ):
        tokens = f"sum ({rate('tokens_total', *REPLICA, kind=kind)} {priced})"
        usd = f"{ratio(rate('cost_usd_total', component=part), tokens)} * {MILLION}"
        found[f"{direction}, usage"] = usd
        found[f"{direction}, allocation"] = f"{usd} * ({spread})"
    return found
