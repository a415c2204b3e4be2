"""Runs as text for a terminal: one, two side by side, or several rates. n/a, never a guess."""

from __future__ import annotations

from typing import Any

from loadgen.stats import QUANTILES

COLUMNS = ("p50", "p90", "p99")
LATENCY = "{:<16}" + "{:>10}" * 6
PAIR = "{:<12} {:>5} {:>11} {:>11} {:>9}  {}"
RATE = "{:>9} {:>9} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7} {:>7}"
RATE_HEAD = (
    *("rate/s", "achieved", "tokens/s", "ttft p50", "ttft p90", "itl p50", "itl p90"),
    *("efficiency", "failed", "valid"),
)


def number(value: Any, form: str = ".1f", unit: str = "") -> str:
    if value is None:
        return "n/a"
    return "failed" if value == "inf" else f"{value:{form}}{unit}"


def percentiles(numbers: dict[str, Any], names: tuple[str, ...] = COLUMNS) -> list[str]:
    return [number((numbers[name] or {}).get("value")) for name in names]


def render(summary: dict[str, Any]) -> str:
    """Show one run in about 25 lines."""
    parts = (_banners, _head, _latencies, _server, _tail, _definitions)
    return "\n".join(line for part in parts for line in part(summary))


def _banners(summary: dict[str, Any]) -> list[str]:
    lines = []
    if not summary["valid"]:
        reasons = "; ".join(summary["client"]["limits"])
        lines.append(f"NOT VALID: the client was the limit: {reasons}")
    if summary["interrupted"]:
        lines.append("INTERRUPTED: a partial report")
    return lines


def _head(summary: dict[str, Any]) -> list[str]:
    plan, rates, spec = summary["plan"], summary["rates"], summary["plan"]["spec"]
    kind = f"trace {spec['trace']}" if spec["trace"] else spec["arrival"]
    named = "  ".join(f"{n} {name}" for name, n in summary["outcomes"].items()) or "none"
    first = f"loadgen  {summary['url']}  model {summary['model']}"
    return [
        f"{first}  {summary['prompts']['label']}",
        f"plan     {plan['sha256'][:12]}  seed {spec['seed']}  {kind}  {plan['requests']} requests",
        f"rate     offered {number(rates['offered_per_s'], '.3f', '/s')}  achieved"
        f" {number(rates['achieved_per_s'], '.3f', '/s')}  over {rates['window_s']:.1f} s",
        f"requests {summary['sent']} sent, {summary['counted']} counted, {summary['failed']} failed"
        f"  ({named})",
        f"tokens/s {number(rates['output_tokens_per_s'])} output,"
        f" {number(rates['prompt_tokens_per_s'])} prompt",
        "",
    ]


def _latencies(summary: dict[str, Any]) -> list[str]:
    """Show each latency beside its floor, where the server tells one."""
    floors = summary["floors_ms"]
    lines = [LATENCY.format("ms", *COLUMNS, "mean", "floor", "n")]
    for metric, numbers in summary["metrics"].items():
        floor = number(floors[metric]) if metric in floors else ""
        cells = [*percentiles(numbers), number(numbers["mean"]), floor, numbers["n"]]
        lines.append(LATENCY.format(metric, *cells))
    for metric, numbers in (summary["metrics_with_failures"] or {}).items():
        cells = [*percentiles(numbers), "", "", numbers["n"]]
        lines.append(LATENCY.format(f"{metric}+failed", *cells))
    return [*lines, ""]


def _server(summary: dict[str, Any]) -> list[str]:
    def shown(key: str, form: str, unit: str = "") -> str:
        return number(summary["server"].get(key), form, unit)

    return [
        f"server   efficiency {shown('efficiency', '.3f')} (floor / measured)  step"
        f" {shown('step_ms', '.2f', ' ms')}  floor {shown('floor_step_ms', '.2f', ' ms')}"
        f"  MBU {shown('mbu', '.3f')}",
        f"         batch {shown('mean_batch', '.2f')}  running {shown('mean_running', '.2f')}"
        f"  KV in use {shown('kv_use', '.1%')}  preemptions {shown('preemptions', '.0f')}",
    ]


def _tail(summary: dict[str, Any]) -> list[str]:
    client, account = summary["client"], summary["bill"]
    balance = {True: "balances", False: "DOES NOT BALANCE", None: "n/a"}[account["balanced"]]
    ways = "  ".join(f"{name} {_ways(ways)}" for name, ways in account["tokens"].items())
    lines = [
        f"bill     {balance}: {ways}",
        f"         nano-USD {_ways(account['nusd'])}",
        f"client   {'valid' if client['valid'] else 'LIMITED'}: loop lag p99"
        f" {client['loop_lag_p99_ms']:.1f} ms, wake lag p99 {client['wake_lag_p99_ms']:.1f} ms,"
        f" CPU {client['cpu_ratio']:.0%}, in flight {client['mean_inflight']:.2f}"
        f" (by Little {client['mean_inflight_by_law']:.2f})",
    ]
    if "window_usd" in account:
        per = ("million_tokens", "request", "good_request")
        cells = (f"{number(account[f'usd_per_{unit}'], '.3g')} per {unit}" for unit in per)
        lines.append(f"USD      {', '.join(cells).replace('_', ' ')}")
    for verdict in summary["slos"]:
        met = {True: "met", False: "MISSED", None: "n/a"}[verdict["met"]]
        lines.append(f"slo      {verdict['slo']}: {met} ({_slo_value(verdict)})")
    if summary["slos"]:
        lines.append(f"good     {number(summary['attainment'], '.1%')} of the counted requests")
    return lines


def _definitions(summary: dict[str, Any]) -> list[str]:
    words = summary["definitions"]
    return [
        f"where    {words['words']};",
        f"         ttft {words['ttft']}, e2e {words['e2e']}, tpot {words['tpot']},",
        f"         tpot_net {words['tpot_net']}, itl per token, icl per chunk,"
        f" send_lag {words['send_lag']}",
    ]


def _ways(ways: dict[str, int | None]) -> str:
    """Name the ways of counting that agree; show each count where they do not."""
    known = {way: count for way, count in ways.items() if count is not None}
    if len(set(known.values())) == 1:
        return f"{next(iter(known.values()))} ({', '.join(known)})"
    return ", ".join(f"{count} by {way}" for way, count in known.items()) or "n/a"


def _slo_value(verdict: dict[str, Any]) -> str:
    value, name = verdict["value"], verdict["slo"].partition("=")[0]
    if value is None or value == "inf":
        return number(value)
    return f"{value * 1e3:.1f} ms" if "." in name else f"{value:.1%}"


def render_pair(a: dict[str, Any], b: dict[str, Any]) -> str:
    """Compare the percentiles of two runs. They differ where 95 % intervals do not overlap."""
    lines = [f"run {name} is not valid" for name, run in (("A", a), ("B", b)) if not run["valid"]]
    if a["plan"]["sha256"] != b["plan"]["sha256"]:
        lines.insert(0, "the plans differ: these are two loads")
    lines.append(PAIR.format("ms", "", "A", "B", "change", ""))
    for metric in a["metrics"]:
        for quantile in QUANTILES:
            left, right = a["metrics"][metric][quantile], b["metrics"][metric][quantile]
            if left and right:
                cells = (number(left["value"]), number(right["value"]), *_change(left, right))
                lines.append(PAIR.format(metric, quantile, *cells).rstrip())
    return "\n".join(lines)


def _change(left: dict[str, Any], right: dict[str, Any]) -> tuple[str, str]:
    change = f"{right['value'] / left['value'] - 1:+.1%}" if left["value"] else "n/a"
    if left["lo"] is None or right["lo"] is None:
        return change, ""
    apart = left["hi"] < right["lo"] or right["hi"] < left["lo"]
    return change, "differs" if apart else "within noise"


def render_rates(runs: dict[float, dict[str, Any]]) -> str:
    rows = (render_rate(rate, summary) for rate, summary in runs.items())
    return "\n".join([RATE.format(*RATE_HEAD), *rows])


def render_rate(rate: float, summary: dict[str, Any]) -> str:
    metrics, rates = summary["metrics"], summary["rates"]
    return RATE.format(
        f"{rate:.3g}",
        number(rates["achieved_per_s"], ".3g"),
        number(rates["output_tokens_per_s"]),
        *percentiles(metrics["ttft"], ("p50", "p90")),
        *percentiles(metrics["itl"], ("p50", "p90")),
        number(summary["server"].get("efficiency"), ".3f"),
        summary["failed"],
        "yes" if summary["valid"] else "NO",
    )
