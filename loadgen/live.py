"""The line that shows a run in progress, on standard error."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from statistics import median

from loadgen.plan import Plan
from loadgen.player import Progress

TERMINAL_S, LOG_S = 0.5, 10.0  # a line in place on a terminal; elsewhere one line now and then


class Live:
    def __init__(self, plan: Plan, quiet: bool) -> None:
        self._total, self._quiet = len(plan.requests), quiet
        self._terminal = sys.stderr.isatty()

    async def show(self, clock: Callable[[], float], progress: Callable[[], Progress]) -> None:
        """Print until cancelled."""
        while not self._quiet:
            await asyncio.sleep(TERMINAL_S if self._terminal else LOG_S)
            line = self.line(clock(), progress())
            print(f"\r\x1b[K{line}" if self._terminal else line,
                  end="" if self._terminal else "\n", file=sys.stderr, flush=True)  # fmt: skip

    def line(self, elapsed_s: float, now: Progress) -> str:
        ttft = f"{median(now.ttft_s) * 1e3:.0f} ms" if now.ttft_s else "–"
        return (
            f"{elapsed_s:5.0f} s  sent {now.sent}/{self._total}  late {now.late}  done {now.done}"
            f"  failed {now.failed}  in flight {now.inflight}  TTFT p50 {ttft}"
        )

    def end(self) -> None:
        """Clear the terminal's line."""
        if self._terminal and not self._quiet:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
