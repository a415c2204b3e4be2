"""How a Python process of ours is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import core
from core.children import HOME, interrupts_held, python_child
from tests.patience import PATIENCE_S


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


def test_an_interrupt_is_held_until_the_block_has_ended() -> None:
    before, done = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest of the block")
        done.append("what follows")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest of the block"]
    assert signal.getsignal(signal.SIGINT) is before


def test_without_an_interrupt_a_block_that_holds_them_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts_held():
        pass
    with pytest.raises(ValueError, match="its own"), interrupts_held():
        raise ValueError("its own")
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_hold_nothing_and_are_not_refused() -> None:
    done: list[str] = []

    def work() -> None:
        with interrupts_held():
            done.append("work")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["work"]


_SLEEPER = """
import sys, time
from core.children import die_with_parent
die_with_parent()
print("here", flush=True)
time.sleep(1e6)
"""
_PARENT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {_SLEEPER!r}])
time.sleep(1e6)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system must be asked, and can do so")
def test_a_child_ends_with_a_parent_that_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"here\n"
        parent.kill()
        watchdog = threading.Timer(PATIENCE_S, os._exit, (1,))
        watchdog.start()
        assert parent.stdout.read() == b"", "nobody holds the pipe any more"
        watchdog.cancel()
