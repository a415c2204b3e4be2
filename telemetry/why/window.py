"""The last minutes by the second, and what made requests slow in them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from costmodel.account import LostCause
from telemetry.spent.pieces import Piece
from telemetry.why.explain import SCHEMA, Explanation
from telemetry.why.words import span

SECONDS_KEPT: Final = 300
_IDLE: Final = 0.95  # of the time: then nothing is said of what ran
_GOOD: Final = 0.99  # of the requests: then they were not slow


@dataclass(slots=True)
class Second:
    """What ended in one second. Units: ns."""

    at_s: int
    ended: int = 0
    took_ns: int = 0  # by those that ended
    pieces: Counter[Piece] = field(default_factory=Counter)  # of it
    slow: Counter[str] = field(default_factory=Counter)
    worst: Explanation | None = None  # of the slow ones
    floor_ns: int = 0
    lost_ns: Counter[LostCause] = field(default_factory=Counter)  # by steps

    @property
    def busy_ns(self) -> int:
        return self.floor_ns + self.lost_ns.total()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowView:
    """The seconds before a moment, as a whole. None where nothing ended, or nothing ran."""

    schema: int = SCHEMA
    of: Literal["window"] = "window"
    seconds: int
    ended: int
    slow: Mapping[str, int]  # by code
    mean_ms: float | None
    spent_ms: Mapping[Piece, float]  # all that ended, together
    busy: float  # of the time
    efficiency: float | None  # of the busy time
    lost_ms: Mapping[LostCause, float]
    sentence: str
    worst: Explanation | None


class Window:
    """Cost: an update a burst; a view sums up to 300 seconds."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=SECONDS_KEPT)

    def second(self, at_ns: int) -> Second:
        """Give the second of a moment; an earlier moment than the last one counts in that."""
        at_s = at_ns // 10**9
        if not self._seconds or self._seconds[-1].at_s < at_s:
            self._seconds.append(Second(at_s))
        return self._seconds[-1]

    def view(self, seconds: int, now_ns: int) -> WindowView:
        """Sum up the last `seconds`, of which 300 are kept."""
        since_s = now_ns // 10**9 - seconds
        return _view([second for second in self._seconds if second.at_s >= since_s], seconds)


def _view(kept: Iterable[Second], seconds: int) -> WindowView:
    whole = Second(0)
    for second in kept:
        whole.ended += second.ended
        whole.took_ns += second.took_ns
        whole.pieces.update(second.pieces)
        whole.slow.update(second.slow)
        whole.floor_ns += second.floor_ns
        whole.lost_ns.update(second.lost_ns)
        whole.worst = worse(whole.worst, second.worst)
    busy = min(whole.busy_ns / (seconds * 1e9), 1.0)
    return WindowView(
        seconds=seconds,
        ended=whole.ended,
        slow=whole.slow,
        mean_ms=whole.took_ns / whole.ended / 1e6 if whole.ended else None,
        spent_ms={piece: ns / 1e6 for piece, ns in whole.pieces.items()},
        busy=busy,
        efficiency=whole.floor_ns / whole.busy_ns if whole.busy_ns else None,
        lost_ms={cause: ns / 1e6 for cause, ns in whole.lost_ns.items() if ns},
        sentence=_sentence(whole, seconds, busy),
        worst=whole.worst,
    )


def worse(one: Explanation | None, other: Explanation | None) -> Explanation | None:
    """Give the one that took longer."""
    if one is None or other is None:
        return one or other
    return one if one.measured_ms >= other.measured_ms else other


def _sentence(whole: Second, seconds: int, busy: float) -> str:
    if not whole.ended and busy <= 1 - _IDLE:
        return f"Nothing ran in the last {seconds} s."
    count, slow = whole.ended, whole.slow.total()
    if not count:
        return f"No request ended in the last {seconds} s; the engine was busy {busy:.0%}."
    mean = span(whole.took_ns / count)
    if count - slow >= _GOOD * count:
        told = f"Not slow: {count} requests in {seconds} s, {mean} each"
        return f"{told}; the engine was busy {busy:.0%}."
    (code, times), *_ = whole.slow.most_common(1)
    told = f"{slow} of {count} requests were slow in {seconds} s, {times} by {code}"
    waits = sum(whole.pieces[piece] for piece in _WAITS) / max(whole.took_ns, 1)
    of_waits = f", {waits:.0%} of their time waiting" if waits >= 0.01 else ""
    return f"{told}; {mean} each{of_waits}; the engine was busy {busy:.0%}."


_WAITS: Final = (Piece.WAIT_STEP, Piece.WAIT_KV, Piece.WAIT_SLOTS, Piece.WAIT_BUDGET, Piece.STALLED)
