"""How to start a Python process of ours, so that it imports our packages whatever lies around.

A user's folder may hold a `core.py` of its own, and `python -m` would look there first. Which
programs there are, and what they do, is not known here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).resolve().parents[1]  # the folder in which our packages lie
_PATH: Final = "PYTHONPATH"
_PR_SET_PDEATHSIG: Final = 1  # of <sys/prctl.h>


@dataclass(frozen=True, slots=True)
class Child:
    """What to start, and the environment that it needs."""

    command: list[str]
    environment: dict[str, str]


def python_child(
    module: str, *arguments: str, environment: Mapping[str, str] = os.environ
) -> Child:
    """Run a module of ours as a program, by the interpreter that runs this one.

    `-P` keeps the current folder off its path, and PYTHONPATH puts our folder before everything
    that is installed. What the user has in PYTHONPATH follows.
    """
    given = [part for part in environment.get(_PATH, "").split(os.pathsep) if part]
    path = [str(HOME), *(part for part in given if part != str(HOME))]
    return Child(
        [sys.executable, "-P", "-m", module, *arguments],
        {**environment, _PATH: os.pathsep.join(path)},
    )


def die_with_parent() -> None:
    """Have the system kill this process when the one that started it ends, however it does.

    Only Linux can; elsewhere a child ends when it next reads the pipe or socket to its parent. The
    parent is the thread that started the child: it must live as long as the child is wanted. Where
    it ended before this call, the pipe or socket tells.
    """
    import ctypes

    if sys.platform == "linux":
        with suppress(AttributeError):  # a C library without it
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let an interrupt (Ctrl-C) that comes in the block take effect at its end.

    Otherwise it can come while a process is being started, and nobody would know whom to end.

    Raises:
        KeyboardInterrupt: one came.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # interrupts reach the main thread alone
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)
