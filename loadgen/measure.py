"""The definitions: from records to latencies, rates and attainment. It knows no server and no file.

s intended start, t0 sent, c1…cm content arrivals, n output tokens, k1 tokens in the first chunk.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from loadgen.observe import CANCELLED, INTERRUPTED, OK, Record
from loadgen.spec import Slo
from loadgen.stats import Weighted, percentile, summarise, summarise_pooled

DEFINITIONS = {
    "ttft": "c1 - s",
    "ttft_send": "c1 - t0",
    "e2e": "cm - s",
    "e2e_send": "cm - t0",
    "tpot": "(cm - c1) / (n - 1)",
    "tpot_net": "(cm - c1) / (n - k1)",
    "itl": "gap between content arrivals / tokens in the later one, weighted by tokens",
    "icl": "gap between content chunks",
    "stall_max": "longest gap of the request",
    "send_lag": "t0 - s",
}
WORDS = "s intended start, t0 sent, c1..cm content arrivals, n output tokens, k1 tokens in c1"
POOLED = ("itl", "icl")


def _tokens_after_first(record: Record) -> int | None:
    n, first = record.output_tokens, record.content[0][1]
    return None if n is None or first is None else n - first


def _per_token(record: Record, tokens: int | None) -> float | None:
    if not tokens or tokens < 1 or len(record.content) < 2:
        return None
    return (record.content[-1][0] - record.content[0][0]) / tokens


def _less_one(n: int | None) -> int | None:
    return None if n is None else n - 1


PER_REQUEST: dict[str, Callable[[Record], float | None]] = {
    "ttft": lambda r: r.content[0][0] - r.intended_s,
    "ttft_send": lambda r: r.content[0][0] - r.sent_s,
    "e2e": lambda r: r.content[-1][0] - r.intended_s,
    "e2e_send": lambda r: r.content[-1][0] - r.sent_s,
    "tpot": lambda r: _per_token(r, _less_one(r.output_tokens)),
    "tpot_net": lambda r: _per_token(r, _tokens_after_first(r)),
    "stall_max": lambda r: max((gap for gap, _ in chunk_gaps(r)), default=None),
}


def chunk_gaps(record: Record) -> list[tuple[float, int | None]]:
    """Give (gap, tokens in the later chunk) between neighbouring content arrivals."""
    return [(later - earlier, tokens) for (earlier, _), (later, tokens) in pairwise(record.content)]


def token_gaps(record: Record) -> list[Weighted]:
    """Give (gap per token, tokens); empty where token counts per chunk are not known."""
    return [(gap / k, k) for gap, k in chunk_gaps(record) if k]


def samples_of(metric: str, records: Iterable[Record]) -> list[float]:
    """Collect a per-request metric over answered requests, where it is defined."""
    formula = PER_REQUEST[metric]
    values = (formula(record) for record in records if record.outcome == OK)
    return [value for value in values if value is not None]


def counted(records: Iterable[Record], warmup_s: float) -> list[Record]:
    """Keep what is measured: meant to start after the warm-up, ended by neither plan nor user."""
    ended = (CANCELLED, INTERRUPTED)
    return [r for r in records if r.intended_s >= warmup_s and r.outcome not in ended]


def all_metrics(records: Sequence[Record]) -> dict[str, Any]:
    """Summarise every definition over the answered requests."""
    answered = [record for record in records if record.outcome == OK]
    metrics = {metric: summarise(samples_of(metric, answered)) for metric in PER_REQUEST}
    metrics["itl"] = summarise_pooled([gap for r in answered for gap in token_gaps(r)])
    metrics["icl"] = summarise_pooled([(gap, 1) for r in answered for gap, _ in chunk_gaps(r)])
    metrics["send_lag"] = summarise([record.sent_s - record.intended_s for record in records])
    return {name: metrics[name] for name in DEFINITIONS}


def with_failures(records: Sequence[Record]) -> dict[str, Any]:
    """Summarise again with each failure as an endless wait: what a user of the service sees."""
    return {
        metric: summarise([*samples_of(metric, records), *_endless(records)])
        for metric in ("ttft", "e2e", "tpot")
    }


def _endless(records: Iterable[Record]) -> list[float]:
    return [math.inf for record in records if record.failed]


def rates(records: Sequence[Record], warmup_s: float, span_s: float) -> dict[str, Any]:
    """Offered and achieved rates. The window runs from the warm-up's end to the last end."""
    answered = [record for record in records if record.outcome == OK]
    window_s = max((record.end_s for record in records), default=warmup_s) - warmup_s
    outputs = [record.output_tokens for record in answered]
    prompt = sum((r.usage or {}).get("prompt_tokens", r.asked_prompt_tokens) for r in answered)
    output = None if None in outputs else sum(n for n in outputs if n is not None)
    offered_s = span_s - warmup_s

    def per_s(amount: int | None, seconds: float) -> float | None:
        return None if amount is None or seconds <= 0 else round(amount / seconds, 4)

    return {
        "window_s": round(window_s, 3),
        "offered_per_s": per_s(len(records), offered_s),
        "achieved_per_s": per_s(len(answered), window_s),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "prompt_tokens_per_s": per_s(prompt, window_s),
        "output_tokens_per_s": per_s(output, window_s),
    }


def outcomes(records: Iterable[Record]) -> dict[str, int]:
    return dict(sorted(Counter(record.outcome for record in records).items()))


def request_value(metric: str, record: Record) -> float | None:
    """Give a request's own value of an SLO's metric; for `itl` its mean over tokens."""
    if metric != "itl":
        return PER_REQUEST[metric](record)
    gaps = token_gaps(record)
    tokens = sum(k for _, k in gaps)
    return sum(gap * k for gap, k in gaps) / tokens if tokens else None


def is_good(record: Record, slos: Iterable[Slo]) -> bool:
    """Say whether a request was answered within every latency limit; undefined values pass."""
    if record.outcome != OK:
        return False
    values = (
        (request_value(slo.metric, record), slo.limit) for slo in slos if slo.metric != "errors"
    )
    return all(value is None or value <= limit for value, limit in values)


def judge(slo: Slo, records: Sequence[Record]) -> dict[str, Any]:
    """Judge one objective over all counted requests; failures are endless waits.

    Returns: `met` is None where the metric is not known or the samples are too few.
    """
    n = len(records)
    failed = sum(record.failed for record in records)
    verdict: dict[str, Any] = {"slo": slo.text, "limit": slo.limit, "value": None, "met": None}
    if slo.metric == "errors":
        value = failed / n if n else None
        return verdict | {"value": value, "met": None if value is None else value <= slo.limit}
    good = sum(is_good(record, [slo]) for record in records)
    if slo.quantile is None:
        return verdict | {"value": good / n if n else None, "met": good == n if n else None}
    if slo.metric == "itl":
        gaps = [gap for r in records if r.outcome == OK for gap in token_gaps(r)]
        lost = [(math.inf, r.asked_output_tokens) for r in records if r.failed]
        samples = sorted([*gaps, *lost] if gaps else [])
    else:
        known = samples_of(slo.metric, records)
        samples = sorted((value, 1) for value in [*known, *[math.inf] * failed] if known or failed)
    if samples:
        value = percentile(samples, slo.quantile)
        verdict |= {"value": "inf" if math.isinf(value) else value, "met": value <= slo.limit}
    return verdict
