"""What a load is: every option of `loadgen`, once. The command line is derived from here.

Structured options stay text, checked when they are read, so that a spec is plain JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loadgen.arrivals import parse_arrival
from loadgen.lengths import parse_lengths, parse_map

Parse = Callable[[str], Any]


def option(
    default: Any, help: str, parse: Parse = str, metavar: str = "", many: bool = False
) -> Any:
    """A field that is also a flag: `max_inflight` is `--max-inflight`."""
    metadata = {"help": help, "parse": parse, "metavar": metavar, "many": many}
    return field(default=default, metadata=metadata)


def checked(parse: Parse) -> Parse:
    """Wrap `parse` so that it refuses what it cannot read and gives the text back."""

    def check(text: str) -> str:
        parse(text)
        return text

    return check


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(f"{text} must be above 0")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(f"{text} must be at least 1")
    return value


def seconds(text: str) -> float:
    """Read 500ms, 2s, 5m or 1h; a bare number is seconds."""
    match = re.fullmatch(r"([0-9.]+)(us|ms|s|m|h|)", text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a time such as 500ms or 2s")
    scale = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
    return float(match[1]) * scale[match[2]]


def ratio(text: str) -> float:
    """Read 5% or 0.05."""
    value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 <= value <= 1:
        raise ValueError(f"{text} is not a share between 0 and 1 (or 0% and 100%)")
    return value


def parse_sessions(text: str) -> tuple[int, str, float]:
    """Read `turns=3,think=exp:2s` as (turns, kind of think time, its mean in seconds)."""
    parts = dict(part.split("=", 1) for part in text.split(","))
    kind, _, mean = parts.pop("think", "const:0s").rpartition(":")
    turns = count(parts.pop("turns"))
    if parts or kind not in ("", "const", "exp"):
        raise ValueError(f"{text!r} is not like turns=3,think=exp:2s")
    return turns, kind or "const", seconds(mean)


def parse_cancel(text: str) -> tuple[float, float]:
    """Read `10%@0.5s` as (share of requests, seconds after sending)."""
    share, _, after = text.partition("@")
    return ratio(share), seconds(after)


def header(text: str) -> str:
    if "=" not in text:
        raise ValueError(f"{text!r} is not K=V")
    return text


def json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


SLO_METRICS = ("ttft", "ttft_send", "e2e", "e2e_send", "tpot", "tpot_net", "itl", "stall_max")


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective. `quantile` None: a goal of each request, or for `errors` a share."""

    metric: str
    quantile: float | None
    limit: float  # seconds; for `errors` a ratio
    text: str


def parse_slo(text: str) -> Slo:
    """Read `ttft.p95=500ms`, `ttft=500ms` or `errors=1%`."""
    name, _, limit = text.partition("=")
    metric, _, quantile = name.partition(".")
    if metric == "errors" and not quantile:
        return Slo("errors", None, ratio(limit), text)
    if metric not in SLO_METRICS or (quantile and not re.fullmatch(r"p\d\d", quantile)):
        raise ValueError(f"{text!r} is not like ttft.p95=500ms, itl.p95=50ms or errors=1%")
    return Slo(metric, int(quantile[1:]) / 100 if quantile else None, seconds(limit), text)


def choice(*allowed: str) -> Parse:
    def check(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is none of {', '.join(allowed)}")
        return text

    return check


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpec:
    """The load: what is sent, and when."""

    rate: float | None = option(None, "mean arrivals per second", positive, "R")
    requests: int | None = option(None, "how many; default: 60, or the trace", count, "N")
    duration: float | None = option(None, "send for this long instead", seconds, "T")
    prompt: str = option(
        "32-96",
        "prompt tokens: a-b, =n, norm:m,s,lo,hi or lognorm:…",
        checked(parse_lengths),
        "LEN",
    )
    output: str = option("16-48", "output tokens, written likewise", checked(parse_lengths), "LEN")
    seed: int = option(7, "of arrivals, lengths, text and cancellation", int, "N")
    arrival: str = option(
        "poisson",
        "poisson, gamma:CV, constant, ramp:A-B or closed:N",
        checked(parse_arrival),
        "KIND",
    )
    trace: str | None = option(None, "replay an Azure, BurstGPT or Mooncake trace", metavar="FILE")
    speed: float = option(1.0, "the trace's clock runs this much faster", positive, "X")
    map: str | None = option(
        None, "ranges for the trace's lengths: prompt:32-96,output:16-48", checked(parse_map), "MAP"
    )
    sessions: str | None = option(
        None,
        "each arrival is a conversation: turns=3,think=exp:2s",
        checked(parse_sessions),
        "SPEC",
    )
    cancel: str | None = option(
        None, "hang up on a share of requests: 10%@0.5s", checked(parse_cancel), "P@T"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """How the load is sent, and what is asked of the answers."""

    plan: str | None = option(None, "send this plan instead of making one", metavar="FILE")
    warmup: float = option(0.0, "leave out requests meant to start before", seconds, "T")
    timeout: float = option(60.0, "a request fails after", seconds, "T")
    max_inflight: int | None = option(
        None, "hold back further requests; their clocks run", count, "N"
    )
    slo: tuple[str, ...] = option(
        (), "an objective: ttft.p95=500ms, itl.p95=50ms, errors=1%", checked(parse_slo), "S", True
    )
    cache: str | None = option(
        None,
        "cold: no two first blocks alike; warm: each prompt sent before",
        choice("cold", "warm"),
        "cold|warm",
    )
    price_per_hour: float | None = option(None, "USD per hour of the server", positive, "USD")
    max_error_rate: float = option(0.05, "share of failures for exit code 4", ratio, "P")
    workers: int = option(1, "client processes", count, "N")
    api: str = option(
        "completions", "completions or chat", choice("completions", "chat"), "completions|chat"
    )
    model: str | None = option(None, "default: the first that the server lists", metavar="M")
    api_key: str | None = option(None, "sent as a bearer token", metavar="K")
    header: tuple[str, ...] = option((), "a further HTTP header", header, "K=V", True)
    body: dict[str, Any] | None = option(None, "fields for every request", json_object, "JSON")
    ignore_eos: bool = option(False, "ask for the full length; an early stop is a failure")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """What is shown and written."""

    out: str | None = option(
        None, "write run.json, requests.jsonl, run.csv, report.html", str, "DIR"
    )
    format: str = option("text", "text or json", choice("text", "json"), "text|json")
    quiet: bool = option(False, "no progress line")
