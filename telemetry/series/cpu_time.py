"""Counts the CPU time that telemetry itself takes."""

from __future__ import annotations

import time
from collections.abc import Callable


class CpuTime:
    """Tells `count` the CPU time of this thread between entering and leaving, in ns."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self._count = count
        self._begin_ns = 0

    def __enter__(self) -> None:
        self._begin_ns = time.thread_time_ns()

    def __exit__(self, *_: object) -> None:
        self._count(time.thread_time_ns() - self._begin_ns)
