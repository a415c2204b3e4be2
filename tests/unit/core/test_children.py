"""How a Python process of ours is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import core
from core.children import HOME, python_child


def test_a_child_runs_the_module_and_keeps_the_current_folder_off_its_path() -> None:
    child = python_child("engine", "--fd", "3", environment={})
    assert child.command == [sys.executable, "-P", "-m", "engine", "--fd", "3"]


def test_home_is_the_folder_in_which_core_lies() -> None:
    assert core.__file__ == str(HOME / "core" / "__init__.py")


def test_our_folder_comes_before_what_the_user_has_in_the_variable() -> None:
    given = os.pathsep.join(["/theirs", "", str(HOME), "/more"])
    child = python_child("engine", environment={"PYTHONPATH": given, "LANG": "C"})
    assert child.environment == {
        "PYTHONPATH": os.pathsep.join([str(HOME), "/theirs", "/more"]),
        "LANG": "C",
    }


def test_a_child_of_a_child_has_the_same_path() -> None:
    once = python_child("engine", environment={"PYTHONPATH": "/theirs"}).environment
    assert python_child("engine", environment=once).environment == once


def test_modules_of_the_same_name_in_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("core.py", "loadgen.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong one')")
    child = python_child("loadgen.cli", "--help")
    done = subprocess.run(
        child.command, env=child.environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: loadgen")
