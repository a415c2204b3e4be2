"""The definitions: from records to latencies, rates and attainment. It knows no server and no file.

s intended start, t0 sent, c1…cm content arrivals, n output tokens, k1 tokens in the first chunk.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.inputs.objectives import Objective
from loadgen.report.stats import Distribution, Weighted, each_once, percentile, summarise
from loadgen.run.record import OK, Record

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
OF_GAPS = ("itl", "icl")  # gaps of one request are not independent
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


def answered(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.outcome == OK]


def samples(metric: str, record: Record) -> list[Weighted]:
    """Give an answered request's samples: one a gap for `itl` and `icl`, else one, or none.

    Those of `itl` weigh as many tokens as came; there are none where the server does not count.
    """
    if metric == "itl":
        return [(gap / k, k) for gap, k in chunk_gaps(record) if k]
    if metric == "icl":
        return [(gap, 1) for gap, _ in chunk_gaps(record)]
    value = PER_REQUEST[metric](record)
    return [] if value is None else [(value, 1)]


def pooled(metric: str, records: Iterable[Record], failures: bool = False) -> list[Weighted]:
    """Sort a metric's samples over the answered requests.

    With `failures` each failed request is an endless wait; for `itl`, one for every token.
    """
    known = [sample for record in answered(records) for sample in samples(metric, record)]
    lost = [record for record in records if record.failed and failures]
    endless = [(math.inf, r.asked_output_tokens if metric == "itl" else 1) for r in lost]
    return sorted(known + endless) if known or metric != "itl" else []


def counted(records: Iterable[Record], warmup_s: float) -> list[Record]:
    """Keep what is measured: meant to start after the warm-up, ended by neither plan nor user."""
    return [r for r in records if r.intended_s >= warmup_s and (r.failed or r.outcome == OK)]


def all_metrics(records: Sequence[Record]) -> dict[str, Distribution]:
    """Summarise every definition over the answered requests; `send_lag` over all."""
    found = {m: pooled(m, records) for m in (*PER_REQUEST, *OF_GAPS)}
    found["send_lag"] = each_once(record.sent_s - record.intended_s for record in records)
    return {m: summarise(found[m], independent=m not in OF_GAPS) for m in DEFINITIONS}


def with_failures(records: Sequence[Record]) -> dict[str, Distribution]:
    """Summarise again with each failure as an endless wait: what a user of the service sees."""
    found = {m: pooled(m, records, failures=True) for m in ("ttft", "e2e", "tpot")}
    return {m: summarise(samples, independent=True) for m, samples in found.items()}


def total(values: Iterable[int | None]) -> int | None:
    """Sum the values; None if one of them is unknown, or if there are none."""
    known = list(values)
    return None if None in known or not known else sum(n for n in known if n is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What arrived in a window counts in it, also of requests begun before it."""

    window_s: float  # from the end of the warm-up to the last end
    offered_per_s: float | None
    answered: int  # requests whose answer ended in the window
    achieved_per_s: float | None
    prompt_tokens: int | None  # whose first token arrived in it; None where the server counts none
    output_tokens: int | None
    prompt_tokens_per_s: float | None
    output_tokens_per_s: float | None
    steady_s: float  # the part in which load was offered: without the tail
    steady_tokens_per_s: float | None  # output


def rates(records: Sequence[Record], warmup_s: float, span_s: float) -> Throughput:
    """Give offered and achieved rates of all records, those of the warm-up among them."""
    end_s = max((record.end_s for record in records), default=warmup_s)
    window_s, steady_s = max(end_s - warmup_s, 0.0), max(span_s - warmup_s, 0.0)
    began = [r for r in answered(records) if warmup_s <= r.content[0][0]]
    ended = sum(warmup_s <= record.end_s for record in answered(records))
    prompt = total(record.used("prompt_tokens") for record in began)
    output = arrived_tokens(records, warmup_s, end_s)

    def per_s(amount: int | None, seconds: float) -> float | None:
        return None if amount is None or seconds <= 0 else round(amount / seconds, 4)

    return Throughput(
        window_s=round(window_s, 3),
        offered_per_s=per_s(len(counted(records, warmup_s)), steady_s),
        answered=ended,
        achieved_per_s=per_s(ended, window_s),
        prompt_tokens=prompt,
        output_tokens=output,
        prompt_tokens_per_s=per_s(prompt, window_s),
        output_tokens_per_s=per_s(output, window_s),
        steady_s=round(steady_s, 3),
        steady_tokens_per_s=per_s(arrived_tokens(records, warmup_s, span_s), steady_s),
    )


def arrived_tokens(records: Iterable[Record], start_s: float, end_s: float) -> int | None:
    """Sum the output tokens that arrived from `start_s` to `end_s`.

    Returns: None where an answer lies partly outside and the server does not count its chunks.
        What a request that broke off had received counts where its chunks are counted.
    """
    seen = [r for r in records if r.content and r.content[-1][0] >= start_s]
    return total(
        _tokens_within(record, start_s, end_s)
        for record in seen
        if record.outcome == OK or None not in [tokens for _, tokens in record.content]
    )


def _tokens_within(record: Record, start_s: float, end_s: float) -> int | None:
    inside = [tokens for t_s, tokens in record.content if start_s <= t_s <= end_s]
    if record.outcome == OK and len(inside) == len(record.content):
        return record.output_tokens
    return total(inside) if inside else 0


def outcomes(records: Iterable[Record]) -> dict[str, int]:
    return dict(sorted(Counter(record.outcome for record in records).items()))


def is_good(record: Record, slos: Iterable[Objective]) -> bool:
    """Say whether a request was answered within every latency limit; undefined values pass.

    Its value of `itl` is the mean over its tokens.
    """
    if record.outcome != OK:
        return False
    for slo in slos:
        own = [] if slo.metric == "errors" else samples(slo.metric, record)
        if sum(value * weight for value, weight in own) > slo.limit * sum(w for _, w in own):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Judgement:
    slo: str
    limit: float
    value: float | None  # seconds, or a share of the requests
    met: bool | None  # None where the metric is not known or the samples are too few


def judge(slo: Objective, records: Sequence[Record]) -> Judgement:
    """Judge one objective over all counted requests; failures are endless waits."""
    value: float | None = None
    errors = slo.metric == "errors"
    if slo.quantile is not None:
        waits = pooled(slo.metric, records, failures=True)
        value = percentile(waits, slo.quantile) if waits else None
    elif records:
        value = sum(r.failed if errors else is_good(r, [slo]) for r in records) / len(records)
    everyone = slo.quantile is None and not errors
    met = None if value is None else value == 1 if everyone else value <= slo.limit
    return Judgement(slo.text, slo.limit, value, met)
