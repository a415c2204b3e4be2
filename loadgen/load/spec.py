"""What a load is: every option of `loadgen`, once. The command line is derived from here.

Structured options stay text, checked when they are read, so that a spec is plain JSON.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from core.inputs.objectives import ERRORS, Objective, parse_objectives
from core.inputs.quantities import number, share, time_s
from loadgen.load.draws import MOST, parse_arrival, parse_lengths, parse_map

SLO_METRICS = (
    *("ttft", "ttft_send", "e2e", "e2e_send", "tpot", "tpot_net", "itl", "stall_max"),
    ERRORS,
)


def server_url(text: str) -> str:
    """Read a server's address: http where no scheme is named, without the path of the API.

    A path before that of the API stays: a proxy's.
    """
    unusable = f"{text!r} is not a server such as http://127.0.0.1:8000"
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        named = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # half of an IPv6 address, or a port that is none
        raise ValueError(unusable) from None
    path = re.sub(r"(/v1(/completions)?)?/*$", "", url.path)
    if not named or url.query or url.fragment:
        raise ValueError(unusable)
    if "/v1/" in path:
        raise ValueError(f"{text!r}: only the server is named here; chat is --api chat")
    return f"{url.scheme}://{url.netloc}{path}"


def filename(text: str) -> str:
    """Take a name as it is; an empty one is a variable of the shell that nobody set."""
    if not text:
        raise ValueError("an empty name is no file's")
    return text


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def positive(text: str) -> float:
    value = number(text)
    if not 1 / MOST <= value <= MOST:
        raise ValueError(f"{text!r} is not a number above 0, from 1e-9 to 1e9")
    return value


def count(text: str) -> int:
    value = whole(text)
    if not 1 <= value <= MOST:
        raise ValueError(f"{text!r} is not a whole number from 1 to {MOST:,}")
    return value


def seconds(text: str) -> float:
    """Read 500ms, 2s, 5m or 1h; a bare number is seconds."""
    value = time_s(text)
    if not value < math.inf:
        raise ValueError(f"{text!r} is not a time such as 500ms or 2s")
    return value


def some_seconds(text: str) -> float:
    value = seconds(text)
    if not value:
        raise ValueError(f"{text!r} is not a time above 0, such as 500ms or 2s")
    return value


def parse_sessions(text: str) -> tuple[int, str, float]:
    """Read `turns=3,think=exp:2s` as (turns, kind of think time, its mean in seconds)."""
    match = re.fullmatch(r"turns=(\d+)(?:,think=(?:(const|exp):)?(.+))?", text)
    if not match:
        raise ValueError(f"{text!r} is not like turns=3,think=exp:2s")
    return count(match[1]), match[2] or "const", seconds(match[3] or "0s")


def parse_cancel(text: str) -> tuple[float, float]:
    """Read `10%@0.5s` as (share of requests, seconds after sending)."""
    match = re.fullmatch("(.+)@(.+)", text)
    if not match:
        raise ValueError(f"{text!r} is not like 10%@0.5s")
    return share(match[1]), seconds(match[2])


def parse_header(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"([\w.-]+)=([ -~]*)", text, re.ASCII)
    if not match:
        raise ValueError(f"{text!r} is not K=V, in ASCII")
    return match[1], match[2]


def bearer(text: str) -> str:
    if not re.fullmatch("[!-~]*", text):
        raise ValueError("a key is printable ASCII, without spaces")
    return text


def json_object(text: str) -> dict[str, Any]:
    with suppress(ValueError):  # a text that is no JSON is refused below
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    raise ValueError(f'{text!r} is not a JSON object such as {{"temperature": 0}}')


def parse_slo(text: str) -> tuple[Objective, ...]:
    """Read `ttft.p95=500ms`, `ttft=500ms`, `errors=1%`, or several by commas.

    Raises:
        SettingsError: names the objective.
    """
    return parse_objectives(text, SLO_METRICS, quantiles=True)


def option(default: Any, help: str, *also: str, **how: Any) -> Any:
    """Make a field that is also a flag: `max_inflight` is `--max-inflight`.

    `also` is how other load generators spell it. `how` is for argparse, but for `check`, which
    reads the text and leaves it as it is.
    """
    return field(default=default, metadata={"help": help, "also": also, **how})


_LENGTHS = "tokens: a-b, =n, norm:m,s,lo,hi or lognorm:…"
_GAPS = "poisson, gamma:CV, constant, ramp:A-B or closed:N"
_TALK = "each arrival is a conversation: turns=3,think=exp:2s"
_OBJECTIVE = "an objective: ttft.p95=500ms, itl.p95=50ms, errors=1%"
_CACHE = "cold: no two first blocks alike; warm: each prompt sent before"
_MAP = "ranges for the trace's lengths: prompt:32-96,output:16-48"
_CANCEL = "hang up on a share of requests: 10%@0.5s"
_HOLD = "hold back further requests; their clocks run"
_HEADER: dict[str, Any] = {"check": parse_header, "metavar": "K=V", "action": "append"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpec:
    """The load: what is sent, and when."""

    rate: float | None = option(None, "mean arrivals per second", "--request-rate", type=positive)
    requests: int | None = option(None, "how many (60, or the trace)", "--num-prompts", type=count)
    duration: float | None = option(None, "send for this long instead", type=some_seconds)
    prompt: str = option("32-96", _LENGTHS, check=parse_lengths)
    output: str = option("16-48", "output tokens, written likewise", check=parse_lengths)
    seed: int = option(7, "of arrivals, lengths, text and cancellation", type=whole)
    arrival: str = option("poisson", _GAPS, check=parse_arrival)
    trace: str | None = option(None, "replay an Azure, BurstGPT or Mooncake file", type=filename)
    speed: float = option(1.0, "the trace's clock runs this much faster", type=positive)
    map: str | None = option(None, _MAP, check=parse_map)
    sessions: str | None = option(None, _TALK, check=parse_sessions)
    cancel: str | None = option(None, _CANCEL, check=parse_cancel)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """How the load is sent, and what is asked of the answers."""

    plan: str | None = option(None, "send this plan instead of making one", type=filename)
    warmup: float = option(0.0, "leave out requests meant to start before", type=seconds)
    timeout: float = option(60.0, "a request fails after", type=some_seconds)
    max_inflight: int | None = option(None, _HOLD, "--max-concurrency", type=count)
    slo: tuple[str, ...] = option((), _OBJECTIVE, check=parse_slo, action="append")
    cache: str | None = option(None, _CACHE, choices=("cold", "warm"))
    price_per_hour: float | None = option(None, "USD per hour of the server", type=positive)
    max_error_rate: float = option(0.05, "share of failures for exit code 4", type=share)
    workers: int = option(1, "client processes", type=count)
    api: str = option("completions", "which API", choices=("completions", "chat"))
    model: str | None = option(None, "default: the first that the server lists")
    api_key: str | None = option(None, "sent as a bearer token", metavar="KEY", type=bearer)
    header: tuple[str, ...] = option((), "a further HTTP header", **_HEADER)
    body: dict[str, Any] | None = option(None, "fields for every request", type=json_object)
    ignore_eos: bool = option(False, "ask for the full length; an early stop is a failure")
