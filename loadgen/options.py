"""The flags, derived from the specs; and what other load generators say in another way."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.metadata import version
from typing import Any, NoReturn, TypeVar

from core.errors import SettingsError
from core.inputs.quantities import share
from loadgen.load.draws import parse_arrival
from loadgen.load.spec import (
    PlanSpec,
    RunSpec,
    count,
    filename,
    json_object,
    parse_slo,
    positive,
    seconds,
    server_url,
    some_seconds,
    whole,
)

URL = "http://127.0.0.1:8000"
EPILOG = "Commands: run (the default), sweep, search, compare, plan, report, selftest."
FILES = "write run.json, requests.jsonl, run.csv, report.html"
METAVARS: dict[Any, str] = {seconds: "T", some_seconds: "T", count: "N", whole: "N"}
METAVARS |= {share: "SHARE", json_object: "JSON", filename: "FILE"}
STORED = {"compare": ("a", "b"), "report": ("folder",), "selftest": ()}  # they make no load
OTHERS: dict[str, tuple[str, Callable[[str], str], str]] = {  # said otherwise elsewhere
    "--burstiness": ("arrival", lambda x: _gamma(positive(x) ** -0.5), "--arrival gamma:X^-½"),
    "--random-input-len": ("prompt", lambda x: f"={count(x)}", "--prompt =X"),
    "--random-output-len": ("output", lambda x: f"={count(x)}", "--output =X"),
}
S = TypeVar("S", PlanSpec, RunSpec)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = "expected one argument (as FLAG=VALUE where it begins with -)"
        raise SettingsError(message.replace("expected one argument", hint))


def parser_of(command: str) -> Parser:
    """Build the parser of one command."""
    parser = Parser(prog=f"loadgen {command}", allow_abbrev=False, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"loadgen {version('floorline')}")
    for name in STORED.get(command, ()):
        parser.add_argument(name, help="a folder that --out wrote")
    if command in STORED:
        return parser
    if command == "plan":
        _add(parser, "-o", dest="to", required=True, type=filename, help="where to write")
    else:
        where = f"the server (default: {URL})"
        _add(parser, "url", nargs="?", default=URL, metavar="URL", type=server_url, help=where)
        _add(parser, "--out", type=filename, default=None, metavar="DIR", help=FILES)
        parser.add_argument("--format", choices=("text", "json"), help="default: text")
        parser.add_argument("--quiet", action="store_true", help="no progress line")
        _add_spec(parser, "sending", RunSpec, without=() if command == "run" else ("plan",))
    if command == "sweep":
        _add(parser, "--rates", type=_positives, required=True, metavar="R,R,…", help="to measure")
    _add_spec(parser, "the load", PlanSpec, without=("rate",) if command == "sweep" else ())
    if command == "run":
        many = {"nargs": "+", "action": "extend", "metavar": "M:MS"}
        _add(parser, "--goodput", dest="slo", type=_goodput, help="--slo M=…ms", **many)
        for flag, (dest, parse, help) in OTHERS.items():
            _add(parser, flag, dest=dest, type=parse, help=help)
    return parser


def gather(spec: type[S], given: argparse.Namespace) -> S:
    """Build a spec of what was given; the rest has its defaults."""
    values: dict[str, Any] = {f.name: getattr(given, f.name, f.default) for f in fields(spec)}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return spec(**(values | lists))


def named(spec: type[S], given: argparse.Namespace) -> list[str]:
    """Name a spec's flags that were given."""
    return [_flag(f.name) for f in fields(spec) if hasattr(given, f.name)]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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


def _add_spec(parser: Parser, title: str, spec: type[S], without: Sequence[str]) -> None:
    group = parser.add_argument_group(title)
    for field in (field for field in fields(spec) if field.name not in without):
        how: dict[str, Any] = dict(field.metadata)
        if field.default not in (None, False, ()):
            how["help"] += f" (default: {field.default})"
        if isinstance(field.default, bool):
            how["action"] = "store_true"
        _add(group, _flag(field.name), *how.pop("also"), **how)


def _add(group: Any, *flags: str, help: str, check: Any = None, **how: Any) -> None:
    """Add an option that leaves no trace when it is not given, and whose parser's words are shown.

    A default that is named is kept.
    """
    parse: Any = check or how.get("type")

    def convert(text: str) -> Any:
        try:
            value = parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text if check else value

    if parse:
        how = {"metavar": METAVARS.get(parse, "X"), **how, "type": convert}
    shown = help.replace("%", "%%")
    group.add_argument(*flags, help=shown, **{"default": argparse.SUPPRESS, **how})
