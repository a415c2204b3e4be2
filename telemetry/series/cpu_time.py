"""Counts the CPU time that telemetry itself takes."""

from __future__ import annotations

import time
from collections.abc import Callable


class CpuTime:
    """Calls `count` with the CPU time that this thread took between entering and leaving.

    What it is told to `begin` with counts, too. Units: ns. It cannot be entered twice at a time.
    """

    def __init__(
        self, count: Callable[[int], None], begin: Callable[[], None] = lambda: None
    ) -> None:
        self._count, self._begin = count, begin
        self._begin_ns = 0

    def __enter__(self) -> None:
        self._begin_ns = time.thread_time_ns()
        self._begin()

    def __exit__(self, *_: object) -> None:
        self._count(time.thread_time_ns() - self._begin_ns)
