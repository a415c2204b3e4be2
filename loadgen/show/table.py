"""Runs as text for a terminal: one, two side by side, or several rates. n/a, never a guess."""

from __future__ import annotations

import math

from loadgen.report.bill import Price, Ways
from loadgen.report.join import ServerView
from loadgen.report.measure import Judgement
from loadgen.report.stats import Distribution, Percentile
from loadgen.report.summary import Summary

COLUMNS = ("p50", "p90", "p99")
RATE_WIDTHS = (9, 9, 10, 9, 9, 9, 9, 10, 7, 7)
RATE_HEAD = (
    *("rate/s", "achieved", "tokens/s", "ttft p50", "ttft p90", "itl p50", "itl p90"),
    *("efficiency", "failed", "valid"),
)
MET = {True: "met", False: "MISSED", None: "n/a"}
BALANCE = {True: "balances", False: "DOES NOT BALANCE", None: "n/a"}


def known(value: float | None, form: str, unit: str = "") -> str:
    """Format a number with its unit; None is n/a, and an endless wait failed."""
    if value is None:
        return "n/a"
    return "failed" if value == math.inf else f"{value:{form}}{unit}"


def render_run(summary: Summary) -> str:
    """Show one run in about 25 lines."""
    lines = []
    if not summary.valid:
        lines.append(f"NOT VALID: the client was the limit: {'; '.join(summary.client.limits)}")
    if summary.interrupted:
        lines.append("INTERRUPTED: a partial report")
    lines += [*_head(summary), "", *_latencies(summary), "", *_server(summary.server)]
    lines += [*_bill(summary), *_client(summary)]
    if summary.bill.price:
        lines.append(_price(summary.bill.price))
    lines += map(_objective, summary.slos)
    if summary.slos:
        lines.append(f"good     {known(summary.attainment, '.1%')} of the counted requests")
    return "\n".join([*lines, *_where(summary.definitions)])


def _head(summary: Summary) -> list[str]:
    plan, rates, spec = summary.plan, summary.rates, summary.plan.spec
    kind = f"trace {spec['trace']}" if spec["trace"] else spec["arrival"]
    named = "  ".join(f"{n} {name}" for name, n in summary.outcomes.items()) or "none"
    return [
        f"loadgen  {summary.url}  model {summary.model}  {summary.prompts.label}",
        f"plan     {plan.sha256:.12}  seed {spec['seed']}  {kind}  {plan.requests} requests",
        f"rate     offered {known(rates.offered_per_s, '.3f', '/s')}"
        f"  achieved {known(rates.achieved_per_s, '.3f', '/s')}  over {rates.window_s:.1f} s",
        f"requests {summary.sent} sent, {summary.counted} counted, {summary.failed} failed"
        f"  ({named})",
        f"tokens/s {known(rates.output_tokens_per_s, '.1f')} output,"
        f" {known(rates.prompt_tokens_per_s, '.1f')} prompt;"
        f" {known(rates.steady_tokens_per_s, '.1f')} output while requests were being sent",
    ]


def _latencies(summary: Summary) -> list[str]:
    """Show each latency beside its floor, where the server tells one."""
    lines, floors = [_row("ms", *COLUMNS, "mean", "floor", "n")], summary.floors_ms
    for metric, numbers in summary.metrics.items():
        floor = known(floors[metric], ".1f") if metric in floors else ""
        mean = known(numbers.mean, ".1f")
        lines.append(_row(metric, *percentiles(numbers), mean, floor, f"{numbers.n}"))
    for metric, numbers in (summary.metrics_with_failures or {}).items():
        lines.append(_row(f"{metric}+failed", *percentiles(numbers), "", "", f"{numbers.n}"))
    return lines


def _row(name: str, *cells: str) -> str:
    return f"{name:<16}" + "".join(f"{cell:>10}" for cell in cells)


def percentiles(numbers: Distribution, names: tuple[str, ...] = COLUMNS) -> list[str]:
    found = [numbers.percentiles()[name] for name in names]
    return [known(one.value if one else None, ".1f") for one in found]


def _server(told: ServerView | None) -> list[str]:
    server = told or ServerView()
    return [
        f"server   efficiency {known(server.efficiency, '.3f')} (floor / measured)"
        f"  step {known(server.step_ms, '.2f', ' ms')}"
        f"  floor {known(server.floor_step_ms, '.2f', ' ms')}  MBU {known(server.mbu, '.3f')}",
        f"         batch {known(server.mean_batch, '.2f')}"
        f"  running {known(server.mean_running, '.2f')}"
        f"  KV in use {known(server.kv_use, '.1%')}"
        f"  preemptions {known(server.preemptions, '.0f')}",
        f"         its time: {_shares(server.time_s)}",
        f"         while requests queued: {_shares(server.queued_time_s, 'none seen to queue')}",
        f"         its requests' time: {_shares(server.request_time_s)}",
        f"         slow requests: {_slow_at(server.slow)}",
    ]


def _slow_at(slow: dict[str, float] | None) -> str:
    """Count the requests that the server calls slow, by what made them so."""
    if not slow:
        return "n/a" if slow is None else "none"
    by_code = ", ".join(f"{count:.0f} by {code}" for code, count in slow.items())
    return f"{by_code}; floorline why says more"


def _shares(time_s: dict[str, float] | None, empty: str = "n/a") -> str:
    """Name what a server's time went to, the most first; less than half a percent is left out."""
    if not time_s:
        return "n/a" if time_s is None else empty
    whole_s = sum(time_s.values())
    parts = ((name, seconds / whole_s) for name, seconds in time_s.items())
    shown = ", ".join(f"{name} {part:.0%}" for name, part in parts if part >= 0.005)
    return f"{shown} of {whole_s:.1f} s"


def _bill(summary: Summary) -> list[str]:
    account = summary.bill
    tokens = "  ".join(f"{name} {_ways(ways)}" for name, ways in account.tokens.items())
    return [
        f"bill     {BALANCE[account.balanced]}: {tokens}",
        f"         nano-USD {_ways(account.nusd)}",
    ]


def _ways(ways: Ways) -> str:
    """Name the ways of counting that agree; show each count where they do not."""
    counts = {way: count for way, count in ways.items() if count is not None}
    if len(set(counts.values())) == 1:
        return f"{next(iter(counts.values()))} ({', '.join(counts)})"
    return ", ".join(f"{count} by {way}" for way, count in counts.items()) or "n/a"


def _client(summary: Summary) -> list[str]:
    client = summary.client
    return [
        f"client   {'valid' if client.valid else 'LIMITED'}:"
        f" loop lag p99 {client.loop_lag_p99_ms:.1f} ms,"
        f" wake lag p99 {client.wake_lag_p99_ms:.1f} ms, CPU {client.cpu_ratio:.0%},"
        f" in flight {client.mean_inflight:.2f} (by Little {client.mean_inflight_by_law:.2f})"
    ]


def _price(price: Price) -> str:
    return (
        f"USD      {known(price.usd_per_million_tokens, '.3g')} per million tokens,"
        f" {known(price.usd_per_request, '.3g')} per request,"
        f" {known(price.usd_per_good_request, '.3g')} per good request"
    )


def _objective(judged: Judgement) -> str:
    """Show the value in ms where a percentile is judged, else as a share of the requests."""
    value, is_time = judged.value, "." in judged.slo.partition("=")[0]
    form, unit = (".1f", " ms") if is_time else (".1%", "")
    shown = known(value * 1e3 if value and is_time else value, form, unit)
    return f"slo      {judged.slo}: {MET[judged.met]} ({shown})"


def _where(words: dict[str, str]) -> list[str]:
    return [
        f"where    {words['words']};",
        f"         ttft {words['ttft']}, e2e {words['e2e']}, tpot {words['tpot']},",
        f"         tpot_net {words['tpot_net']}, itl per token, icl per chunk,"
        f" send_lag {words['send_lag']}",
    ]


def render_pair(a: Summary, b: Summary) -> str:
    """Compare the percentiles of two runs. They differ where 95 % intervals do not overlap."""
    lines = [f"run {name} is not valid" for name, run in (("A", a), ("B", b)) if not run.valid]
    if a.plan.sha256 != b.plan.sha256:
        lines.insert(0, "the plans differ: these are two loads")
    lines.append(_pair("ms", "", "A", "B", "change", ""))
    for metric, numbers in a.metrics.items():
        others = b.metrics[metric].percentiles()
        for quantile, left in numbers.percentiles().items():
            if left and (right := others[quantile]):
                change = right.value / left.value - 1 if left.value else None
                values = (known(left.value, ".1f"), known(right.value, ".1f"))
                cells = (*values, known(change, "+.1%"), _verdict(left, right))
                lines.append(_pair(metric, quantile, *cells))
    return "\n".join(lines)


def _pair(metric: str, quantile: str, a: str, b: str, change: str, verdict: str) -> str:
    return f"{metric:<12} {quantile:>5} {a:>11} {b:>11} {change:>9}  {verdict}".rstrip()


def _verdict(left: Percentile, right: Percentile) -> str:
    if left.lo is None or left.hi is None or right.lo is None or right.hi is None:
        return ""
    return "differs" if left.hi < right.lo or right.hi < left.lo else "within noise"


def render_rates(runs: dict[float, Summary]) -> str:
    return "\n".join([_rate(*RATE_HEAD), *(render_rate(rate, run) for rate, run in runs.items())])


def render_rate(rate: float, summary: Summary) -> str:
    rates, server = summary.rates, summary.server or ServerView()
    return _rate(
        f"{rate:.3g}",
        known(rates.achieved_per_s, ".3g"),
        known(rates.output_tokens_per_s, ".1f"),
        *(p for m in ("ttft", "itl") for p in percentiles(summary.metrics[m], ("p50", "p90"))),
        known(server.efficiency, ".3f"),
        f"{summary.failed}",
        "yes" if summary.valid else "NO",
    )


def _rate(*cells: str) -> str:
    widths = zip(cells, RATE_WIDTHS, strict=True)
    return " ".join(f"{cell:>{width}}" for cell, width in widths)
