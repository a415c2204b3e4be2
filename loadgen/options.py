"""The flags, derived from the specs; and the names that other load generators have for them."""

from __future__ import annotations

import argparse
import re
from argparse import SUPPRESS
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from importlib.metadata import version
from typing import Any, NoReturn, TypeVar

from core.errors import SettingsError
from core.inputs.options import Parser, add_options, named, options_of
from loadgen.load.draws import parse_arrival
from loadgen.load.spec import (
    PlanSpec,
    RunSpec,
    count,
    filename,
    parse_slo,
    positive,
    server_url,
    some_seconds,
)

URL = "http://127.0.0.1:8000"
COMMANDS = ("run", "sweep", "search", "compare", "plan", "report", "selftest")
EPILOG = f"Commands: {', '.join(COMMANDS).replace('run', 'run (the default)')}."
FILES = "write run.json, requests.jsonl, run.csv, report.html"
TIME_LIMIT_S = 1800.0
LIMIT = "start no run that would end after (default: 30m)"
STORED = {"compare": ("a", "b"), "report": ("folder",), "selftest": ()}  # they make no load
OTHERS: dict[str, tuple[str, Callable[[str], str], str]] = {  # names in other load generators
    "--burstiness": (
        "arrival",
        lambda x: _gamma(positive(x) ** -0.5),
        "1: Poisson, less: in bursts (--arrival gamma:1/√X)",
    ),
    "--random-input-len": ("prompt", lambda x: f"={count(x)}", "tokens of a prompt (--prompt =X)"),
    "--random-output-len": (
        "output",
        lambda x: f"={count(x)}",
        "tokens of an answer (--output =X)",
    ),
    "--goodput": (
        "slo",
        lambda x: _goodput(x),
        "limits in ms, such as ttft:500 (--slo ttft=500ms)",
    ),
}
S = TypeVar("S", PlanSpec, RunSpec)


class _Parser(Parser):
    def refuse(self, message: str) -> NoReturn:
        raise SettingsError(message)


def parser_of(command: str) -> argparse.ArgumentParser:
    """Build the parser of one command."""
    parser = _Parser(prog=f"loadgen {command}", epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"loadgen {version('floorline')}")
    for name in STORED.get(command, ()):
        parser.add_argument(name, help="a folder that --out wrote")
    if command in STORED:
        return parser
    if command == "plan":
        to = named(filename, "-o")
        parser.add_argument(
            "-o", dest="to", required=True, metavar="FILE", type=to, help="where to write"
        )
    else:
        where = f"the server (default: {URL})"
        url = named(_url, "URL")
        parser.add_argument("url", nargs="?", default=URL, metavar="URL", type=url, help=where)
        out = named(filename, "--out")
        parser.add_argument("--out", type=out, metavar="DIR", help=FILES)
        parser.add_argument("--format", choices=("text", "json"), help="default: text")
        parser.add_argument("--quiet", action="store_true", help="no progress line")
        _add_spec(parser, RunSpec, without="" if command == "run" else "plan")
    if command == "sweep":
        rates = named(_positives, "--rates")
        parser.add_argument(
            "--rates", type=rates, required=True, metavar="R,R,…", help="to measure"
        )
    if command == "search":
        limit = named(some_seconds, "--time-limit")
        parser.add_argument(
            "--time-limit", type=limit, metavar="T", default=TIME_LIMIT_S, help=LIMIT
        )
    _add_spec(parser, PlanSpec, without="rate" if command == "sweep" else "")
    if command == "run":
        _add_others(parser)
    return parser


def _add_others(parser: argparse.ArgumentParser) -> None:
    """Add the names of other load generators; each sets one of our own options."""
    for flag, (dest, parse, help) in OTHERS.items():
        how: dict[str, Any] = {"metavar": "X"}
        if dest == "slo":
            how = {"nargs": "+", "action": "extend", "metavar": "M:MS"}
        read = named(parse, flag)
        parser.add_argument(flag, dest=dest, type=read, default=SUPPRESS, help=help, **how)


def _add_spec(parser: argparse.ArgumentParser, spec: type, without: str) -> None:
    options = [option for option in options_of(spec) if option.name != without]
    add_options(parser, options, parsed=True)


def gather(spec: type[S], given: argparse.Namespace) -> S:
    """Build a spec of what was given; the rest has its defaults."""
    values: dict[str, Any] = {f.name: getattr(given, f.name, f.default) for f in fields(spec)}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return spec(**(values | lists))


def flags_given(spec: type[S], given: argparse.Namespace) -> list[str]:
    """Name a spec's flags that were given."""
    return [option.flag for option in options_of(spec) if hasattr(given, option.name)]


def _url(text: str) -> str:
    """Read the server's address, unless the word is a command with a typing error."""
    alike = get_close_matches(text.lower(), COMMANDS, n=1)
    if alike and not re.search(r"[.:/\[]", text):
        if text in COMMANDS:
            raise ValueError(f"{text!r} is a command, and comes first: loadgen {text}")
        told = f"did you mean loadgen {alike[0]}? A host of that name is written http://{text}"
        raise ValueError(f"there is no command {text!r}: {told}")
    return server_url(text)


def _positives(text: str) -> list[float]:
    return [positive(part) for part in text.split(",")]


def _gamma(variation: float) -> str:
    arrival = f"gamma:{variation!r}"
    parse_arrival(arrival)
    return arrival


def _goodput(text: str) -> str:
    metric, _, limit = text.partition(":")
    positive(limit)  # a bare number, in ms as elsewhere; anything else is told as that
    slo = f"{metric.replace('e2el', 'e2e')}={limit}ms"
    parse_slo(slo)
    return slo
