"""A message that names a flag names one that there is: advice that leads nowhere is none."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.options import parser_of
from server.cli.main import build_parser
from tests.pages import ROOT

PACKAGES = ("core", "costmodel", "engine", "floorline", "grammar", "kernels", "kvcache", "lab",
            "loadgen", "scheduler", "server", "telemetry")  # fmt: skip
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
ENGINE = {"--calibrate", "--describe", "--fd"}  # of the process that the server starts
PIP = {"--no-deps"}  # in advice to install a package


def flags_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from flags_of(inner)


LOADGEN = ("run", "sweep", "search", "compare", "plan", "report", "selftest")
KNOWN = set(flags_of(build_parser())).union(*(flags_of(parser_of(name)) for name in LOADGEN))


def texts(file: Path) -> Iterator[str]:
    """Give a source's strings, but for docstrings, whose readers have the code before them."""
    tree = ast.parse(file.read_text("utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


@pytest.mark.parametrize("package", PACKAGES)
def test_each_flag_that_a_source_names_exists(package: str) -> None:
    for file in sorted((ROOT / package).rglob("*.py")):
        for text in texts(file):
            unknown = set(FLAG.findall(text)) - KNOWN - ENGINE - PIP
            assert not unknown, f"{file.relative_to(ROOT)}: {unknown} in {text[:80]!r}"


def test_the_flags_that_are_known_are_those_of_the_commands() -> None:
    assert {"--max-text", "--template-timeout", "--no-prefix-caching", "--rates"} <= KNOWN
    assert "--max-tokens-of-nothing" not in KNOWN
