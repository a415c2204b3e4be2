"""The flags, derived from the specs; and the spellings of other load generators."""

from __future__ import annotations

import argparse
from dataclasses import fields
from importlib.metadata import version
from typing import Any, NoReturn, TypeVar

from core.errors import SettingsError
from loadgen.spec import OutputSpec, PlanSpec, RunSpec, parse_slo

URL = "http://127.0.0.1:8000"
S = TypeVar("S", PlanSpec, RunSpec, OutputSpec)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


def typed(parse: Any) -> Any:
    """Let argparse show a parser's own words."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except (ValueError, KeyError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def add_options(parser: Parser, title: str, spec: type[S]) -> None:
    group = parser.add_argument_group(title)
    for field in fields(spec):
        flag = f"--{field.name.replace('_', '-')}"
        how = field.metadata
        shown = "" if field.default in (None, False, ()) else f" (default: {field.default})"
        text = (how["help"] + shown).replace("%", "%%")
        if isinstance(field.default, bool):
            group.add_argument(flag, action="store_true", help=text)
            continue
        kind = typed(how["parse"])
        action = "append" if how["many"] else "store"
        group.add_argument(
            flag, type=kind, action=action, metavar=how["metavar"] or None, help=text
        )


def gather(spec: type[S], given: argparse.Namespace) -> S:
    values = {field.name: getattr(given, field.name) for field in fields(spec)}
    known: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }
    return spec(**known)


def add_aliases(parser: Parser) -> None:
    """Spellings of other load generators."""
    group = parser.add_argument_group("known spellings")

    def alias(flag: str, dest: str, parse: Any, help: str) -> None:
        group.add_argument(flag, dest=dest, type=typed(parse), help=help, metavar="X")

    options = {
        field.name: field.metadata["parse"]
        for spec in (PlanSpec, RunSpec)
        for field in fields(spec)
    }
    alias("--request-rate", "rate", options["rate"], "--rate")
    alias("--num-prompts", "requests", options["requests"], "--requests")
    alias("--max-concurrency", "max_inflight", options["max_inflight"], "--max-inflight")
    alias("--burstiness", "arrival", burstiness, "--arrival gamma:CV, with CV = X^-1/2")
    alias("--random-input-len", "prompt", fixed, "--prompt =X")
    alias("--random-output-len", "output", fixed, "--output =X")
    group.add_argument(
        *("--goodput",), dest="slo", nargs="+", action="extend", type=typed(goodput),
        metavar="M:MS", help="--slo M=…ms",
    )  # fmt: skip


def burstiness(text: str) -> str:
    shape = float(text)
    if shape <= 0:
        raise ValueError(f"{text} must be above 0")
    return f"gamma:{shape**-0.5!r}"


def fixed(text: str) -> str:
    if int(text) < 1:
        raise ValueError(f"{text} must be at least 1")
    return f"={int(text)}"


def goodput(text: str) -> str:
    metric, _, limit = text.partition(":")
    slo = f"{metric.replace('e2el', 'e2e')}={limit}ms"
    parse_slo(slo)
    return slo


COMMANDS = "run (the default), sweep, search, compare, plan, report, selftest"


def load_parser(command: str) -> Parser:
    """Build the parser of a command that makes a load."""
    epilog = f"Commands: {COMMANDS}; each has its own --help."
    parser = Parser(prog=f"loadgen {command}", allow_abbrev=False, epilog=epilog)
    parser.add_argument("--version", action="version", version=f"loadgen {version('floorline')}")
    if command != "plan":
        parser.add_argument("url", nargs="?", default=URL, help=f"default: {URL}")
        add_options(parser, "sending", RunSpec)
        add_options(parser, "output", OutputSpec)
    add_options(parser, "the load", PlanSpec)
    return parser
