"""What pyproject.toml declares is what the code imports, and constraints.txt pins all of it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
PRODUCT = tuple(PYPROJECT["tool"]["scikit-build"]["wheel"]["packages"].values())
DEVELOPMENT = ("bench", "deploy", "docs", "tests")
OURS = {*(Path(package).parts[0] for package in PRODUCT), *DEVELOPMENT}
# Run as programs, as builders of the kernels, as plugins of pytest or as stubs of mypy.
TOOLS = {
    *("mypy", "pre-commit", "ruff", "types-pyyaml"),
    *("cmake", "nanobind", "ninja", "scikit-build-core"),
    *("pytest-timeout", "pytest-xdist"),
}
# A peer that is measured beside us lives in an environment of its own.
ELSEWHERE = {"llama_cpp"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names_of(requirements: Iterable[str]) -> set[str]:
    found = (re.match(r"[\w.-]+", requirement) for requirement in requirements)
    return {canonical(match[0]) for match in found if match}


RUNTIME = names_of(PROJECT["dependencies"])
DEV = names_of(PROJECT["optional-dependencies"]["dev"])


@cache
def imported(folders: tuple[str, ...]) -> frozenset[str]:
    """Name the third-party packages that the files below `folders` import, wherever in a file."""
    found: set[str] = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {node.module.partition(".")[0]}
    return frozenset(found - OURS - ELSEWHERE - sys.stdlib_module_names)


def providers(packages: Iterable[str]) -> set[str]:
    """Name the distributions that bring these packages.

    Raises:
        KeyError: no installed distribution brings one of them.
    """
    known = packages_distributions()
    return {canonical(name) for package in packages for name in known[package]}


def test_what_the_product_imports_is_what_it_declares() -> None:
    assert providers(imported(PRODUCT)) == RUNTIME


def test_what_tests_and_benches_import_is_declared() -> None:
    assert providers(imported(DEVELOPMENT)) <= RUNTIME | DEV


def test_what_the_dev_extra_declares_is_imported_or_a_tool() -> None:
    assert providers(imported(DEVELOPMENT)) | TOOLS >= DEV
    assert TOOLS <= DEV, "no tool is named here that nobody installs"
    assert not DEV & RUNTIME, "declared once"


def test_there_is_no_other_extra() -> None:
    """One would need a test of its own here."""
    assert set(PROJECT["optional-dependencies"]) == {"dev"}


def test_every_declared_package_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    exact = {canonical(line.partition("==")[0]) for line in lines if "==" in line}
    assert len(exact) == len(lines)
    assert names_of(PYPROJECT["build-system"]["requires"]) | RUNTIME | DEV <= exact
