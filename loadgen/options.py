"""The flags, derived from the specs; and the spellings of other load generators."""

from __future__ import annotations

import argparse
from dataclasses import fields
from importlib.metadata import version
from typing import Any, NoReturn, TypeVar

from core.errors import SettingsError
from loadgen.spec import (
    OutputSpec,
    PlanSpec,
    RunSpec,
    checked,
    count,
    parse_slo,
    positive,
    ratio,
    seconds,
)

URL = "http://127.0.0.1:8000"
COMMANDS = "run (the default), sweep, search, compare, plan, report, selftest"
METAVARS = {seconds: "T", count: "N", int: "N", ratio: "SHARE"}
STORED = {"compare": ("a", "b"), "report": ("folder",), "selftest": ()}  # they make no load
S = TypeVar("S", PlanSpec, RunSpec, OutputSpec)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


def parser_of(command: str) -> Parser:
    """Build the parser of one command."""
    epilog = f"Commands: {COMMANDS}; each has its own --help."
    parser = Parser(prog=f"loadgen {command}", allow_abbrev=False, epilog=epilog)
    parser.add_argument("--version", action="version", version=f"loadgen {version('floorline')}")
    if command in STORED:
        for name in STORED[command]:
            parser.add_argument(name, help="a folder that --out wrote")
        return parser
    if command == "plan":
        parser.add_argument("-o", dest="to", required=True, metavar="FILE", help="where to write")
    else:
        parser.add_argument("url", nargs="?", default=URL, help=f"default: {URL}")
        _add_spec(parser, "sending", RunSpec)
        _add_spec(parser, "output", OutputSpec)
    if command == "sweep":
        parser.add_argument("--rates", required=True, metavar="R,R,…", help="rates to measure")
    _add_spec(parser, "the load", PlanSpec)
    if command == "run":
        _add_aliases(parser)
    return parser


def gather(spec: type[S], given: argparse.Namespace) -> S:
    """Build a spec of what was given; the rest has its defaults."""
    names = [field.name for field in fields(spec) if field.name in given]
    values: dict[str, Any] = {name: getattr(given, name) for name in names}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return spec(**(values | lists))


def _add_spec(parser: Parser, title: str, spec: type[S]) -> None:
    group = parser.add_argument_group(title)
    for field in fields(spec):
        how: dict[str, Any] = dict(field.metadata)
        if field.default not in (None, False, ()):
            how["help"] += f" (default: {field.default})"
        if isinstance(field.default, bool):
            how["action"] = "store_true"
        _add(group, f"--{field.name.replace('_', '-')}", **how)


def _add(group: Any, flag: str, **how: Any) -> None:
    """Add a flag that leaves no trace when it is not given, and whose parser's words are shown."""
    if parse := how.get("type"):
        how["type"] = _told(parse)
        how.setdefault("metavar", METAVARS.get(parse, "X"))
    help = how.pop("help").replace("%", "%%")
    group.add_argument(flag, default=argparse.SUPPRESS, help=help, **how)


def _told(parse: Any) -> Any:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _add_aliases(parser: Parser) -> None:
    group = parser.add_argument_group("known spellings")
    aliases = {
        "--request-rate": ("rate", positive, "--rate"),
        "--num-prompts": ("requests", count, "--requests"),
        "--max-concurrency": ("max_inflight", count, "--max-inflight"),
        "--burstiness": ("arrival", _burstiness, "--arrival gamma:CV, with CV = X^-1/2"),
        "--random-input-len": ("prompt", _fixed, "--prompt =X"),
        "--random-output-len": ("output", _fixed, "--output =X"),
    }
    for flag, (dest, parse, help) in aliases.items():
        _add(group, flag, dest=dest, type=parse, help=help)
    many = {"nargs": "+", "action": "extend", "metavar": "M:MS"}
    _add(group, "--goodput", dest="slo", type=_goodput, help="--slo M=…ms", **many)


def _burstiness(text: str) -> str:
    return f"gamma:{positive(text) ** -0.5!r}"


def _fixed(text: str) -> str:
    return f"={count(text)}"


def _goodput(text: str) -> str:
    metric, _, limit = text.partition(":")
    return checked(parse_slo)(f"{metric.replace('e2el', 'e2e')}={limit}ms")
