"""A run as text for a terminal: about 25 lines, n/a where a number would be a guess."""

from __future__ import annotations

from typing import Any

COLUMNS = ("p50", "p90", "p99")


def number(value: Any, form: str = ".1f", unit: str = "") -> str:
    if value is None:
        return "n/a"
    return "failed" if value == "inf" else f"{value:{form}}{unit}"


def render(summary: dict[str, Any]) -> str:
    lines = [*_head(summary), "", *_latencies(summary), "", *_server(summary), *_tail(summary)]
    return "\n".join(lines)


def _head(summary: dict[str, Any]) -> list[str]:
    plan, rates, spec = summary["plan"], summary["rates"], summary["plan"]["spec"]
    kind = f"trace {spec['trace']}" if spec["trace"] else spec["arrival"]
    outcomes = dict(summary["outcomes"])
    named = "  ".join(f"{count} {name}" for name, count in outcomes.items()) or "none"
    first = f"loadgen  {summary['url']}  model {summary['model']}"
    lines = [
        f"{first}  {summary['prompts']['label']}",
        f"plan     {plan['sha256'][:12]}  seed {spec['seed']}  {kind}  {plan['requests']} requests",
        f"rate     offered {number(rates['offered_per_s'], '.3f', '/s')}  achieved"
        f" {number(rates['achieved_per_s'], '.3f', '/s')}  over {rates['window_s']:.1f} s",
        f"requests {summary['sent']} sent, {summary['counted']} counted, {summary['failed']} failed"
        f"  ({named})",
        f"tokens/s {number(rates['output_tokens_per_s'])} output,"
        f" {number(rates['prompt_tokens_per_s'])} prompt",
    ]
    if summary["interrupted"]:
        lines.insert(0, "INTERRUPTED: a partial report")
    if not summary["valid"]:
        reasons = "; ".join(summary["client"]["limits"])
        lines.insert(0, f"NOT VALID: the client was the limit: {reasons}")
    return lines


def _latencies(summary: dict[str, Any]) -> list[str]:
    """Show each latency beside its floor, where the server tells one."""
    floor = summary["server"].get("floor_decode_step_ms")
    lines = [f"{'ms':<16}" + "".join(f"{name:>10}" for name in (*COLUMNS, "mean", "floor", "n"))]
    for metric, numbers in summary["metrics"].items():
        cells = [number((numbers[name] or {}).get("value")) for name in COLUMNS]
        own_floor = number(floor) if metric in ("tpot", "tpot_net", "itl") else ""
        cells += [number(numbers["mean"]), own_floor, str(numbers["n"])]
        lines.append(f"{metric:<16}" + "".join(f"{cell:>10}" for cell in cells))
    for metric, numbers in (summary["metrics_with_failures"] or {}).items():
        cells = [number((numbers[name] or {}).get("value")) for name in COLUMNS]
        cells += ["", "", str(numbers["n"])]
        lines.append(f"{metric + '+failed':<16}" + "".join(f"{cell:>10}" for cell in cells))
    return lines


def _server(summary: dict[str, Any]) -> list[str]:
    server = summary["server"]

    def shown(key: str, form: str) -> str:
        return number(server.get(key), form)

    return [
        f"server   efficiency {shown('efficiency', '.3f')} (floor / measured)  step"
        f" {number(server.get('step_ms'), '.2f', ' ms')}  floor"
        f" {number(server.get('floor_step_ms'), '.2f', ' ms')}  MBU {shown('mbu', '.3f')}",
        f"         batch {shown('mean_batch', '.2f')}  running {shown('mean_running', '.2f')}"
        f"  KV in use {shown('kv_use', '.1%')}  preemptions {shown('preemptions', '.0f')}",
    ]


def _tail(summary: dict[str, Any]) -> list[str]:
    client, account = summary["client"], summary["bill"]
    balance = {True: "balances", False: "DOES NOT BALANCE", None: "n/a"}[account["balanced"]]
    ways = "  ".join(f"{name} {_ways(ways)}" for name, ways in account["tokens"].items())
    lines = [
        f"bill     {balance}: {ways}",
        f"client   {'valid' if client['valid'] else 'LIMITED'}: loop lag p99"
        f" {client['loop_lag_p99_ms']:.1f} ms, wake lag p99 {client['wake_lag_p99_ms']:.1f} ms,"
        f" CPU {client['cpu_ratio']:.0%}, in flight {client['mean_inflight']:.2f}"
        f" (by Little {client['mean_inflight_by_law']:.2f})",
    ]
    if "window_usd" in account:
        money = _money_cells(account)
        lines.append(f"cost     {money}")
    for verdict in summary["slos"]:
        met = {True: "met", False: "MISSED", None: "n/a"}[verdict["met"]]
        lines.append(f"slo      {verdict['slo']}: {met} ({_slo_value(verdict)})")
    if summary["slos"]:
        lines.append(f"good     {number(summary['attainment'], '.1%')} of the counted requests")
    words = summary["definitions"]
    lines.append(f"where    {words['words']};")
    lines.append(f"         ttft {words['ttft']}, e2e {words['e2e']}, tpot {words['tpot']},")
    lines.append(f"         tpot_net {words['tpot_net']}, itl per token, icl per chunk, send_lag"
                 f" {words['send_lag']}")  # fmt: skip
    return lines


def _ways(ways: dict[str, int | None]) -> str:
    """Name the ways of counting that agree; show each count where they do not."""
    known = {way: count for way, count in ways.items() if count is not None}
    if len(set(known.values())) == 1:
        return f"{next(iter(known.values()))} ({', '.join(known)})"
    return ", ".join(f"{count} by {way}" for way, count in known.items()) or "n/a"


def _money_cells(account: dict[str, Any]) -> str:
    cells = [
        ("usd_per_million_tokens", "per million tokens"),
        ("usd_per_request", "per request"),
        ("usd_per_good_request", "per good request"),
    ]
    return ", ".join(f"USD {number(account[key], '.3g')} {what}" for key, what in cells)


def _slo_value(verdict: dict[str, Any]) -> str:
    value, text = verdict["value"], verdict["slo"]
    if value is None:
        return "n/a"
    if text.startswith("errors") or "." not in text.partition("=")[0]:
        return f"{value:.1%}"
    return "failed" if value == "inf" else f"{value * 1e3:.1f} ms"
