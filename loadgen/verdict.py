"""What a run is worth: was the client the limit, and which exit code follows. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from loadgen.observe import Record
from loadgen.player import Health
from loadgen.stats import percentile

MAX_LAG_S = 0.025  # beyond this share of a decode step of 25 to 100 ms, latencies are the client's
MAX_CPU_RATIO = 0.9
MAX_LITTLE_GAP = 0.1
LITTLE_MIN_INFLIGHT = 1.0  # below, ticks see too few requests to compare


class Exit(IntEnum):
    OK = 0
    USAGE = 1
    SLO_MISSED = 2
    CLIENT_LIMITED = 3
    ERRORS = 4
    UNBALANCED = 5
    INTERRUPTED = 130


# where several hold, the first of these is told
PRECEDENCE = (
    Exit.INTERRUPTED,
    Exit.USAGE,
    Exit.CLIENT_LIMITED,
    Exit.UNBALANCED,
    Exit.ERRORS,
    Exit.SLO_MISSED,
)


def exit_code(causes: set[Exit]) -> Exit:
    return next((code for code in PRECEDENCE if code in causes), Exit.OK)


def client_verdict(records: Sequence[Record], healths: Sequence[Health]) -> dict[str, Any]:
    """Judge the client by event-loop lag, CPU share, waking late and Little's law.

    Waking late is told from `send_lag`: a cap on requests in flight delays sending on purpose.
    Returns: `valid`, the numbers, and `limits`, a line for each bound that was passed.
    """
    lags = [lag for health in healths for lag in health.tick_lags_s]
    wakes = [record.woke_s - record.intended_s for record in records]
    ticks = max((len(health.tick_lags_s) for health in healths), default=0)
    wall_s = max((health.wall_s for health in healths), default=0.0)
    inflight = sum(health.inflight_sum for health in healths) / ticks if ticks else 0.0
    served_s = sum(record.end_s - record.sent_s for record in records)
    by_law = served_s / wall_s if wall_s else 0.0
    numbers = {
        "loop_lag_p99_ms": _p99_ms(lags),
        "wake_lag_p99_ms": _p99_ms(wakes),
        "cpu_ratio": max((h.cpu_s / h.wall_s for h in healths if h.wall_s), default=0.0),
        "mean_inflight": inflight,
        "mean_inflight_by_law": by_law,
    }
    limits = []
    for name, what in (("loop_lag_p99_ms", "event loop"), ("wake_lag_p99_ms", "schedule")):
        if numbers[name] > MAX_LAG_S * 1e3:
            limits.append(f"{what} late by {numbers[name]:.0f} ms at p99")
    if numbers["cpu_ratio"] > MAX_CPU_RATIO:
        limits.append(f"client CPU at {numbers['cpu_ratio']:.0%} of a core")
    gap = abs(inflight - by_law) / max(inflight, by_law, LITTLE_MIN_INFLIGHT)
    if gap > MAX_LITTLE_GAP and max(inflight, by_law) > LITTLE_MIN_INFLIGHT:
        limits.append(f"{inflight:.1f} in flight, but by Little's law {by_law:.1f}")
    return {"valid": not limits, "limits": limits, **numbers}


def _p99_ms(samples: Sequence[float]) -> float:
    return percentile([(lag, 1) for lag in sorted(samples)], 0.99) * 1e3 if samples else 0.0
