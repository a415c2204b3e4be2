"""Runs as text for a terminal: one, two side by side, or several rates. n/a, never a guess."""

from __future__ import annotations

import re
from collections import defaultdict
from string import Formatter
from typing import Any

from loadgen.report.stats import QUANTILES

COLUMNS = ("p50", "p90", "p99")
LATENCY = "{:<16}" + "{:>10.1f}" * 5 + "{:>10}"
FAILED = "{:<16}" + "{:>10.1f}" * 3 + "{:>30}"
PAIR = "{:<12} {:>5} {:>11.1f} {:>11.1f} {:>9+.1%}  {}"
RATE = "{:>9.3g} {:>9.3g} {:>10.1f}" + " {:>9.1f}" * 4 + " {:>10.3f} {:>7} {:>7}"
RATE_HEAD = (
    *("rate/s", "achieved", "tokens/s", "ttft p50", "ttft p90", "itl p50", "itl p90"),
    *("efficiency", "failed", "valid"),
)
MET = {True: "met", False: "MISSED", None: "n/a"}
BALANCE = {True: "balances", False: "DOES NOT BALANCE", None: "n/a"}
HEAD = """\
loadgen  {url}  model {model}  {prompts[label]}
plan     {plan[sha256]:.12}  seed {plan[spec][seed]}  {kind}  {plan[requests]} requests
rate     offered {rates[offered_per_s]:.3f_/s}  achieved {rates[achieved_per_s]:.3f_/s}\
  over {rates[window_s]:.1f} s
requests {sent} sent, {counted} counted, {failed} failed  ({named})
tokens/s {rates[output_tokens_per_s]:.1f} output, {rates[prompt_tokens_per_s]:.1f} prompt
"""
TAIL = """
server   efficiency {server[efficiency]:.3f} (floor / measured)  step {server[step_ms]:.2f_ ms}\
  floor {server[floor_step_ms]:.2f_ ms}  MBU {server[mbu]:.3f}
         batch {server[mean_batch]:.2f}  running {server[mean_running]:.2f}\
  KV in use {server[kv_use]:.1%}  preemptions {server[preemptions]:.0f}
bill     {balance}: {tokens}
         nano-USD {nusd}
client   {keeps_up}: loop lag p99 {client[loop_lag_p99_ms]:.1f} ms, wake lag p99\
 {client[wake_lag_p99_ms]:.1f} ms, CPU {client[cpu_ratio]:.0%}, in flight\
 {client[mean_inflight]:.2f} (by Little {client[mean_inflight_by_law]:.2f})"""
PRICE = """\
USD      {usd_per_million_tokens:.3g} per million tokens, {usd_per_request:.3g} per request,\
 {usd_per_good_request:.3g} per good request"""
WHERE = """\
where    {words};
         ttft {ttft}, e2e {e2e}, tpot {tpot},
         tpot_net {tpot_net}, itl per token, icl per chunk, send_lag {send_lag}"""


class Known(Formatter):
    """Formats what is known: None is n/a, an endless wait failed. A unit may follow a `_`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        spec = re.fullmatch(r"([<>]\d+)?([^_]*)(?:_(.*))?", format_spec)
        assert spec
        align, form, unit = spec.groups("")
        if value is None or value == "inf":
            return format("n/a" if value is None else "failed", align)
        if isinstance(value, str) and align:  # a head's cell, or an empty one
            return format(value, align)
        return format(f"{value:{form}}{unit}", align)


show = Known().format


def percentiles(numbers: dict[str, Any], names: tuple[str, ...] = COLUMNS) -> list[Any]:
    return [(numbers[name] or {}).get("value") for name in names]


def render(summary: dict[str, Any]) -> str:
    """Show one run in about 25 lines."""
    spec, client, account = summary["plan"]["spec"], summary["client"], summary["bill"]
    lines = []
    if not summary["valid"]:
        lines.append(f"NOT VALID: the client was the limit: {'; '.join(client['limits'])}")
    if summary["interrupted"]:
        lines.append("INTERRUPTED: a partial report")
    counts = {name: _ways(ways) for name, ways in account["tokens"].items()}
    derived = {
        "kind": f"trace {spec['trace']}" if spec["trace"] else spec["arrival"],
        "named": "  ".join(f"{n} {name}" for name, n in summary["outcomes"].items()) or "none",
        "server": defaultdict(lambda: None, summary["server"]),
        "balance": BALANCE[account["balanced"]],
        "tokens": "  ".join(f"{name} {ways}" for name, ways in counts.items()),
        "nusd": _ways(account["nusd"]),
        "keeps_up": "valid" if client["valid"] else "LIMITED",
    }
    shown = summary | derived
    lines += [show(HEAD, **shown), *_latencies(summary), show(TAIL, **shown)]
    if "window_usd" in account:
        lines.append(show(PRICE, **account))
    lines += map(_objective, summary["slos"])
    if summary["slos"]:
        lines.append(show("good     {:.1%} of the counted requests", summary["attainment"]))
    return "\n".join([*lines, show(WHERE, **summary["definitions"])])


def _latencies(summary: dict[str, Any]) -> list[str]:
    """Show each latency beside its floor, where the server tells one."""
    floors, failing = summary["floors_ms"], summary["metrics_with_failures"] or {}
    lines = [show(LATENCY, "ms", *COLUMNS, "mean", "floor", "n")]
    for metric, numbers in summary["metrics"].items():
        cells = (*percentiles(numbers), numbers["mean"], floors.get(metric, ""), numbers["n"])
        lines.append(show(LATENCY, metric, *cells))
    for metric, numbers in failing.items():
        lines.append(show(FAILED, f"{metric}+failed", *percentiles(numbers), numbers["n"]))
    return lines


def _ways(ways: dict[str, int | None]) -> str:
    """Name the ways of counting that agree; show each count where they do not."""
    known = {way: count for way, count in ways.items() if count is not None}
    if len(set(known.values())) == 1:
        return f"{next(iter(known.values()))} ({', '.join(known)})"
    return ", ".join(f"{count} by {way}" for way, count in known.items()) or "n/a"


def _objective(verdict: dict[str, Any]) -> str:
    value, of_all = verdict["value"], "." in verdict["slo"].partition("=")[0]
    if of_all and isinstance(value, float):
        value *= 1e3
    form = "slo      {}: {} ({:.1f_ ms})" if of_all else "slo      {}: {} ({:.1%})"
    return show(form, verdict["slo"], MET[verdict["met"]], value)


def render_pair(a: dict[str, Any], b: dict[str, Any]) -> str:
    """Compare the percentiles of two runs. They differ where 95 % intervals do not overlap."""
    lines = [f"run {name} is not valid" for name, run in (("A", a), ("B", b)) if not run["valid"]]
    if a["plan"]["sha256"] != b["plan"]["sha256"]:
        lines.insert(0, "the plans differ: these are two loads")
    lines.append(show(PAIR, "ms", "", "A", "B", "change", "").rstrip())
    for metric in a["metrics"]:
        for quantile in QUANTILES:
            left, right = a["metrics"][metric][quantile], b["metrics"][metric][quantile]
            if left and right:
                change = right["value"] / left["value"] - 1 if left["value"] else None
                cells = (left["value"], right["value"], change, _verdict(left, right))
                lines.append(show(PAIR, metric, quantile, *cells).rstrip())
    return "\n".join(lines)


def _verdict(left: dict[str, Any], right: dict[str, Any]) -> str:
    if left["lo"] is None or right["lo"] is None:
        return ""
    apart = left["hi"] < right["lo"] or right["hi"] < left["lo"]
    return "differs" if apart else "within noise"


def render_rates(runs: dict[float, dict[str, Any]]) -> str:
    rows = (render_rate(rate, summary) for rate, summary in runs.items())
    return "\n".join([show(RATE, *RATE_HEAD), *rows])


def render_rate(rate: float, summary: dict[str, Any]) -> str:
    metrics, rates = summary["metrics"], summary["rates"]
    latencies = [p for m in ("ttft", "itl") for p in percentiles(metrics[m], ("p50", "p90"))]
    cells = (rates["achieved_per_s"], rates["output_tokens_per_s"], *latencies)
    told = (summary["server"].get("efficiency"), summary["failed"])
    return show(RATE, rate, *cells, *told, "yes" if summary["valid"] else "NO")
