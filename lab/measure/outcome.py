"""What an experiment yields: predictions, measurements beside them, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

LEFT_OUT: Final[Mapping[str, str]] = {
    "host": "the engine's own work around a step (receive, plan, prepare, commit, publish), which "
    "is neither bytes nor FLOPs",
    "sample": "choosing tokens from the logits",
    "memory_shortfall": "a forward pass that does not reach the memory's peak: kernels, "
    "activations (which the floor leaves out), and neighbours on this machine",
    "compute_shortfall": "a forward pass that does not reach the peak of arithmetic: kernels, "
    "norms and softmax (which the floor leaves out), and neighbours on this machine",
    "recompute": "tokens run again after a preemption",
    "overrun": "tokens sampled after a stop",
    "failed": "steps that failed",
    "idle": "waiting for work",
    "calibration": "measuring the machine's peaks while no request is there",
    "server": "what lies outside the engine: HTTP, the socket, the client",
}


@dataclass(frozen=True, slots=True)
class Account:
    """Time as the time law splits it. Units: seconds."""

    floor_s: float
    lost_s: dict[str, float]

    @property
    def total_s(self) -> float:
        return self.floor_s + sum(self.lost_s.values())

    def shares(self) -> list[tuple[str, float]]:
        """Give the floor's share of the whole, then those of the causes, largest first."""
        causes = sorted(self.lost_s.items(), key=lambda item: -item[1])
        whole = self.total_s or 1.0
        return [("floor", self.floor_s / whole), *((name, s / whole) for name, s in causes)]

    def words(self) -> str:
        shown = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in self.shares()]
        return ", ".join(part for part in shown if not part.endswith(" 0%"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRow:
    """One condition: what was predicted, and what was measured."""

    series: str
    x: float | str
    predicted: float
    measured: float | None = None  # None before it was run, and if it could not be
    account: Account | None = None

    @property
    def miss(self) -> float | None:
        """By how many times the prediction is off, whichever way."""
        if not self.measured or not self.predicted:
            return None
        ratio = self.measured / self.predicted
        return max(ratio, 1 / ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabResult:
    """One experiment's whole result."""

    number: int
    title: str
    question: str
    quantity: str
    x_name: str
    tolerance: float
    rows: tuple[LabRow, ...]
    facts: tuple[tuple[str, str, str], ...] = ()  # (what, predicted, measured)
    reading: str = ""
    log: bool = False

    @property
    def worst(self) -> LabRow | None:
        """Find the row whose prediction misses most."""
        missed = [row for row in self.rows if row.miss is not None]
        return max(missed, key=lambda row: row.miss or 0.0, default=None)

    @property
    def flag(self) -> str | None:
        """Say by how much the prediction misses, and which cost the model leaves out."""
        worst = self.worst
        if worst is None or worst.miss is None or worst.miss <= self.tolerance:
            return None
        return (
            f"The prediction misses by {worst.miss:.1f} × at {place(self, worst)}, more than the"
            f" stated {self.tolerance:g} ×. {left_out(worst.account)}"
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"flag": self.flag}


def place(outcome: LabResult, row: LabRow) -> str:
    x = f"{row.x:g}" if isinstance(row.x, float) else row.x
    return f"{row.series}, {outcome.x_name} {x}"


def left_out(account: Account | None) -> str:
    """Name the largest cause of lost time and what the model leaves out there."""
    lost = {} if account is None else account.lost_s
    causes = [cause for cause in sorted(lost, key=lambda name: -lost[name]) if lost[cause] > 0]
    if not causes:
        return "No account of its time was kept."
    return f"Left out is, first of all, {LEFT_OUT.get(causes[0], causes[0])}."


def merged(accounts: Sequence[Account]) -> Account:
    """Sum accounts."""
    lost: dict[str, float] = {}
    for account in accounts:
        for cause, seconds in account.lost_s.items():
            lost[cause] = lost.get(cause, 0.0) + seconds
    return Account(sum(account.floor_s for account in accounts), lost)
