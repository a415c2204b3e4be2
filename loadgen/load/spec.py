"""What a load is: every option of `loadgen`, once. The command line is derived from here.

Structured options stay text, checked when they are read, so that a spec is plain JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from core.inputs.objectives import ERRORS, Objective, parse_objectives
from core.inputs.options import setting
from core.inputs.quantities import real, share, time_s, whole
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
    """Take a name as it is, unless it is empty."""
    if not text:
        raise ValueError("the file name is empty (an unset shell variable?)")
    return text


count = whole(1, MOST)
positive = real(1 / MOST, MOST, "a number above 0, from 1e-9 to 1e9")


def one_of(*words: str) -> Callable[[str], str]:
    """Make the reader of a choice."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is not one of {', '.join(words)}")
        return text

    return read


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


_LENGTHS = "tokens: a-b, =n, norm:m,s,lo,hi or lognorm:…"
_GAPS = "poisson, gamma:CV, constant, ramp:A-B or closed:N"
_TALK = "each arrival is a conversation: turns=3,think=exp:2s"
_OBJECTIVE = "an objective: ttft.p95=500ms, itl.p95=50ms, errors=1%"
_CACHE = "cold: no two first blocks alike; warm: each prompt sent before"
_MAP = "ranges for the trace's lengths: prompt:32-96,output:16-48"
_CANCEL = "hang up on a share of the requests: 10%@0.5s"
_HOLD = "most requests in flight; the others wait, and their wait counts"
_SECONDS: dict[str, Any] = {"metavar": "T", "read": seconds}
_SOME_SECONDS: dict[str, Any] = {"metavar": "T", "read": some_seconds}
_COUNT: dict[str, Any] = {"metavar": "N", "read": count}
_FILE: dict[str, Any] = {"metavar": "FILE", "read": filename}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpec:
    """The load: what is sent, and when."""

    rate: float | None = setting(
        None, "mean arrivals per second", also=("--request-rate",), read=positive
    )
    requests: int | None = setting(
        None, "how many (60, or the trace)", also=("--num-prompts",), **_COUNT
    )
    duration: float | None = setting(
        None, "send for this long (instead of --requests)", **_SOME_SECONDS
    )
    prompt: str = setting("32-96", _LENGTHS, read=parse_lengths)
    output: str = setting("16-48", "output tokens, written likewise", read=parse_lengths)
    seed: int = setting(
        7,
        "decides arrivals, lengths, text and cancellation",
        metavar="N",
        read=whole(-math.inf, math.inf, "a whole number"),
    )
    arrival: str = setting("poisson", _GAPS, read=parse_arrival)
    trace: str | None = setting(None, "replay an Azure, BurstGPT or Mooncake file", **_FILE)
    speed: float = setting(1.0, "the trace's clock runs this much faster", read=positive)
    map: str | None = setting(None, _MAP, read=parse_map)
    sessions: str | None = setting(None, _TALK, read=parse_sessions)
    cancel: str | None = setting(None, _CANCEL, read=parse_cancel)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """How the load is sent, and what is asked of the answers."""

    plan: str | None = setting(None, "send this plan instead of making one", **_FILE)
    warmup: float = setting(0.0, "send this long before anything counts", **_SECONDS)
    timeout: float = setting(60.0, "a request fails after this long", **_SOME_SECONDS)
    max_inflight: int | None = setting(None, _HOLD, also=("--max-concurrency",), **_COUNT)
    slo: tuple[str, ...] = setting((), _OBJECTIVE, read=parse_slo)
    cache: str | None = setting(None, _CACHE, metavar="cold|warm", read=one_of("cold", "warm"))
    price_per_hour: float | None = setting(
        None, "USD per hour of the server", metavar="X", read=positive
    )
    max_error_rate: float = setting(
        0.05, "share of failures for exit code 4", metavar="SHARE", read=share
    )
    workers: int = setting(1, "client processes", **_COUNT)
    api: str = setting(
        "completions", "which API", metavar="completions|chat", read=one_of("completions", "chat")
    )
    model: str | None = setting(
        None, "its name", otherwise="the first that the server lists", read=str
    )
    api_key: str | None = setting(None, "sent as a bearer token", metavar="KEY", read=bearer)
    header: tuple[str, ...] = setting((), "a further HTTP header", metavar="K=V", read=parse_header)
    body: dict[str, Any] | None = setting(
        None, "fields for every request", metavar="JSON", read=json_object
    )
    ignore_eos: bool = setting(False, "ask for the full length; an early stop is a failure")
