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
from loadgen.stats import Weighted, each_once, percentile, summarise, summarise_pooled

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


def _per_token(record: Record, first: int | None) -> float | None:
    """Divide the time after the first chunk by the tokens after `first`."""
    n = record.output_tokens
    if n is None or first is None or n <= first or len(record.content) < 2:
        return None
    return (record.content[-1][0] - record.content[0][0]) / (n - first)


PER_REQUEST: dict[str, Callable[[Record], float | None]] = {
    "ttft": lambda r: r.content[0][0] - r.intended_s,
    "ttft_send": lambda r: r.content[0][0] - r.sent_s,
    "e2e": lambda r: r.content[-1][0] - r.intended_s,
    "e2e_send": lambda r: r.content[-1][0] - r.sent_s,
    "tpot": lambda r: _per_token(r, 1),
    "tpot_net": lambda r: _per_token(r, r.content[0][1]),
    "stall_max": lambda r: max((gap for gap, _ in chunk_gaps(r)), default=None),
}


def chunk_gaps(record: Record) -> list[tuple[float, int | None]]:
    """Give (gap, tokens in the later chunk) between neighbouring content arrivals."""
    return [(later - earlier, tokens) for (earlier, _), (later, tokens) in pairwise(record.content)]


def token_gaps(record: Record) -> list[Weighted]:
    """Give (gap per token, tokens); empty where token counts per chunk are not known."""
    return [(gap / k, k) for gap, k in chunk_gaps(record) if k]


def answered(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.outcome == OK]


def samples_of(metric: str, records: Iterable[Record]) -> list[float]:
    """Collect a per-request metric over answered requests, where it is defined."""
    values = map(PER_REQUEST[metric], answered(records))
    return [value for value in values if value is not None]


def counted(records: Iterable[Record], warmup_s: float) -> list[Record]:
    """Keep what is measured: meant to start after the warm-up, ended by neither plan nor user."""
    ended = (CANCELLED, INTERRUPTED)
    return [r for r in records if r.intended_s >= warmup_s and r.outcome not in ended]


def all_metrics(records: Sequence[Record]) -> dict[str, Any]:
    """Summarise every definition over the answered requests."""
    good = answered(records)
    metrics = {metric: summarise(samples_of(metric, good)) for metric in PER_REQUEST}
    metrics["itl"] = summarise_pooled(gap for r in good for gap in token_gaps(r))
    metrics["icl"] = summarise_pooled((gap, 1) for r in good for gap, _ in chunk_gaps(r))
    metrics["send_lag"] = summarise(record.sent_s - record.intended_s for record in records)
    return {name: metrics[name] for name in DEFINITIONS}


def with_failures(records: Sequence[Record]) -> dict[str, Any]:
    """Summarise again with each failure as an endless wait: what a user of the service sees."""
    endless = [math.inf for record in records if record.failed]
    metrics = ("ttft", "e2e", "tpot")
    return {metric: summarise([*samples_of(metric, records), *endless]) for metric in metrics}


def total(values: Iterable[int | None]) -> int | None:
    """Sum what is known of every one; None where it is not, or there is none."""
    known = list(values)
    return None if None in known or not known else sum(n for n in known if n is not None)


def rates(records: Sequence[Record], warmup_s: float, span_s: float) -> dict[str, Any]:
    """Offered and achieved rates. The window runs from the warm-up's end to the last end."""
    good = answered(records)
    window_s = max((record.end_s for record in records), default=warmup_s) - warmup_s
    prompt = total(record.used("prompt_tokens") for record in good)
    output = total(record.output_tokens for record in good)

    def per_s(amount: int | None, seconds: float) -> float | None:
        return None if amount is None or seconds <= 0 else round(amount / seconds, 4)

    return {
        "window_s": round(window_s, 3),
        "offered_per_s": per_s(len(records), span_s - warmup_s),
        "achieved_per_s": per_s(len(good), window_s),
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
    latencies = [slo for slo in slos if slo.metric != "errors"]
    values = ((request_value(slo.metric, record), slo.limit) for slo in latencies)
    return all(value is None or value <= limit for value, limit in values)


def judge(slo: Slo, records: Sequence[Record]) -> dict[str, Any]:
    """Judge one objective over all counted requests; failures are endless waits.

    Returns: `met` is None where the metric is not known or the samples are too few.
    """
    value: float | None = None
    if slo.metric == "errors" and records:
        value = sum(record.failed for record in records) / len(records)
    elif slo.quantile is not None:
        samples = _with_endless(slo.metric, records)
        value = percentile(samples, slo.quantile) if samples else None
    elif records:
        value = sum(is_good(record, [slo]) for record in records) / len(records)
    everyone = slo.quantile is None and slo.metric != "errors"
    met = None if value is None else value == 1 if everyone else value <= slo.limit
    shown = "inf" if value == math.inf else value
    return {"slo": slo.text, "limit": slo.limit, "value": shown, "met": met}


def _with_endless(metric: str, records: Iterable[Record]) -> list[Weighted]:
    """Sort a metric's samples with each failure as an endless wait; for `itl`, per token."""
    lost = [record for record in records if record.failed]
    if metric == "itl":
        gaps = [gap for record in answered(records) for gap in token_gaps(record)]
        endless = [(math.inf, record.asked_output_tokens) for record in lost]
        return sorted([*gaps, *endless]) if gaps else []
    return sorted(each_once([*samples_of(metric, records), *(math.inf for _ in lost)]))
