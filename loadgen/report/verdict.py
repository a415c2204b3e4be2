"""What a run is worth: was the client the limit, and which exit code follows. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from loadgen.report.stats import each_once, percentile
from loadgen.run.player import Health
from loadgen.run.record import Record

MAX_LAG_S = 0.025  # beyond this share of a decode step of 25 to 100 ms, latencies are the client's
MAX_CPU_RATIO = 0.9
MAX_LITTLE_GAP = 0.1
LITTLE_MIN_INFLIGHT = 1.0  # below, ticks see too few requests to compare


class Exit(IntEnum):
    """The exit code is the first cause here that holds; OK where none does."""

    INTERRUPTED = 130
    USAGE = 1
    CLIENT_LIMITED = 3
    UNBALANCED = 5
    ERRORS = 4
    SLO_MISSED = 2
    OK = 0


def exit_code(causes: set[Exit]) -> Exit:
    return next((code for code in Exit if code in causes), Exit.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientVerdict:
    valid: bool
    limits: list[str]  # a line for each bound that was passed
    loop_lag_p99_ms: float
    wake_lag_p99_ms: float
    cpu_ratio: float  # of one core, in the busiest worker
    mean_inflight: float
    mean_inflight_by_law: float  # by Little's law


def client_verdict(records: Sequence[Record], healths: Sequence[Health]) -> ClientVerdict:
    """Judge the client by event-loop lag, CPU share, waking late and Little's law.

    Waking late is not `send_lag`: a cap on requests in flight delays sending on purpose.
    """
    lag_s = _p99(lag for health in healths for lag in health.tick_lags_s)
    wake_s = _p99(record.woke_s - record.intended_s for record in records)
    cpu = max((h.cpu_s / h.wall_s for h in healths if h.wall_s), default=0.0)
    ticks = max((len(health.tick_lags_s) for health in healths), default=0)
    wall_s = max((health.wall_s for health in healths), default=0.0)
    inflight = sum(health.inflight_sum for health in healths) / max(ticks, 1)
    served_s = sum(record.end_s - record.sent_s for record in records)
    by_law = served_s / wall_s if wall_s else 0.0
    most = max(inflight, by_law)
    tests = {
        f"event loop late by {lag_s * 1e3:.0f} ms at p99": lag_s > MAX_LAG_S,
        f"schedule late by {wake_s * 1e3:.0f} ms at p99": wake_s > MAX_LAG_S,
        f"client CPU at {cpu:.0%} of a core": cpu > MAX_CPU_RATIO,
        f"{inflight:.1f} in flight, but by Little's law {by_law:.1f}": (
            most > LITTLE_MIN_INFLIGHT and abs(inflight - by_law) / most > MAX_LITTLE_GAP
        ),
    }
    limits = [line for line, passed in tests.items() if passed]
    return ClientVerdict(
        valid=not limits,
        limits=limits,
        loop_lag_p99_ms=lag_s * 1e3,
        wake_lag_p99_ms=wake_s * 1e3,
        cpu_ratio=cpu,
        mean_inflight=inflight,
        mean_inflight_by_law=by_law,
    )


def _p99(samples: Iterable[float]) -> float:
    ordered = each_once(samples)
    return percentile(ordered, 0.99) if ordered else 0.0
