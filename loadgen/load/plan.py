"""The plan: which request leaves when, how long, with which seed. Made before anything is sent.

It knows no server and no clock; the same spec gives the same bytes everywhere.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import groupby, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import SettingsError
from loadgen.load.draws import (
    ClosedArrival,
    ConstantArrival,
    GammaArrival,
    RampArrival,
    map_by_rank,
    parse_arrival,
    parse_lengths,
    parse_map,
    send_times_s,
)
from loadgen.load.spec import PlanSpec, parse_cancel, parse_sessions

DEFAULT_REQUESTS = 60
PLAN_VERSION = 1


class TraceRow(NamedTuple):
    """An arrival and its lengths."""

    t_s: float
    prompt_tokens: int
    output_tokens: int


def _azure_s(text: str) -> float:
    # fromisoformat takes six digits of fraction; the files have seven
    return (datetime.fromisoformat(text.strip()[:26]) - datetime(2023, 1, 1)).total_seconds()


FORMATS: dict[str, Any] = {  # the start's column: how to read it, the columns of token counts
    "TIMESTAMP": (_azure_s, "ContextTokens", "GeneratedTokens"),
    "Timestamp": (float, "Request tokens", "Response tokens"),  # BurstGPT
    "timestamp": (lambda ms: float(ms) / 1000, "input_length", "output_length"),  # Mooncake
}


def read_trace(path: str) -> list[TraceRow]:
    """Read a whole trace, times from its first row on. Rows without output (failures) are left out.

    Raises:
        SettingsError: the file or one row cannot be read; names the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise SettingsError(f"--trace {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"--trace {path}: not a text in UTF-8") from None
    answered = (row for row in _rows(path, lines) if row.output_tokens > 0)
    rows = sorted(answered, key=lambda row: row.t_s)
    if not rows:
        raise SettingsError(f"--trace {path}: no requests in it")
    return [row._replace(t_s=row.t_s - rows[0].t_s) for row in rows]


def _rows(path: str, lines: list[str]) -> Iterator[TraceRow]:
    table = csv.DictReader(lines)
    numbered: Iterator[tuple[int, Any]] = ((table.line_num, row) for row in table)
    column = next((name for name in FORMATS if name in (table.fieldnames or ())), None)
    if lines and lines[0].lstrip().startswith("{"):
        numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
        column = "timestamp"
    if column is None:
        raise SettingsError(
            f"--trace {path}: line 1 is not that of an Azure, BurstGPT or Mooncake file"
        )
    read, prompt, output = FORMATS[column]
    for number, raw in numbered:
        try:
            cells = json.loads(raw) if isinstance(raw, str) else raw
            row = TraceRow(read(cells[column]), int(cells[prompt]), int(cells[output]))
            if row.prompt_tokens < 1 or row.output_tokens < 0:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            told = f"needs {column}, {prompt} of at least 1 and {output} of at least 0"
            raise SettingsError(f"--trace {path}, line {number}: {told}") from None
        yield row


@dataclass(frozen=True, slots=True)
class Planned:
    """A request that is planned and not yet sent."""

    i: int
    t_s: float  # from the start of the run
    prompt_tokens: int
    output_tokens: int
    prompt_seed: int
    cancel_at: float | None = None  # seconds from sending
    session: int | None = None
    turn: int = 0
    think_s: float = 0.0  # between the answer before it and this turn

    def line(self) -> str:
        fields = list(asdict(self).items())
        return json.dumps(dict(fields[:6] if self.session is None else fields))


@dataclass(frozen=True)
class Plan:
    """Invariant: the hash is that of the request lines, so equal hashes are equal loads."""

    spec: dict[str, Any]
    requests: tuple[Planned, ...]

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256("".join(f"{r.line()}\n" for r in self.requests).encode()).hexdigest()

    @property
    def span_s(self) -> float:
        return self.requests[-1].t_s

    @property
    def closed(self) -> int | None:
        """Give the concurrency of a closed loop; None is an open one, as every trace is."""
        arrival = parse_arrival(self.spec["arrival"])
        if self.spec["trace"] or not isinstance(arrival, ClosedArrival):
            return None
        return arrival.concurrency

    def sessions(self) -> list[list[Planned]]:
        """Group turns that must follow one another; without sessions each request is alone."""
        grouped = groupby(self.requests, lambda r: (r.session, r.i if r.session is None else 0))
        return [list(turns) for _, turns in grouped]

    def dump(self) -> str:
        about = {"plan": PLAN_VERSION, "seed": self.spec["seed"], "requests": len(self.requests)}
        header = about | {"sha256": self.sha256, "spec": self.spec}
        return "\n".join([json.dumps(header), *(r.line() for r in self.requests), ""])


def make_plan(spec: PlanSpec) -> Plan:
    """Draw the load. Arrivals, lengths, text, cancellation and thinking have a random stream each.

    Raises:
        SettingsError: options that do not go together, or a trace that cannot be read.
    """
    _refuse_what_would_be_passed_over(spec)
    text, cancel, think = (_stream(spec, name) for name in ("text", "cancel", "think"))
    share, after_s = parse_cancel(spec.cancel) if spec.cancel else (0.0, 0.0)
    turns, kind, mean_s = parse_sessions(spec.sessions) if spec.sessions else (1, "const", 0.0)
    requests: list[Planned] = []
    for i, row in enumerate(_arrivals(spec, turns)):
        cancel_at = after_s if cancel.random() < share else None
        pause_s = mean_s * (think.expovariate(1.0) if kind == "exp" else 1.0)
        session, turn = divmod(i, turns)
        seed, lengths = text.getrandbits(32), (row.prompt_tokens, row.output_tokens)
        planned = Planned(i, round(row.t_s, 6), *lengths, seed, cancel_at)
        if turns > 1:
            think_s = round(pause_s, 6) if turn else 0.0
            planned = replace(planned, session=session, turn=turn, think_s=think_s)
        requests.append(planned)
    if not requests:
        raise SettingsError("the plan holds no request: --duration is too short for --rate")
    plain = asdict(spec) | {"trace": Path(spec.trace).name if spec.trace else None}
    return Plan(plain, tuple(requests))


def _refuse_what_would_be_passed_over(spec: PlanSpec) -> None:
    plain, idle = PlanSpec(), ("arrival", "prompt", "output") if spec.trace else ("speed", "map")
    if given := [f"--{name}" for name in idle if getattr(spec, name) != getattr(plain, name)]:
        flags = ", ".join(given)
        if spec.trace:
            raise SettingsError(f"--trace cannot be combined with {flags}: the trace decides it")
        raise SettingsError(f"{flags}: only for a load from --trace")


def follows_rate(spec: PlanSpec) -> bool:
    """Say whether `rate` decides how fast the load is."""
    arrival = parse_arrival(spec.arrival)
    return not spec.trace and isinstance(arrival, ConstantArrival | GammaArrival)


def _stream(spec: PlanSpec, name: str) -> random.Random:
    return random.Random(f"{spec.seed}:{name}")


def _arrivals(spec: PlanSpec, turns: int) -> Iterator[TraceRow]:
    """Yield a row for each request; all turns of a session carry the session's start."""
    if spec.trace:
        yield from (row for row in _trace_rows(spec, spec.trace) for _ in range(turns))
        return
    prompt, output = parse_lengths(spec.prompt), parse_lengths(spec.output)
    lengths = _stream(spec, "lengths")
    for t_s in _times(spec):
        for _ in range(turns):
            yield TraceRow(t_s, prompt.draw(lengths), output.draw(lengths))


def _times(spec: PlanSpec) -> Iterator[float]:
    arrival = parse_arrival(spec.arrival)
    if spec.rate is None and follows_rate(spec):
        raise SettingsError("--rate is missing: how many requests per second?")
    if spec.duration is not None and (spec.requests or isinstance(arrival, ClosedArrival)):
        raise SettingsError("--duration cannot be combined with --requests or --arrival closed:N")
    wanted = spec.requests or DEFAULT_REQUESTS
    ends = arrival.start + arrival.end if isinstance(arrival, RampArrival) else 1.0
    span_s = spec.duration or 2 * wanted / ends
    times = send_times_s(arrival, spec.rate or 1.0, span_s, _stream(spec, "arrivals"))
    if spec.duration is None:
        return islice(times, wanted)
    return takewhile(lambda t_s: t_s < span_s, times)


def _trace_rows(spec: PlanSpec, trace: str) -> Iterator[TraceRow]:
    times, prompts, outputs = zip(*read_trace(trace), strict=True)
    ranges = parse_map(spec.map) if spec.map else {}
    lengths = map_by_rank(prompts, ranges.get("prompt")), map_by_rank(outputs, ranges.get("output"))
    rows = map(TraceRow, (t_s / spec.speed for t_s in times), *lengths)
    limit_s = spec.duration or math.inf
    return islice(takewhile(lambda row: row.t_s < limit_s, rows), spec.requests)


def load_plan(path: str) -> Plan:
    """Read a plan back.

    Raises:
        SettingsError: not a plan, or its lines do not hash to what its header says.
    """
    try:
        first, *lines = Path(path).read_text(encoding="utf-8").splitlines()
        header = json.loads(first)
        plan = Plan(header["spec"], tuple(Planned(**json.loads(line)) for line in lines))
        whole = bool(plan.requests) and header["sha256"] == plan.sha256
    except OSError as error:
        raise SettingsError(f"--plan {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SettingsError(f"--plan {path}: not a file that loadgen plan wrote") from None
    if not whole:
        raise SettingsError(f"--plan {path}: its requests were changed (their hash differs)")
    return plan
