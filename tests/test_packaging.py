"""A wheel holds one package, and in it our commands and children find what is ours."""

from __future__ import annotations

import ast
import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.test_architecture import MAY_IMPORT, imported_modules, name_of

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
INSTALLED: dict[str, str] = PYPROJECT["tool"]["scikit-build"]["wheel"]["packages"]
TOP = "floorline"
STARTS_CHILDREN = Path("core/children.py")
SOURCES = sorted(
    path for folder in (*MAY_IMPORT, "bench", "deploy") for path in (ROOT / folder).rglob("*.py")
)


def test_every_package_is_installed_below_one_name() -> None:
    inside = {f"{TOP}/{package}": package for package in MAY_IMPORT if package != TOP}
    assert {TOP: TOP, **inside} == INSTALLED


def test_the_compiled_module_is_installed_there_too() -> None:
    built = (ROOT / "kernels/CMakeLists.txt").read_text()
    places = [line.split()[-1].rstrip(")") for line in built.splitlines() if "install(" in line]
    assert places == [TOP]
    assert (ROOT / TOP / "_native.pyi").exists()


def test_no_folder_of_a_checkout_holds_what_only_an_installed_package_has() -> None:
    """`floorline/start.py` tells the two apart by it."""
    assert not (ROOT / TOP / "core").exists()


def test_nothing_but_the_compiled_module_is_imported_by_the_installed_name() -> None:
    """A module that is imported by two names is there twice, and its classes differ."""
    named = {module for path in SOURCES for module in imported_modules(path)}
    assert {name for name in named if name.partition(".")[0] == TOP} == {f"{TOP}._native"}


@pytest.mark.parametrize("command", ["floorline", "loadgen"])
def test_a_command_is_started_by_the_starter(command: str) -> None:
    module, _, name = PYPROJECT["project"]["scripts"][command].partition(":")
    assert module == f"{TOP}.start"
    assert callable(getattr(importlib.import_module(module), name))


def asks_for_the_interpreter(path: Path) -> bool:
    """Tell whether a file uses `sys.executable`, by whatever name."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "executable")
        or (isinstance(node, ast.ImportFrom) and "executable" in {one.name for one in node.names})
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_only_one_file_knows_how_to_start_a_python_of_ours() -> None:
    """By hand, `python -m engine` would run an `engine.py` of the user's folder."""
    found = [name_of(path) for path in SOURCES if asks_for_the_interpreter(path)]
    assert found == [str(STARTS_CHILDREN)]
